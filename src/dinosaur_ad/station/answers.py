"""What follows from an answer about a part: "fine" waits in the tray, "defect" goes to the gallery at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.feedback_tray import TrayGroup, grouped_feedback, task_of
from dinosaur_ad.station.history.database import HistoryDownError
from dinosaur_ad.station.jobs import Job, Outcome

if TYPE_CHECKING:
    from dinosaur_ad.station.history.history import History
    from dinosaur_ad.station.station_teaching import Teaching
    from dinosaur_ad.station.tables import FeedbackRow

log = logging.getLogger(__name__)

POLICY = "policy: auto"
"""Who teaches where nobody has to approve."""
RESUME_SECONDS = 5.0
"""Between two questions to a history that is away at the start."""


class Answers:
    """Takes answers, and has :class:`~dinosaur_ad.station.station_teaching.Teaching` do what follows from them."""

    def __init__(self, teaching: Teaching, history: History, bus: Bus) -> None:
        self._teaching, self._history, self._bus = teaching, history, bus
        self._lock = threading.Lock()
        self._being_taught: set[int] = set()
        self._ended = threading.Event()
        self._resuming: threading.Thread | None = None

    def start(self) -> None:
        """Do what a stop left undone; where the history is away that waits for it, and this does not."""
        self._ended.clear()
        try:
            self._resume()
        except HistoryDownError:
            self._resuming = threading.Thread(target=self._resume_later, name="station-answers", daemon=True)
            self._resuming.start()

    def stop(self) -> None:
        """Wait no longer for a history that is away."""
        self._ended.set()
        if self._resuming is not None:
            self._resuming.join()

    def _resume_later(self) -> None:
        while not self._ended.wait(RESUME_SECONDS):
            try:
                self._resume()
                return
            except HistoryDownError:
                continue
            except Exception:
                log.exception("Answers of before the start could not be looked at.")
                return

    def _resume(self) -> None:
        """Keep the defects that were not kept yet."""
        for row in reversed(self._history.feedback("waiting")):
            if row.answer == "defect":
                self._keep_defect(row)

    def say(self, part_id: int, by: str, answer: str, product: str | None, note: str) -> int:
        """Note an answer; its number. One before it that was taken as a defect is taken out of the gallery again."""
        number = self._history.save_feedback(part_id, by, answer, product, note)
        row = self._history.one_feedback(number)
        if row is None:  # removed in the same moment
            return number
        self._tell(number, row.state, row.outcome)
        for before in row.part.feedback:
            if before.id != number and before.state == "kept" and answer != "defect":
                self.withdraw(before.id, by)
        if answer == "defect":
            self._keep_defect(row)
        elif answer == "fine" and self._teaching.config.policy == "auto":
            self._teach_enough(task_of(row))
        return number

    def withdraw(self, feedback: int, by: str) -> None:
        """Take back an answer; a defect leaves the gallery.

        :raises InputError: the part was taught already.
        """
        row = self._history.one_feedback(feedback)
        if row is None:
            raise InputError(f"The history has no feedback {feedback}.")
        if row.state == "taught":
            raise InputError(
                "The part was taught as normal already, so that the answer cannot be withdrawn; undo the change of "
                f"'{task_of(row)}' instead."
            )
        if row.state == "kept":
            groups, _ = grouped_feedback(self._history, [row])
            for group in groups:
                self._teaching.queue.add("withdraw", group.task, by, partial(self._take_out, group=group))
        self._decide(feedback, "withdrawn", by, "Withdrawn.")

    def refuse(self, feedback: Sequence[int], by: str, reason: str) -> None:
        """Leave answers of the tray untaught."""
        for number in feedback:
            row = self._history.one_feedback(number)
            if row is None or row.state != "waiting":
                raise InputError(f"The feedback {number} does not wait in the tray; it may have been decided already.")
            self._decide(number, "refused", by, reason or "Not taught.")

    # --- defects ---

    def _keep_defect(self, row: FeedbackRow) -> None:
        groups, left = grouped_feedback(self._history, [row])
        for number, reason in left.items():
            self._decide(number, "refused", row.by, reason)
        for group in groups:
            self._teaching.queue.add("defect", group.task, row.by, partial(self._keep, group=group))

    def _keep(self, job: Job, group: TrayGroup) -> Outcome:
        """Keep the pictures of a defect in the gallery; a product that calls them normal does not know better."""
        detector, number = self._teaching.detector, next(iter(group.pictures))
        row = self._history.one_feedback(number)
        if row is None or row.state != "waiting":
            return Outcome("The answer was withdrawn in the meantime; nothing was kept.")
        sentence = f"Kept in the gallery of '{group.task}': it is asked again after every change."
        try:
            try:
                change = detector.add_defects(group.task, group.paths)
            except InputError:
                change = detector.add_defects(group.task, group.paths, force=True)
                sentence = (
                    f"Kept in the gallery of '{group.task}' because a person confirmed it, although '{group.task}' "
                    "calls it normal: a more sensitive setting may find it."
                )
        except DinosaurError as error:
            self._decide(number, "refused", job.by, str(error))
            raise
        detail = {"feedback": [number], "parts": group.parts, "defects": len(change.defects)}
        if change.added:
            self._teaching.note(job.by, group.task, "defect", sentence, detail)
        self._decide(number, "kept", job.by, sentence)
        return Outcome(sentence, {"defects": len(change.defects), "dropped": list(change.dropped)})

    def _take_out(self, job: Job, group: TrayGroup) -> Outcome:
        change = self._teaching.detector.remove_defects(group.task, group.paths)
        sentence = f"Taken out of the gallery of '{group.task}': the answer was withdrawn."
        detail = {"feedback": list(group.pictures), "defects": len(change.defects)}
        self._teaching.note(job.by, group.task, "withdraw", sentence, detail)
        return Outcome(sentence, {"defects": len(change.defects)})

    # --- the policy "auto" ---

    def _teach_enough(self, task: str | None) -> None:
        """Teach the parts of a product that people called fine, once so many wait as the settings say."""
        with self._lock:
            waiting = [row for row in self._history.feedback("waiting") if row.answer == "fine"]
            self._being_taught &= {row.id for row in waiting}
            due = [row.id for row in waiting if task_of(row) == task and row.id not in self._being_taught]
            if task is None or len(due) < self._teaching.config.together:
                return
            self._being_taught.update(due)
        self._teaching.update_from_tray(sorted(due), POLICY)

    def _decide(self, number: int, state: str, by: str, outcome: str) -> None:
        self._history.decide_feedback(number, state, by, outcome)
        self._tell(number, state, outcome)

    def _tell(self, number: int, state: str, outcome: str) -> None:
        self._bus.publish("tray", {"id": number, "state": state, "outcome": outcome})
