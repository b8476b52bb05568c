"""The first format: parts with views and feedback, changes, warnings, messages, accounts, tokens, the audit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.String(32)
_NAME = sa.String(200)


def upgrade() -> None:
    """Make the tables."""
    _parts()
    _events()
    _people()


def downgrade() -> None:
    """Remove the tables and everything in them."""
    for table in ("audit", "tokens", "logins", "accounts", "outbox", "warnings", "changes", "feedback", "views"):
        op.drop_table(table)
    op.drop_table("parts")


def _parts() -> None:
    op.create_table(
        "parts",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(400), nullable=False, unique=True),
        sa.Column("taken", _TIME, nullable=False, index=True),
        sa.Column("recorded", _TIME, nullable=False),
        sa.Column("source", _NAME, nullable=False, index=True),
        sa.Column("task", _NAME, index=True),
        sa.Column("verdict", sa.String(20), nullable=False, index=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("score", sa.Float),
        sa.Column("threshold", sa.Float),
        sa.Column("p_value", sa.Float),
        sa.Column("total_ms", sa.Float),
        sa.Column("answer", sa.String(20), index=True),
        sa.Column("missing", sa.JSON, nullable=False),
    )
    op.create_index("parts_task_taken", "parts", ["task", "taken"])
    op.create_table(
        "views",
        sa.Column("id", sa.Integer, primary_key=True),
        _part_id(),
        sa.Column("key", sa.String(400), nullable=False, unique=True),
        sa.Column("source", _NAME, nullable=False),
        sa.Column("view", _NAME, nullable=False),
        sa.Column("verdict", sa.String(20), nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("inspection", sa.JSON),
        sa.Column("ms", sa.JSON, nullable=False),
        sa.Column("picture", sa.String(200), nullable=False),
        sa.Column("map", sa.String(200), nullable=False),
        sa.Column("bytes", sa.Integer, nullable=False),
    )
    has_files = sa.text("bytes > 0")
    op.create_index("views_kept", "views", ["id", "bytes"], sqlite_where=has_files, postgresql_where=has_files)
    op.create_table(
        "feedback",
        sa.Column("id", sa.Integer, primary_key=True),
        _part_id(),
        sa.Column("said", _TIME, nullable=False),
        sa.Column("by", _NAME, nullable=False),
        sa.Column("answer", sa.String(20), nullable=False),
        sa.Column("product", _NAME),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("state", sa.String(20), nullable=False, index=True),
        sa.Column("decided", _TIME),
        sa.Column("decided_by", _NAME),
        sa.Column("outcome", sa.Text, nullable=False),
    )


def _part_id() -> sa.Column[int]:
    part = sa.ForeignKey("parts.id", ondelete="CASCADE")
    return sa.Column("part_id", sa.Integer, part, nullable=False, index=True)


def _events() -> None:
    op.create_table(
        "changes",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("made", _TIME, nullable=False, index=True),
        sa.Column("by", _NAME, nullable=False),
        sa.Column("task", _NAME, nullable=False, index=True),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
    )
    op.create_table(
        "warnings",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("raised", _TIME, nullable=False, index=True),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("task", _NAME, index=True),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.Column("parts", sa.JSON, nullable=False),
        sa.Column("closed", _TIME),
        sa.Column("closed_by", _NAME),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("sink", _NAME, nullable=False, index=True),
        sa.Column("kind", sa.String(20), nullable=False),
        sa.Column("key", sa.String(440), nullable=False, unique=True),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("queued", _TIME, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_try", _TIME, nullable=False, index=True),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("delivered", _TIME, index=True),
        sa.Column("refused", _TIME),
    )
    op.create_index("outbox_waiting", "outbox", ["sink", "delivered", "refused", "id"])


def _people() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", _NAME, nullable=False, unique=True),
        sa.Column("password", sa.String(400), nullable=False),
        sa.Column("role", sa.String(20), nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("language", sa.String(8), nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("last_login", _TIME),
    )
    account = sa.ForeignKey("accounts.id", ondelete="CASCADE")
    op.create_table(
        "logins",
        sa.Column("token", sa.String(64), primary_key=True),
        sa.Column("account_id", sa.Integer, account, nullable=False, index=True),
        sa.Column("csrf", sa.String(64), nullable=False),
        sa.Column("begun", _TIME, nullable=False),
        sa.Column("seen", _TIME, nullable=False),
        sa.Column("ends", _TIME, nullable=False, index=True),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", _NAME, nullable=False, unique=True),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("created", _TIME, nullable=False),
        sa.Column("created_by", _NAME, nullable=False),
        sa.Column("ends", _TIME),
        sa.Column("last_used", _TIME),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("at", _TIME, nullable=False, index=True),
        sa.Column("by", _NAME, nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("action", sa.String(60), nullable=False, index=True),
        sa.Column("detail", sa.Text, nullable=False),
    )
