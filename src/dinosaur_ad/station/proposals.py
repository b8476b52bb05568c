"""Products that the station proposes: shown to people, told to the plant, accepted as teaching does, or put aside.

The tray of the store has the proposals, the history a warning of the kind "proposal" for each, with the parts that show
it; :meth:`Proposals.refresh` brings the second in line with the first, whoever decided.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad._text import printable
from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import ProposalsConfig, SinkConfig
from dinosaur_ad.station.gathering import UnknownGathering
from dinosaur_ad.station.jobs import Job, Outcome
from dinosaur_ad.station.proposal_card import ProposalCard, card_of, waiting_sentence
from dinosaur_ad.store import Store, check_task_name
from dinosaur_ad.watch.deciding import (
    ask_again,
    begin_adoption,
    dismiss_proposal,
    finish_adoption,
    opened_tray,
    undo_merge,
)
from dinosaur_ad.watch.tray import ADOPTED, DISMISSED, LEARNING, OPEN, RELEASED, StoredProposal
from dinosaur_ad.watch.watch_event import WatchEvent

if TYPE_CHECKING:
    from dinosaur_ad.station.history.history import History
    from dinosaur_ad.station.station_teaching import Teaching
    from dinosaur_ad.station.tables import WarningRow

log = logging.getLogger(__name__)

KIND = "proposal"
"""Of the warnings about proposals."""
DECIDED_SHOWN = 10
"""Decided proposals that are listed, the newest of them."""
PARTS_SHOWN = 20
STATION = "station"
"""Who decided what nobody at this station did, such as ``dinosaur adopt``."""


class Proposals:
    """The proposals of a station, of any thread. What people decide is refused with one sentence if it is too late."""

    def __init__(
        self,
        teaching: Teaching,
        history: History,
        bus: Bus,
        config: ProposalsConfig | None = None,
        sinks: Sequence[SinkConfig] = (),
    ) -> None:
        self._teaching, self._history, self._bus, self._sinks = teaching, history, bus, tuple(sinks)
        self.config = config or ProposalsConfig()
        self.gathering = UnknownGathering(history, bus, self.config, teaching.another_detector, self.refresh)
        self._lock = threading.RLock()
        self._jobs: dict[int, Job] = {}
        self.waiting = 0
        """How many wait for a person; for the navigation, without asking the disk."""

    # --- life ---

    def start(self) -> None:
        """Learn what was accepted before a kill, and begin to gather."""
        if not self._place:
            return
        try:
            with opened_tray(self._place) as tray:
                begun = tray.proposals(LEARNING)
            for each in begun:
                self._queue(each, STATION)
            self.refresh()
        except DinosaurError as error:  # judging goes on without; the gathering tries again
            log.warning("The proposals could not be read: %s", printable(error))
        self.gathering.start()

    def stop(self) -> None:
        """Gather no more; what is being learned is ended by the teaching."""
        self.gathering.stop()

    def state(self) -> dict[str, Any]:
        """How many proposals wait, and how the gathering is."""
        return {"waiting": self.waiting, **self.gathering.state()}

    @property
    def _place(self) -> Path | None:
        """The folder of the store; None in memory, where nothing is gathered."""
        store = self._teaching.detector.store
        return store.path if isinstance(store, Store) else None

    # --- what there is ---

    def all(self) -> list[ProposalCard]:
        """The open proposals, the oldest first, then those that were decided last."""
        self.refresh()
        if not self._place:
            return []
        raised = self._raised()
        with opened_tray(self._place) as tray:
            waiting = tray.proposals(OPEN, LEARNING)
            decided = tray.proposals(ADOPTED, DISMISSED)[::-1][:DECIDED_SHOWN]
            return [
                card_of(each, tray.pictures_of(each.id), raised.get(each.id), self._jobs.get(each.id))
                for each in [*waiting, *decided]
            ]

    def one(self, number: int) -> ProposalCard:
        """A proposal by its number, whatever became of it.

        :raises InputError: there is none.
        """
        for each in self.all():
            if each.id == number:
                return each
        raise InputError(f"There is no proposal {printable(number, 30)}, or it was decided long ago.")

    def picture(self, number: int, picture: int) -> Path | None:
        """The file of a picture of a proposal; None if it is not there any more."""
        if not self._place:
            return None
        with opened_tray(self._place) as tray:
            files = [each.file for each in tray.pictures_of(number) if each.id == picture]
        return files[0] if files and files[0].is_file() else None

    # --- what people decide ---

    def accept(self, number: int, name: str, by: str) -> Job:
        """Learn a proposed product as ``name``, or make one product of two; the job says how far it is.

        :raises InputError: it was decided meanwhile, the name is taken, or its pictures are gone.
        """
        task = check_task_name(name)
        with self._lock:
            self._refuse_decided(number)
            proposal = begin_adoption(self._teaching.another_detector(), self._folder(), number, task)
            job = self._queue(proposal, by)
        self._noted(by, "proposal accepted", f"{number} as {task}")
        return job

    def dismiss(self, number: int, by: str) -> None:
        """Put a proposal aside: parts like its own are not proposed again until somebody asks.

        :raises InputError: it was decided meanwhile.
        """
        with self._lock:
            self._refuse_decided(number)
            dismiss_proposal(self._folder(), number)
        self._noted(by, "proposal put aside", str(number))

    def ask_again(self, number: int, by: str) -> None:
        """Take back that a proposal was put aside.

        :raises InputError: it was not.
        """
        with self._lock:
            ask_again(self._folder(), number)
        self._noted(by, "proposal asked again", str(number))

    def undo(self, number: int, by: str) -> None:
        """Take back a merge: the two products are as they were.

        :raises InputError: it was none, or something was changed since.
        """
        with self._lock:
            proposal = undo_merge(self._teaching.another_detector(), self._folder(), number)
        both, name = proposal.details["tasks"], proposal.task
        sentence = f"Took back that '{both[0]}' and '{both[1]}' became '{name}'."
        for task in dict.fromkeys([name, *both]):
            self._teaching.note(by, task, "undo", sentence, {"action": "merge", "proposal": number})
        self._noted(by, "merge taken back", str(number))

    def _folder(self) -> Path:
        if not self._place:
            raise InputError("A store in memory has no proposals.")
        return self._place

    def _refuse_decided(self, number: int) -> None:
        with opened_tray(self._folder()) as tray:
            proposal = tray.find(number)
        if proposal is None:
            raise InputError(f"There is no proposal {printable(number, 30)}.")
        if proposal.status == OPEN:
            return
        task = printable(proposal.task)
        raise InputError(
            {
                LEARNING: f"Proposal {number} was accepted already and is being learned as '{task}'.",
                ADOPTED: f"Proposal {number} was accepted meanwhile, as '{task}'.",
                DISMISSED: f"Proposal {number} was put aside meanwhile; ask again to have it back.",
                RELEASED: f"Parts of proposal {number} are gathered anew; wait until they are proposed again.",
            }[proposal.status]
        )

    # --- learning ---

    def _queue(self, proposal: StoredProposal, by: str) -> Job:
        merging = "kind" in proposal.details
        work = partial(self._learn, proposal=proposal)
        job = self._teaching.queue.add("merge" if merging else "learn", proposal.task, by, work)
        self._jobs[proposal.id] = job
        return job

    def _learn(self, job: Job, proposal: StoredProposal) -> Outcome:
        teaching, number = self._teaching, proposal.id
        before = teaching.settings_of(job.task)
        teaching.detector.waiting = lambda sentence: teaching.queue.say(job, sentence)
        try:
            event = finish_adoption(teaching.detector, self._folder(), number, teaching.queue.progress(job))
        finally:
            self._noted(job.by)
        return self._told(job, event, before)

    def _told(self, job: Job, event: WatchEvent, before: dict[str, Any] | None) -> Outcome:
        """Note what was learned in the history; the outcome of the job."""
        teaching, name = self._teaching, event.task
        detail = {"proposal": event.proposal, "pictures": len(event.pictures), "tasks_before": list(event.tasks)}
        for task in event.tasks:
            if task != name:
                teaching.note(job.by, task, "merge", f"'{task}' became a part of '{name}'.", detail)
        if event.learned is None:  # learned before a kill
            sentence = f"{event.reason[:1].upper()}{event.reason[1:]}."
            teaching.note(job.by, name, job.kind, sentence, detail)
            return Outcome(sentence, {"proposal": event.proposal})
        what = (
            f"'{event.tasks[0]}' and '{event.tasks[1]}' became '{name}'."
            if event.tasks
            else f"Learned '{name}' with {event.learned.images} pictures of proposal {event.proposal}."
        )
        told = teaching.told_learned(job.kind, event.learned, what, job.by, before, detail)
        return Outcome(told.sentence, told.result | {"proposal": event.proposal})

    # --- telling ---

    def _noted(self, by: str, action: str = "", detail: str = "") -> None:
        """Note who decided what, once it is decided: a database that is away does not change that."""
        try:
            if action:
                self._history.audit(by, action, detail)
            self.refresh(by)
        except DinosaurError as error:
            log.warning("What was decided about a proposal could not be noted: %s", printable(error))

    def refresh(self, by: str = STATION) -> None:
        """Warn of proposals that are new, and close the warnings of those that are decided."""
        if not self._place:
            return
        with self._lock:
            with opened_tray(self._place) as tray:
                waiting = tray.proposals(OPEN, LEARNING)
                new = {(each.id, each.details.get("since")) for each in waiting}
                known = set()
                for row in self._warnings():
                    told = row.detail.get("proposal"), row.detail.get("since")
                    known.add(told)
                    if row.closed is None and told not in new:
                        self._history.close_warning(row.id, by)
                        self._bus.publish("warning", {"id": row.id, "closed": True, "closed_by": by})
                cards = [
                    card_of(each, tray.pictures_of(each.id), None, None)
                    for each in waiting
                    if (each.id, each.details.get("since")) not in known
                ]
            self.waiting = sum(each.status == OPEN for each in waiting)
            for card in cards:
                self._warn(card)

    def _warn(self, card: ProposalCard) -> None:
        detail = {
            "proposal": card.id,
            "about": card.kind,
            "since": card.since,
            "products": list(card.products),
            "promised_rate": card.promised_rate,
            "tasks": [],  # none of them drifted
        }
        parts = card.parts[:PARTS_SHOWN]
        sentence = waiting_sentence(card)
        number = self._history.add_warning(KIND, None, sentence, detail, parts, self._sinks)
        body = {"id": number, "kind": KIND, "task": None, "sentence": sentence, "parts": parts, "detail": detail}
        self._bus.publish("warning", body)

    def _warnings(self) -> list[WarningRow]:
        return self._history.warnings(open_only=False, limit=1000, kind=KIND)

    def _raised(self) -> dict[int, WarningRow]:
        """The newest warning of each proposal."""
        return {row.detail["proposal"]: row for row in reversed(self._warnings())}
