"""What a person decides about proposals: to learn or merge, to leave out, to be asked again, to take a merge back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dinosaur_ad._text import printable
from dinosaur_ad.bank.image_features import Progress
from dinosaur_ad.core import outliers
from dinosaur_ad.errors import InputError
from dinosaur_ad.inspection import Suspect
from dinosaur_ad.watch.adopting import adopt
from dinosaur_ad.watch.regrouping import MERGE, SPLIT, begin_merge, finish_merge, proposed_event
from dinosaur_ad.watch.tray import ADOPTED, DISMISSED, LEARNING, OPEN, RELEASED, StoredProposal, Tray
from dinosaur_ad.watch.watch_event import LEFT_OUT, PROPOSED, REFUSED, WatchEvent
from dinosaur_ad.watch.watcher import Inspector


@contextmanager
def opened_tray(place: Path) -> Iterator[Tray]:
    """The tray of the store in the folder ``place``, for as long as the block runs."""
    tray = Tray(place)
    try:
        yield tray
    finally:
        tray.close()


def open_proposals(place: Path) -> list[WatchEvent]:
    """The open proposals, with the pictures and suspects that they have now."""
    found = []
    with opened_tray(place) as tray:
        for each in tray.proposals(OPEN, LEARNING):
            if "kind" in each.details:
                found.append(proposed_event(each))
                continue
            pictures = tuple(kept.origin for kept in tray.pictures_of(each.id) if not kept.suspect)
            suspects = tuple(Suspect(path, reason, score) for path, reason, score in each.details["suspects"])
            rate = each.details["promised_rate"]
            reason = f"{len(pictures) + len(suspects)} unknown pictures show the same"
            found.append(
                WatchEvent(PROPOSED, reason, proposal=each.id, pictures=pictures, suspects=suspects, promised_rate=rate)
            )
    return found


def adopt_proposal(detector: Inspector, place: Path, number: int, name: str) -> WatchEvent:
    """Learn an open proposal as ``name``, or merge the tasks that it names.

    :raises InputError: there is no such proposal, the name is taken, or its pictures cannot be learned.
    """
    begin_adoption(detector, place, number, name)
    return finish_adoption(detector, place, number)


def begin_adoption(detector: Inspector, place: Path, number: int, name: str) -> StoredProposal:
    """Decide that an open proposal becomes the task ``name``, after checking that it can; nothing is learned yet.

    :raises InputError: there is no such proposal, the name is taken, or its pictures are gone.
    """
    with opened_tray(place) as tray:
        proposal = tray.proposal(number)
        kind = proposal.details.get("kind")
        if kind == SPLIT:
            raise InputError(
                f"Proposal {number} is about splitting '{printable(proposal.details['tasks'][0])}', which is not done "
                "here: learn its two groups of pictures under two names and forget the task, or dismiss the proposal."
            )
        if kind:
            return begin_merge(detector, tray, proposal.details["tasks"], name)
        if name in detector.store:
            raise InputError(f"There is a task '{name}' already; choose another name.")
        _refuse_without_pictures(tray, proposal)
        with tray.change():
            tray.decide(number, LEARNING, name)
    return proposal._replace(status=LEARNING, task=name)


def _refuse_without_pictures(tray: Tray, proposal: StoredProposal) -> None:
    """Refuse a proposal of which too few pictures are left to learn from."""
    pictures = [each for each in tray.pictures_of(proposal.id) if not each.suspect]
    there = sum(each.file.is_file() for each in pictures)
    if there < len(pictures):
        raise InputError(
            f"Nothing was learned: only {there} of the {len(pictures)} pictures of proposal {proposal.id} are still "
            "there; dismiss it, and let such parts come again."
        )
    if there < outliers.FEWEST_IMAGES:
        raise InputError(
            f"Nothing was learned: proposal {proposal.id} has {there} pictures without its suspects, and "
            f"{outliers.FEWEST_IMAGES} are needed; dismiss it, or wait for more such parts."
        )


def finish_adoption(detector: Inspector, place: Path, number: int, progress: Progress | None = None) -> WatchEvent:
    """Learn or merge what :func:`begin_adoption` decided, also after it was killed half way. If that fails, the
    proposal is open again, or dismissed if its pictures do not belong together.

    :raises InputError: it cannot be learned, and why.
    """
    with opened_tray(place) as tray:
        proposal = tray.proposal(number)
        try:
            if "kind" in proposal.details:
                event = finish_merge(detector, tray, proposal, progress)
            else:
                _refuse_other_task(detector, tray, proposal)
                event = adopt(detector, tray, proposal, progress)
        except BaseException:
            left = tray.find(number)
            if left is not None and left.status == LEARNING and not left.details.get("learned"):
                with tray.change():
                    tray.decide(number, OPEN)
            raise
    if event.kind == REFUSED:
        raise InputError(f"Nothing was learned: {event.reason}.")
    return event


def _refuse_other_task(detector: Inspector, tray: Tray, proposal: StoredProposal) -> None:
    """Refuse a name that somebody gave to other pictures meanwhile; the proposal's own were learned before a kill."""
    if proposal.task not in detector.store:
        return
    learned = set(detector.store.record(proposal.task).manifest["images"])
    if learned.isdisjoint(str(each.file.absolute()) for each in tray.pictures_of(proposal.id)):
        raise InputError(f"There is a task '{proposal.task}' already; choose another name.")


