"""What people say of parts: an answer, and what became of it."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session, joinedload

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.history.moments import now_stamp
from dinosaur_ad.station.history.searching import ANSWERS
from dinosaur_ad.station.history.storable import NAME_LENGTH, is_id, storable_key, storable_text
from dinosaur_ad.station.tables import FeedbackRow, PartRow

STATES = ("waiting", "taught", "kept", "refused", "noted", "withdrawn")
TEACHING = ("fine", "defect")
"""Answers that something follows from: they wait in the tray."""


def add_feedback(session: Session, part_id: int, by: str, answer: str, product: str | None, note: str) -> FeedbackRow:
    """Add an answer, which is the part's from now on; one before it that nothing was done about yet is withdrawn.

    :raises InputError: there is no such part or answer.
    """
    if answer not in ANSWERS:
        raise InputError(f"An answer is one of {', '.join(ANSWERS)}, got '{printable(answer, 60)}'.")
    part = session.get(PartRow, part_id) if is_id(part_id) else None
    if part is None:
        raise InputError(f"The history has no part {part_id}.")
    for before in part.feedback:
        if before.state == "waiting":
            _decide(before, "withdrawn", by, "Answered again.")
    row = FeedbackRow(
        said=now_stamp(),
        by=storable_key(by, NAME_LENGTH),
        answer=answer,
        product=None if product is None else storable_key(product, NAME_LENGTH),
        note=storable_text(note),
        state="waiting" if answer in TEACHING else "noted",
    )
    part.feedback.append(row)
    part.answer = answer
    session.flush()
    return row


def set_state(session: Session, feedback_id: int, state: str, by: str, outcome: str) -> None:
    """Say what became of an answer; a part whose answers are all withdrawn has none.

    :raises InputError: there is no such answer or state.
    """
    if state not in STATES:
        raise InputError(f"The state of feedback is one of {', '.join(STATES)}, got '{printable(state, 60)}'.")
    row = session.get(FeedbackRow, feedback_id) if is_id(feedback_id) else None
    if row is None:
        raise InputError(f"The history has no feedback {feedback_id}.")
    _decide(row, state, by, outcome)
    standing = [each.answer for each in row.part.feedback if each.state != "withdrawn"]
    row.part.answer = standing[-1] if standing else None


def feedback_rows(session: Session, state: str | None, limit: int | None) -> list[FeedbackRow]:
    """Answers, the newest first, each with its part and the part's views."""
    statement = select(FeedbackRow).order_by(FeedbackRow.id.desc()).limit(limit)
    if state is not None:
        statement = statement.where(FeedbackRow.state == state)
    part = joinedload(FeedbackRow.part)
    return list(
        session.scalars(statement.options(part.selectinload(PartRow.views), part.selectinload(PartRow.feedback)))
    )


def feedback_row(session: Session, feedback_id: int) -> FeedbackRow | None:
    """One answer with its part."""
    part = joinedload(FeedbackRow.part)
    options = (part.selectinload(PartRow.views), part.selectinload(PartRow.feedback))
    return session.get(FeedbackRow, feedback_id, options=options) if is_id(feedback_id) else None


def _decide(row: FeedbackRow, state: str, by: str, outcome: str) -> None:
    row.state, row.decided, row.decided_by = state, now_stamp(), storable_key(by, NAME_LENGTH)
    row.outcome = storable_text(outcome)
