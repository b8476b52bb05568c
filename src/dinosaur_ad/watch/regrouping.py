"""Known products that have become one, or one that has become two: noticed, proposed, and merged if a person says so.

Two tasks look the same if their pictures are linked like those of one new product (:mod:`dinosaur_ad.core.grouping`).
A merged task is learned from the pictures of both that are still there; the two are then forgotten, and each step can
be undone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._text import printable
from dinosaur_ad.bank.gallery import read_gallery
from dinosaur_ad.bank.image_features import Progress
from dinosaur_ad.bank.verdict import ANOMALOUS, UNKNOWN
from dinosaur_ad.core.grouping import groups, reach
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import read_prepared
from dinosaur_ad.images.loading import digest
from dinosaur_ad.inspection import Inspection, Learned
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord
from dinosaur_ad.watch.adopting import Adopter
from dinosaur_ad.watch.tray import ADOPTED, DISMISSED, LEARNING, OPEN, StoredProposal, Tray
from dinosaur_ad.watch.watch_event import MERGE_PROPOSED, MERGED, SPLIT_PROPOSED, WatchEvent

Floats = NDArray[np.float32]

MERGE, SPLIT = "merge", "split"
RECENT = 60
"""Descriptors of pictures that passed that are kept for each task."""
EVERY = 4
"""Every so many pictures that pass, one is described: a second run of the encoder."""
COMPARED_EVERY = 5
"""A task is compared with the others after so many more descriptors."""
FEWEST = 10
"""Pictures that a task, or a part of one, must have to be compared."""
ENOUGH_PICTURES = 20
"""Pictures of a task that must be left to merge it; half of them if it learned fewer than twice as many."""
LINKED = 0.5
"""Share of the pictures of each of two tasks that must be linked to one of the other."""


class Merger(Adopter, Protocol):
    """What merging needs of a detector."""

    preset: Preset

    def inspect(self, images: list[NDArray[np.uint8]], *, task: str | None = None) -> list[Inspection]:
        """Inspect images."""

    def add_defects(self, name: str, images: list[NDArray[np.uint8]], *, force: bool = False) -> Any:
        """Keep confirmed defects of a task."""

    def undo(self, name: str) -> str:
        """Take back the last change of a task."""


# --- noticing ---


def note_passed(tray: Tray, task: str, origin: str, describe: Any) -> None:
    """A picture of a task passed; some are described and kept for the comparison. Inside a change of the tray."""
    number = tray.count_passed(task)
    if number % EVERY:
        return
    tray.keep_recent(task, origin, describe(), RECENT)
    if number % (EVERY * COMPARED_EVERY) == 0:
        tray.mark_changed(task)


def regrouped(tray: Tray, names: Sequence[str], control_KC: Floats) -> Iterator[WatchEvent]:
    """Compare the tasks that changed with all others; a pair or a task is proposed once."""
    for task in tray.changed_tasks():
        with tray.change():
            found = []
            if task in names:
                found = [*_split(tray, task, control_KC), *_merges(tray, task, names, control_KC)]
            tray.mark_changed(task, False)
        yield from found


def _known_proposals(tray: Tray, kind: str) -> list[list[str]]:
    stored = tray.proposals(OPEN, LEARNING, ADOPTED, DISMISSED)
    return [sorted(each.details["tasks"]) for each in stored if each.details.get("kind") == kind]


def _descriptors(tray: Tray, task: str) -> Floats:
    """How the pictures of a task look now, (N, C'); of one that was just adopted, those it was learned from."""
    found = [each.descriptor_C for each in tray.recent(task)]
    if len(found) < FEWEST:
        for proposal in tray.proposals(ADOPTED):
            if proposal.task == task:
                found += [each.descriptor_C for each in tray.pictures_of(proposal.id) if not each.suspect]
    return np.stack(found) if found else np.empty((0, 0), np.float32)


def linked_shares(first_NC: Floats, second_MC: Floats, control_KC: Floats) -> tuple[float, float]:
    """Which share of the pictures of each of two tasks is linked to one of the other.

    >>> linked_shares(np.float32([[0, 0], [0, 1]]), np.float32([[0, 5]]), np.float32([[0, 20]]))
    (1.0, 1.0)
    >>> linked_shares(np.float32([[0, 0], [0, 1]]), np.float32([[0, 15]]), np.float32([[0, 20]]))
    (0.0, 0.0)
    """
    apart_NM = np.linalg.norm(first_NC[:, None, :] - second_MC[None, :, :], axis=2)
    reach_N, reach_M = reach(first_NC, control_KC), reach(second_MC, control_KC)
    linked_NM = apart_NM <= np.minimum(reach_N[:, None], reach_M[None, :])
    return float(linked_NM.any(axis=1).mean()), float(linked_NM.any(axis=0).mean())


def _merges(tray: Tray, task: str, names: Sequence[str], control_KC: Floats) -> Iterator[WatchEvent]:
    own_NC, proposed = _descriptors(tray, task), _known_proposals(tray, MERGE)
    if len(own_NC) < FEWEST:
        return
    for other in names:
        other_MC = _descriptors(tray, other) if other != task else own_NC[:0]
        if len(other_MC) < FEWEST or sorted((task, other)) in proposed:
            continue
        shares = linked_shares(own_NC, other_MC, control_KC)
        if min(shares) < LINKED:
            continue
        both = sorted((task, other))
        reason = (
            f"'{both[0]}' and '{both[1]}' look like one product now: {100 * shares[0]:.0f} % of the last pictures of "
            f"'{task}' are linked to one of '{other}', and {100 * shares[1]:.0f} % the other way round"
        )
        number = tray.propose([], [], {"kind": MERGE, "tasks": both, "reason": reason})
        event = WatchEvent(MERGE_PROPOSED, reason, proposal=number, tasks=tuple(both))
        tray.record(event.to_json())
        yield event


def _split(tray: Tray, task: str, control_KC: Floats) -> Iterator[WatchEvent]:
    pictures = tray.recent(task)
    if len(pictures) < 2 * FEWEST or [task] in _known_proposals(tray, SPLIT):
        return
    found = groups(np.stack([each.descriptor_C for each in pictures]), control_KC)
    large = sorted((group for group in found if len(group) >= FEWEST), key=len, reverse=True)[:2]
    if len(large) < 2:
        return
    parts = tuple(tuple(pictures[n].origin for n in group) for group in large)
    reason = (
        f"the last pictures of '{task}' that passed show two things: {len(parts[0])} like "
        f"{printable(Path(parts[0][0]).name, 80)} and {len(parts[1])} like {printable(Path(parts[1][0]).name, 80)}"
    )
    details = {"kind": SPLIT, "tasks": [task], "reason": reason, "groups": [list(each) for each in parts]}
    number = tray.propose([], [], details)
    event = WatchEvent(SPLIT_PROPOSED, reason, task=task, proposal=number, tasks=(task,), groups=parts)
    tray.record(event.to_json())
    yield event


def proposed_event(proposal: StoredProposal) -> WatchEvent:
    """A proposal to merge or to split, as an event."""
    details = proposal.details
    kind = MERGE_PROPOSED if details["kind"] == MERGE else SPLIT_PROPOSED
    return WatchEvent(
        kind,
        details["reason"],
        task=details["tasks"][0] if kind == SPLIT_PROPOSED else "",
        proposal=proposal.id,
        tasks=tuple(details["tasks"]),
        groups=tuple(tuple(each) for each in details.get("groups", ())),
    )


# --- merging ---


class Pictures(NamedTuple):
    """The training pictures of a task that are still there and unchanged, and how many it learned."""

    files: dict[str, Path]  # by digest
    learned: int


def training_pictures(record: TaskRecord, size: int) -> Pictures:
    """The files that a task was learned from, as far as they show now what they showed then."""
    manifest, found = record.manifest, {}
    for name, known in zip(manifest["images"], manifest["digests"], strict=True):
        try:
            if digest(read_prepared(Path(name), size)) == known:
                found[known] = Path(name)
        except (InputError, OSError, ValueError):
            continue
    return Pictures(found, len(manifest["images"]))


def begin_merge(detector: Merger, tray: Tray, tasks: Sequence[str], name: str) -> StoredProposal:
    """Decide that two tasks become one, after checking that they can; :func:`finish_merge` does it.

    :raises InputError: the tasks are not there, the name is another task's, or pictures or settings are in the way.
    """
    tasks = tuple(dict.fromkeys(tasks))
    if len(tasks) != 2:
        raise InputError("Two different tasks are merged at a time.")
    records = [detector.store.record(task) for task in tasks]
    if name not in tasks and name in detector.store:
        raise InputError(f"There is a task '{name}' already; choose another name, or that of one of the two.")
    for record in records:
        _refuse_unmergeable(detector, record)
    waiting = [each for each in tray.proposals(OPEN) if _merges_these(each, tasks)]
    details = {"kind": MERGE, "tasks": sorted(tasks), "reason": "a person asked for it"}
    before = {"before": {record.name: record.id for record in records}}
    with tray.change():
        number = waiting[0].id if waiting else tray.propose([], [], details)
        tray.amend(number, (waiting[0].details if waiting else details) | before)
        tray.decide(number, LEARNING, name)
    return next(each for each in tray.proposals(LEARNING) if each.id == number)


def _merges_these(proposal: StoredProposal, tasks: Sequence[str]) -> bool:
    return proposal.details.get("kind") == MERGE and sorted(proposal.details["tasks"]) == sorted(tasks)


def _refuse_unmergeable(detector: Merger, record: TaskRecord) -> None:
    """Refuse a task of which a merged one could not keep all."""
    if record.manifest.get("settings") or record.manifest.get("tiles"):
        raise InputError(
            f"'{record.name}' has settings of its own (zones, tiles, a sensitivity), which cannot be merged; learn the "
            "pictures of both under one name instead, and set it anew."
        )
    pictures = training_pictures(record, detector.preset.size)
    if len(pictures.files) < min(ENOUGH_PICTURES, pictures.learned / 2):
        raise InputError(
            f"Only {len(pictures.files)} of the {pictures.learned} pictures that '{record.name}' learned are still "
            f"where they were and unchanged; half of them or {ENOUGH_PICTURES} are needed. Learn both anew under one "
            "name instead."
        )


def finish_merge(
    detector: Merger, tray: Tray, proposal: StoredProposal, progress: Progress | None = None
) -> WatchEvent:
    """Learn the pictures of both tasks as one and forget the two; also after it was killed anywhere in between.

    :raises InputError: a confirmed defect of one of them would pass; nothing has changed then.
    """
    tasks, name, details = proposal.details["tasks"], proposal.task, proposal.details
    learned: Learned | None = None
    if not details.get("learned"):
        numbers, learned = _learn_union(detector, tray, proposal, progress)
        details = details | numbers | {"after": detector.store.record(name).id}
        with tray.change():
            tray.amend(proposal.id, details)
    for task in tasks:
        if task != name and task in detector.store:
            detector.forget(task)
    gone = [task for task in tasks if task != name]
    reason = (
        f"'{tasks[0]}' and '{tasks[1]}' became '{name}', learned from {details['pictures']} of their "
        f"{details['of']} pictures; undo of '{name}' and of {' and '.join(repr(each) for each in gone)} takes it back"
    )
    event = WatchEvent(MERGED, reason, task=name, proposal=proposal.id, tasks=tuple(tasks), learned=learned)
    with tray.change():
        tray.decide(proposal.id, ADOPTED, name)
        tray.mark_changed(name)
        tray.record(event.to_json())
    return event


def _learn_union(
    detector: Merger, tray: Tray, proposal: StoredProposal, progress: Progress | None
) -> tuple[dict[str, Any], Learned | None]:
    """Learn the pictures of both, with their confirmed defects; the numbers to keep of it."""
    tasks, name, size = proposal.details["tasks"], proposal.task, detector.preset.size
    records = [detector.store.record(task) for task in tasks]
    found = [training_pictures(record, size) for record in records]
    files = {known: path for each in found for known, path in each.files.items()}
    defects = [pixels for record in records for pixels in read_gallery(detector.store, record, size).pixels()]
    before = detector.store.record(name) if name in detector.store else None
    learned: Learned | None = None
    if not before or not set(files) <= set(
        before.manifest["digests"]
    ):  # else it was killed after this had been learned
        # The guard of learn refuses pictures of another task, which is what these are.
        learned = detector.learn(name, list(files.values()), replace=True, force=True, progress=progress)
        missed = _passing(detector, name, defects)
        if missed:
            _take_back(detector, name, before)
            with tray.change():
                tray.decide(proposal.id, OPEN)
            raise InputError(
                f"Nothing was merged: {missed} of {len(defects)} confirmed defects of '{tasks[0]}' and '{tasks[1]}' "
                "would pass then."
            )
    if defects:
        detector.add_defects(name, defects, force=True)
    return {"learned": True, "pictures": len(files), "of": sum(each.learned for each in found)}, learned


def _take_back(detector: Merger, name: str, before: TaskRecord | None) -> None:
    """Undo learning, which may have written a version with moved copies besides."""
    for _ in range(2):
        if name in detector.store and (before is None or detector.store.record(name).id != before.id):
            detector.undo(name)


def _passing(detector: Merger, name: str, defects: list[NDArray[np.uint8]]) -> int:
    found = detector.inspect(defects, task=name) if defects else []
    return sum(each.verdict not in (ANOMALOUS, UNKNOWN) for each in found)


def merge_tasks(detector: Merger, place: Path, tasks: Sequence[str], name: str) -> WatchEvent:
    """Make one task of two, learned from the pictures of both; ``place`` is the folder of the store.

    :raises InputError: they cannot be merged, and why; nothing has changed then.
    """
    tray = Tray(place)
    try:
        return finish_merge(detector, tray, begin_merge(detector, tray, tasks, name))
    finally:
        tray.close()
