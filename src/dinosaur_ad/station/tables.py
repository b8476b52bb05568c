"""The tables of the history. Times are UTC, as text in ISO format with microseconds, so that they sort on any database.

A change here needs a migration in ``history/migrations``; a test compares the two.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import JSON, Boolean, Float, ForeignKey, Index, Integer, String, Text, literal_column
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

TIME = String(32)
"""``2026-11-18T17:03:07.123456+00:00``: sorts as text."""
NAME = String(200)


class Base(DeclarativeBase):
    """The base of all tables."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {dict[str, Any]: JSON, list[str]: JSON, list[int]: JSON}


class PartRow(Base):
    """A part that was judged, once for each ``key``."""

    __tablename__ = "parts"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    key: Mapped[str] = mapped_column(String(400), unique=True)
    taken: Mapped[str] = mapped_column(TIME, index=True)
    recorded: Mapped[str] = mapped_column(TIME)
    source: Mapped[str] = mapped_column(NAME, index=True)
    task: Mapped[str | None] = mapped_column(NAME, index=True)
    verdict: Mapped[str] = mapped_column(String(20), index=True)
    reason: Mapped[str] = mapped_column(Text, default="")
    score: Mapped[float | None] = mapped_column(Float)
    threshold: Mapped[float | None] = mapped_column(Float)
    p_value: Mapped[float | None] = mapped_column(Float)
    total_ms: Mapped[float | None] = mapped_column(Float)
    answer: Mapped[str | None] = mapped_column(String(20), index=True)
    """The newest feedback: fine, defect, not sure, other product."""
    missing: Mapped[list[str]] = mapped_column(JSON, default=list)
    views: Mapped[list[ViewRow]] = relationship(
        back_populates="part", order_by="ViewRow.id", cascade="all, delete-orphan"
    )
    feedback: Mapped[list[FeedbackRow]] = relationship(
        back_populates="part", order_by="FeedbackRow.id", cascade="all, delete-orphan"
    )


class ViewRow(Base):
    """One picture of a part, with its inspection as JSON; ``picture`` and ``map`` are files below the history's folder,
    empty once retention has removed them."""

    __tablename__ = "views"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    part_id: Mapped[int] = mapped_column(ForeignKey("parts.id", ondelete="CASCADE"), index=True)
    key: Mapped[str] = mapped_column(String(400), unique=True)
    source: Mapped[str] = mapped_column(NAME)
    view: Mapped[str] = mapped_column(NAME, default="")
    verdict: Mapped[str] = mapped_column(String(20))
    error: Mapped[str] = mapped_column(Text, default="")
    inspection: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    ms: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    picture: Mapped[str] = mapped_column(String(200), default="")
    map: Mapped[str] = mapped_column(String(200), default="")
    bytes: Mapped[int] = mapped_column(Integer, default=0)
    part: Mapped[PartRow] = relationship(back_populates="views")


class FeedbackRow(Base):
    """What a person said of a part, and what became of it.

    ``state`` is "waiting" (in the tray), "taught", "kept" (defects: in the gallery), "refused" (by an engineer or the
    guard; ``outcome`` says why), "noted" (nothing follows from it) or "withdrawn".
    """

    __tablename__ = "feedback"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    part_id: Mapped[int] = mapped_column(ForeignKey("parts.id", ondelete="CASCADE"), index=True)
    said: Mapped[str] = mapped_column(TIME)
    by: Mapped[str] = mapped_column(NAME)
    answer: Mapped[str] = mapped_column(String(20))
    product: Mapped[str | None] = mapped_column(NAME)
    note: Mapped[str] = mapped_column(Text, default="")
    state: Mapped[str] = mapped_column(String(20), index=True)
    decided: Mapped[str | None] = mapped_column(TIME)
    decided_by: Mapped[str | None] = mapped_column(NAME)
    outcome: Mapped[str] = mapped_column(Text, default="")
    part: Mapped[PartRow] = relationship(back_populates="feedback")


