"""Teaching in a running station: what people answer, learn and set reaches the products, guarded and noted.

Learning has a detector and a thread of its own, so that judging goes on; the judging detector sees a change with the
next picture. Every change is noted in the history with who made it and what it was before.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad._text import printable
from dinosaur_ad.bank.settings import Settings
from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.inspection import Changed, Learned
from dinosaur_ad.station.answers import Answers
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import SinkConfig, TeachingConfig
from dinosaur_ad.station.feedback_tray import grouped_feedback, pictures_of_parts
from dinosaur_ad.station.jobs import Job, JobQueue, Outcome
from dinosaur_ad.station.teaching_words import learned_json, learned_sentence, missed_sentence, set_sentence
from dinosaur_ad.station.tray_teaching import teach_groups
from dinosaur_ad.station.what_if import (
    FollowingThreshold,
    SensitivityPlace,
    following_threshold,
    judged_points,
    what_if,
)
from dinosaur_ad.store import Store

if TYPE_CHECKING:
    from dinosaur_ad.station.history.history import History
    from dinosaur_ad.station.history.searching import ScorePoint

log = logging.getLogger(__name__)

RECALIBRATING = ("learn", "update", "recalibrate")
"""Changes after which a warning that the product changed is settled."""


class Teaching:
    """Changes the products of a station. ``detector`` is the one that judges: its store and encoder are used.

    :meth:`learn`, :meth:`update_from_tray` and :meth:`recalibrate` return a :class:`Job` at once; the others are done
    when they return. ``sinks`` are told of every change.
    """

    def __init__(
        self,
        detector: Dinosaur,
        history: History,
        bus: Bus,
        config: TeachingConfig | None = None,
        sinks: Sequence[SinkConfig] = (),
    ) -> None:
        self._judging, self._history, self._bus, self._sinks = detector, history, bus, tuple(sinks)
        self.config = config or TeachingConfig()
        self.queue = JobQueue(bus)
        self.answers = Answers(self, history, bus)
        self._lock = threading.RLock()
        self._own: Dinosaur | None = None
        self._quick: Dinosaur | None = None

    # --- life ---

    def start(self) -> None:
        """Begin to teach; the store is made if there is none."""
        self._own, self._quick = self.another_detector(), self.another_detector()
        self.queue.start()
        self.answers.start()

    def stop(self) -> None:
        """Finish what is being taught, and end; what waits in the tray stays there."""
        self.answers.stop()
        self.queue.stop()

    def state(self) -> dict[str, Any]:
        """The job that runs, how many wait, and how much waits in the tray."""
        jobs = self.queue.jobs()
        running = next((job.to_json() for job in jobs if job.state == "running"), None)
        return {"running": running, "waiting": sum(job.state == "waiting" for job in jobs), "jobs": len(jobs)}

    def jobs(self) -> list[Job]:
        """What was taught since the start, the newest first."""
        return self.queue.jobs()

    def job(self, number: int) -> Job | None:
        """A job by its number."""
        return self.queue.job(number)

    def another_detector(self) -> Dinosaur:
        """Another detector on the same store and encoder; on a store in memory the same one."""
        store = self._judging.store
        if not isinstance(store, Store):
            return self._judging
        return Dinosaur(store.path, encoder=self._judging.encoder, preset=self._judging.preset)

    @property
    def detector(self) -> Dinosaur:
        """The detector of the thread that teaches."""
        if self._own is None:
            raise InputError("Teaching has not been started yet.")
        return self._own

    # --- jobs ---

    def learn(
        self,
        name: str,
        paths: Sequence[str | Path] = (),
        by: str = "",
        *,
        parts: Sequence[int] = (),
        force: bool = False,
        replace: bool = False,
        position: str = "auto",
    ) -> Job:
        """Teach a new product from files, or from the pictures of recorded parts."""
        files = self._files(paths, parts)

        def work(job: Job, progress: Callable[[int, int | None], None]) -> Learned:
            return self.detector.learn(name, files, force=force, replace=replace, position=position, progress=progress)

        return self._teaching_job("learn", name, by, work, {"pictures": len(files), "parts": list(parts)})

    def recalibrate(
        self,
        task: str,
        parts: Sequence[int] = (),
        by: str = "",
        *,
        force: bool = False,
    ) -> Job:
        """Take the threshold of a product from recorded parts; :meth:`suggested_parts` has recent ones."""
        files = self._files((), parts, task)

        def work(job: Job, progress: Callable[[int, int | None], None]) -> Learned:
            return self.detector.recalibrate(task, files, force=force, progress=progress)

        return self._teaching_job("recalibrate", task, by, work, {"pictures": len(files), "parts": list(parts)})

    def update(self, task: str, paths: Sequence[str | Path], by: str, *, force: bool = False) -> Job:
        """Add normal pictures to a product."""
        files = self._files(paths, ())

        def work(job: Job, progress: Callable[[int, int | None], None]) -> Learned:
            return self.detector.update(task, files, force=force, progress=progress)

        return self._teaching_job("update", task, by, work, {"pictures": len(files)})

    def update_from_tray(self, feedback: Sequence[int], by: str, force: bool = False) -> Job:
        """Teach the parts that people called fine; the guard refuses what would blind a product, unless forced."""
        rows = [row for number in feedback if (row := self._history.one_feedback(number))]
        usable = [row for row in rows if row.answer == "fine" and row.state in ("waiting", "refused")]
        groups, left = grouped_feedback(self._history, usable)
        for number, reason in left.items():
            self._history.decide_feedback(number, "refused", by, reason)
        if not groups:
            raise InputError(
                next(iter(left.values()), "None of these answers waits in the tray; it may have been decided already.")
            )
        tasks = ", ".join(group.task for group in groups)
        return self.queue.add("update", tasks, by, lambda job: teach_groups(self, job, groups, force))

    def _teaching_job(
        self,
        kind: str,
        task: str,
        by: str,
        work: Callable[[Job, Callable[[int, int | None], None]], Learned],
        detail: dict[str, Any],
    ) -> Job:
        def done(job: Job) -> Outcome:
            before = self.settings_of(task)
            self.detector.waiting = lambda sentence: self.queue.say(job, sentence)
            learned = work(job, self.queue.progress(job))
            verb = {"learn": "Learned", "update": "Updated", "recalibrate": "Recalibrated"}[kind]
            what = f"{verb} '{learned.task}' with {learned.images} picture{'s' * (learned.images != 1)}."
            return self.told_learned(kind, learned, what, by, before, detail)

        return self.queue.add(kind, task, by, done)

    def told_learned(
        self, kind: str, learned: Learned, what: str, by: str, before: dict[str, Any] | None, detail: dict[str, Any]
    ) -> Outcome:
        """Note what was taught; the outcome of the job."""
        settings = self.detector.settings(learned.task)
        sentence = learned_sentence(learned, what, settings)
        result = learned_json(learned, settings)
        if learned.images:
            numbers = detail | {"before": before, "after": asdict(settings), "images": learned.images}
            self.note(by, learned.task, kind, sentence, numbers | {"gallery_missed": result["gallery_missed"]})
        return Outcome(sentence, result)

    # --- at once ---

    def set(self, name: str, *, by: str, **wanted: Any) -> Changed:
        """Change zones, sensitivity or the smallest area of a product, as :meth:`Dinosaur.set` takes them."""
        with self._lock:
            changed = self._now().set(name, **wanted)
            grid = Settings.of(self._now().store.record(changed.task)).zones
        kind = "zones" if {"zones", "no_zones"} & set(wanted) else "set" if "smallest_area" in wanted else "sensitivity"
        detail: dict[str, Any] = {"before": asdict(changed.before), "after": asdict(changed.after)}
        detail["gallery_missed"] = list(changed.gallery_missed)
        if isinstance(wanted.get("zones"), list):  # polygons, to go on with where the product is set like this again
            detail |= {"zones": wanted["zones"], "grid": list(grid or ())}
        self.note(by, changed.task, kind, set_sentence(changed), detail)
        return changed

    def undo(self, name: str, *, by: str) -> str:
        """Take back the last change of a product; which it was."""
        return self._stepped(name, by, "undo", "Took back the last {} of '{}'.")

    def redo(self, name: str, *, by: str) -> str:
        """Make the change again that was taken back last; which it was."""
        return self._stepped(name, by, "redo", "Made the {} of '{}' again.")

    def _stepped(self, name: str, by: str, kind: str, words: str) -> str:
        with self._lock:
            before = self.settings_of(name, self._now())
            action = self._now().undo(name) if kind == "undo" else self._now().redo(name)
            missed = self._now()._missed_defects(name) if name in self._now() else ()
            after = self.settings_of(name, self._now())
        sentence = " ".join(filter(None, [words.format(action, name), missed_sentence(name, missed)]))
        detail = {"action": action, "before": before, "after": after, "gallery_missed": list(missed)}
        self.note(by, name, kind, sentence, detail)
        return action

    def forget(self, name: str, *, by: str) -> None:
        """Remove a product; :meth:`undo` brings it back."""
        with self._lock:
            before = self.settings_of(name, self._now())
            self._now().forget(name)
        self.note(by, name, "forget", f"Forgot '{name}'; undo brings it back.", {"before": before})

    def rename(self, name: str, new: str, *, by: str) -> None:
        """Give a product another name."""
        with self._lock:
            self._now().rename(name, new)
        self.note(by, new, "rename", f"'{name}' is now called '{new}'.", {"before": name, "after": new})

    # --- what people answer ---

    def say(self, part_id: int, by: str, answer: str, *, product: str | None = None, note: str = "") -> int:
        """What a person says of a part ("fine", "defect", "not sure", "other product"); the number of the feedback."""
        return self.answers.say(part_id, by, answer, product, note)

    def withdraw(self, feedback: int, by: str) -> None:
        """Take back an answer."""
        self.answers.withdraw(feedback, by)

    def refuse(self, feedback: Sequence[int], by: str, reason: str = "") -> None:
        """Leave answers of the tray untaught."""
        self.answers.refuse(feedback, by, reason)

    # --- what it would do ---

    def what_if(self, task: str) -> list[SensitivityPlace]:
        """What each place of the sensitivity would have done to the parts of the history."""
        return what_if(task, self._history, self._now())

    def following_threshold(self, task: str) -> FollowingThreshold | None:
        """A threshold that follows the parts people called fine; None with few of them."""
        return following_threshold(task, self._history, self._now())

    def suggested_parts(self, task: str, count: int = 60) -> list[ScorePoint]:
        """The latest parts to recalibrate a product with, the newest first: all but those called defects.

        Flagged parts are among them, because without those that are good the threshold would be too low: a person
        takes the bad ones out.
        """
        points = judged_points(task, self._history, 3 * count)[::-1]
        usable = [each for each in points if each.answer in (None, "fine") and each.verdict in ("normal", "anomalous")]
        return usable[:count]

    # --- shared ---

    def note(self, by: str, task: str, action: str, sentence: str, detail: dict[str, Any]) -> None:
        """Note a change in the history and tell it; what it settles is closed."""
        body = {"task": task, "action": action, "by": by, "sentence": sentence}
        try:
            if action in RECALIBRATING:
                self._settle(task, by)
            number = self._history.add_change(by, task, action, sentence, detail)
            self._history.queue_message("change", str(number), body | {"id": number}, self._sinks)
            body["id"] = str(number)
        except Exception as error:  # the store has changed already: say so, whatever the database does
            log.error("The change '%s' of '%s' could not be noted: %s", action, printable(task), printable(error))
        self._bus.publish("change", body)

    def _settle(self, task: str, by: str) -> None:
        """Close the warnings about a product, those about several once all of them were taught anew."""
        for warning in self._history.warnings():
            others = [each for each in warning.detail.get("tasks", []) if each != task]
            taught = {row.task for row in self._history.changes() if row.made > warning.raised}
            if warning.task == task or (
                warning.task is None and task in warning.detail.get("tasks", []) and set(others) <= taught
            ):
                self._history.close_warning(warning.id, by)

    def decide(self, feedback: Sequence[int], state: str, by: str, outcome: str) -> None:
        """Note what became of answers, and tell it."""
        for number in feedback:
            self._history.decide_feedback(number, state, by, outcome)
            self._bus.publish("tray", {"id": number, "state": state, "outcome": outcome})

    def settings_of(self, task: str, detector: Dinosaur | None = None) -> dict[str, Any] | None:
        """How a product is set, as JSON; None where there is none."""
        try:
            return asdict((detector or self.detector).settings(task))
        except DinosaurError:
            return None

    def _now(self) -> Dinosaur:
        if self._quick is None:
            raise InputError("Teaching has not been started yet.")
        return self._quick

    def _files(self, paths: Sequence[str | Path], parts: Sequence[int], task: str | None = None) -> list[str]:
        files = [str(path) for path in paths]
        files += [str(path) for path in pictures_of_parts(self._history, parts, task)] if parts else []
        if not files:
            raise InputError("There are no pictures to teach from; give files or parts.")
        return files