def dismiss_proposal(place: Path, number: int) -> None:
    """Leave out an open proposal, and keep its pictures no longer."""
    with opened_tray(place) as tray:
        proposal = tray.proposal(number)
        with tray.change():
            tray.decide(proposal.id, DISMISSED)
            reason = f"proposal {proposal.id} was dismissed by a person"
            tray.record(WatchEvent(LEFT_OUT, reason, proposal=proposal.id).to_json())
        tray.tidy()


def ask_again(place: Path, number: int) -> None:
    """Take back that a proposal was dismissed: two products are proposed for merging again, and pictures like those of
    a dismissed product are gathered anew.

    :raises InputError: it is not dismissed.
    """
    with opened_tray(place) as tray:
        proposal = tray.find(number)
        if proposal is None or proposal.status != DISMISSED:
            raise InputError(f"Proposal {number} is not dismissed, so that there is nothing to ask again.")
        with tray.change():
            tray.decide(number, OPEN if "kind" in proposal.details else RELEASED)


def undo_merge(detector: Inspector, place: Path, number: int) -> StoredProposal:
    """Take back a merge that a proposal led to; which it was.

    :raises InputError: it was none, or something was changed since.
    """
    with opened_tray(place) as tray:
        proposal = tray.find(number)
        if proposal is None:
            raise InputError(f"There is no proposal {number}.")
        _take_merge_back(detector, tray, proposal)
    return proposal


def _take_merge_back(detector: Inspector, tray: Tray, proposal: StoredProposal) -> None:
    """Take back a merge: the merged task goes, or is again what it was, and the two that it was made of are back.

    :raises InputError: something was changed since, and what; nothing has changed then.
    """
    details, name = proposal.details, proposal.task
    if proposal.status != ADOPTED or details.get("kind") != MERGE or not details.get("after"):
        raise InputError(f"Proposal {proposal.id} is no merge that could be taken back.")
    before, gone = details.get("before", {}), [task for task in details["tasks"] if task != name]
    if name not in detector.store or detector.store.record(name).id != details["after"]:
        raise InputError(f"'{name}' was changed since it was merged; take these changes back first, one by one.")
    for task in gone:
        if task in detector.store:
            raise InputError(f"There is a task '{task}' again; forget or rename it first.")
    while name in detector.store and detector.store.record(name).id != before.get(name):
        detector.undo(name)
    for task in gone:
        detector.undo(task)
    with tray.change():
        tray.decide(proposal.id, DISMISSED)
        reason = f"the merge of {' and '.join(repr(each) for each in details['tasks'])} was taken back by a person"
        tray.record(WatchEvent(LEFT_OUT, reason, proposal=proposal.id, tasks=tuple(details["tasks"])).to_json())