class ChangeRow(Base):
    """A change of a product: who taught or set what, when; ``detail`` has the numbers before and after."""

    __tablename__ = "changes"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    made: Mapped[str] = mapped_column(TIME, index=True)
    by: Mapped[str] = mapped_column(NAME)
    task: Mapped[str] = mapped_column(NAME, index=True)
    action: Mapped[str] = mapped_column(String(40))
    sentence: Mapped[str] = mapped_column(Text, default="")
    detail: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)


class WarningRow(Base):
    """A warning of the drift watch; ``task`` is None where all products changed. ``parts`` are the ids that show it."""

    __tablename__ = "warnings"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    raised: Mapped[str] = mapped_column(TIME, index=True)
    kind: Mapped[str] = mapped_column(String(40))
    task: Mapped[str | None] = mapped_column(NAME, index=True)
    sentence: Mapped[str] = mapped_column(Text)
    detail: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    parts: Mapped[list[int]] = mapped_column(JSON, default=list)
    closed: Mapped[str | None] = mapped_column(TIME)
    closed_by: Mapped[str | None] = mapped_column(NAME)


class OutboxRow(Base):
    """A message for one sink; written with the part, deleted a while after it was delivered."""

    __tablename__ = "outbox"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    sink: Mapped[str] = mapped_column(NAME, index=True)
    kind: Mapped[str] = mapped_column(String(20))
    """part, warning or change."""
    key: Mapped[str] = mapped_column(String(440), unique=True)
    """``SINK:KIND:KEY``, so that a message is queued once; receivers can tell repeats by it."""
    payload: Mapped[dict[str, Any]] = mapped_column(JSON)
    queued: Mapped[str] = mapped_column(TIME)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    next_try: Mapped[str] = mapped_column(TIME, index=True)
    error: Mapped[str] = mapped_column(Text, default="")
    delivered: Mapped[str | None] = mapped_column(TIME, index=True)
    refused: Mapped[str | None] = mapped_column(TIME)
    """When it was set aside because the receiver refuses it; it is not tried again by itself."""


class AccountRow(Base):
    """A person who may log in."""

    __tablename__ = "accounts"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(NAME, unique=True)
    password: Mapped[str] = mapped_column(String(400))
    """argon2id, with its salt and parameters."""
    role: Mapped[str] = mapped_column(String(20))
    active: Mapped[bool] = mapped_column(Boolean, default=True)
    language: Mapped[str] = mapped_column(String(8), default="")
    created: Mapped[str] = mapped_column(TIME)
    last_login: Mapped[str | None] = mapped_column(TIME)


class LoginRow(Base):
    """A session of a browser; only hashes of its token are kept."""

    __tablename__ = "logins"

    token: Mapped[str] = mapped_column(String(64), primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), index=True)
    csrf: Mapped[str] = mapped_column(String(64))
    begun: Mapped[str] = mapped_column(TIME)
    seen: Mapped[str] = mapped_column(TIME)
    ends: Mapped[str] = mapped_column(TIME, index=True)


class TokenRow(Base):
    """An API token; only its hash is kept."""

    __tablename__ = "tokens"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(NAME, unique=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[list[str]] = mapped_column(JSON)
    created: Mapped[str] = mapped_column(TIME)
    created_by: Mapped[str] = mapped_column(NAME)
    ends: Mapped[str | None] = mapped_column(TIME)
    last_used: Mapped[str | None] = mapped_column(TIME)


class AuditRow(Base):
    """Who did what: logins and their failures, accounts, tokens, settings, teaching."""

    __tablename__ = "audit"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    at: Mapped[str] = mapped_column(TIME, index=True)
    by: Mapped[str] = mapped_column(NAME)
    address: Mapped[str] = mapped_column(String(64), default="")
    action: Mapped[str] = mapped_column(String(60), index=True)
    detail: Mapped[str] = mapped_column(Text, default="")


Index("parts_task_taken", PartRow.task, PartRow.taken)
# The views that have files: what retention goes through, however many rows there are without.
_HAS_FILES = ViewRow.bytes > literal_column("0")
Index("views_kept", ViewRow.id, ViewRow.bytes, sqlite_where=_HAS_FILES, postgresql_where=_HAS_FILES)
Index("outbox_waiting", OutboxRow.sink, OutboxRow.delivered, OutboxRow.refused, OutboxRow.id)
