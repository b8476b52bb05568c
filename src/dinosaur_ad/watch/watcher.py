"""Goes through a stream picture by picture: inspects known products, gathers unknown pictures, proposes products."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import filelock
import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank_files import read_bank
from dinosaur_ad.bank.image_features import control_images
from dinosaur_ad.bank.verdict import ANOMALOUS, NORMAL, NOT_READY
from dinosaur_ad.bank.verdict import UNKNOWN as UNKNOWN_VERDICT
from dinosaur_ad.core import outliers
from dinosaur_ad.core.calibration import conformal_p_values
from dinosaur_ad.core.drift import Watch, begin_watch, watch_part
from dinosaur_ad.core.grouping import belongs, groups
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.finding import find_images
from dinosaur_ad.images.image_stream import read_prepared
from dinosaur_ad.inspection import Inspection, Learned, Rejected, Suspect
from dinosaur_ad.store import TaskRecord
from dinosaur_ad.watch.adopting import adopt, learn_without_suspects
from dinosaur_ad.watch.regrouping import Merger, finish_merge, note_passed, regrouped
from dinosaur_ad.watch.threshold_keeping import Recalibrator, ThresholdKeeper
from dinosaur_ad.watch.tray import ADOPTED as ADOPTED_STATUS
from dinosaur_ad.watch.tray import DISMISSED, LEARNING, OPEN, KeptPicture, StoredProposal, Tray, picture_key
from dinosaur_ad.watch.watch_event import (
    INSPECTED,
    LEFT_OUT,
    PROPOSED,
    REFUSED,
    UNKNOWN,
    UPDATED,
    WatchEvent,
)

Floats = NDArray[np.float32]

ADOPTING = ("ask", "auto")
"""Who decides about a proposed product: a person, or the watch."""
ENOUGH = 20
"""So many unknown pictures that agree are a product: as many as learning recommends."""
AGAIN = 5
"""A group that could not be learned is tried again with so many more pictures."""
MOST_LOOSE = 200
"""Unknown pictures that are kept at the most; then the oldest leaves."""
MOST_OF_ONE = 60
"""Pictures of one proposal, and of the updates of one product, that are kept at the most."""
AT_ONCE = 10
"""Clearly normal pictures that one update of a known product adds."""
GROWN = 200
"""From so many images on, a product is updated only when its good parts are seen to change."""
CLEARLY_NORMAL = 2.0
"""A p-value of so many times the false-alarm rate is clearly normal."""
CHANGED = 10.0
"""The evidence to one at which good parts count as changed; an update too many does no harm."""
FOLLOWING = 30
"""Pictures of a product for which it is followed, once its good parts were seen to change."""
MOST_OPEN = 100
"""Proposals that may be open until no more are made."""


class GatherLimits(NamedTuple):
    """How many pictures that agree are proposed, how many of no proposal are kept, and how many proposals may be open
    until no more are made."""

    enough: int
    loose: int
    proposals: int


class Inspector(Recalibrator, Merger, Protocol):
    """What a watch needs of a detector."""

    def __len__(self) -> int: ...

    def __contains__(self, name: object) -> bool: ...

    def tasks(self) -> list[TaskRecord]:
        """What has been taught."""

    def stream(self, images: Sequence[Path]) -> Iterator[Inspection | Rejected]:
        """Inspect images in order."""

    def update(
        self,
        name: str,
        images: Sequence[Path],
        *,
        doubtful: Sequence[Path] | None = None,
        kept_out: Sequence[Path] = (),
    ) -> Learned:
        """Add such images to a task; those that are ``kept_out`` are never learned."""


class Watcher:
    """Watches pictures for ``detector``, whose store lies in the folder ``place``.

    ``describe`` gives descriptors (N, C') of prepared images, ``trial`` a detector in memory with the same encoder.
    """

    def __init__(
        self,
        detector: Inspector,
        place: Path,
        describe: Callable[[NDArray[np.uint8]], Floats],
        trial: Callable[[], Inspector],
        *,
        auto: bool,
        limits: GatherLimits | None = None,
    ) -> None:
        if detector.preset.calibration == "in-sample":
            raise InputError(
                f"The preset '{detector.preset.name}' has no verdict for pictures of no known product, so that new "
                "products could not be noticed; start a store with another preset, such as fast or default."
            )
        self._detector, self._describe, self._trial, self._auto = detector, describe, trial, auto
        self._limits = limits or GatherLimits(ENOUGH, MOST_LOOSE, MOST_OPEN)
        self._tray = Tray(place)
        self._thresholds = ThresholdKeeper(detector, self._tray)
        self._lock = filelock.FileLock(self._tray.folder / "watch.lock", timeout=0)
        self._controls_KC = np.empty((0, 0), np.float32)
        self._searched = 0  # the newest picture of the tray when it was last searched for a product
        self._watches: dict[str, tuple[str, Watch, Floats]] = {}  # by task: version, state, calibration scores
        self._following: dict[str, int] = {}  # by task: pictures that are still followed
        self._tried: set[tuple[int, ...]] = set()  # groups that could not be learned as they are

    def events(self, images: str | Path | Iterable[str | Path]) -> Iterator[WatchEvent]:
        """Go through files, folders and globs in order; what was processed before is passed over."""
        with self.alone():
            yield from self._finish()
            arguments = [images] if isinstance(images, str | Path) else images
            for argument in arguments:
                try:
                    paths = find_images([argument])
                except InputError as error:
                    if argument is images:
                        raise
                    yield WatchEvent(LEFT_OUT, str(error), str(argument))
                    continue
                for path in paths:
                    yield from self._take(path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other watches of the store out; the tray is closed at the end.

        :raises InputError: another one is running.
        """
        try:
            self._lock.acquire()
        except filelock.Timeout:
            self._tray.close()
            raise InputError("Another watch of this store is running; wait for it to end, or stop it.") from None
        try:
            yield
        finally:
            self._lock.release()
            self._tray.close()

    def gather(self, path: Path, key: bytes, why: str, origin: str = "") -> Iterator[WatchEvent]:
        """Take a picture that was judged elsewhere to be of no known product, and propose what follows from it.

        A ``key`` is taken once. Nothing is learned or updated: that is for whoever judges. Inside :meth:`alone`.
        """
        if not self._tray.has_seen(key):
            try:
                pixels = read_prepared(path, self._detector.preset.size)
            except InputError as error:
                yield from self._over(key, [WatchEvent(LEFT_OUT, str(error), origin or str(path))])
                return
            yield from self._of_no_product(path, key, pixels, why, origin)
            yield from self._propose()

    def catch_up(self) -> Iterator[WatchEvent]:
        """Propose what follows from the pictures gathered so far: a kill may have come in between. Inside
        :meth:`alone`."""
        yield from self._propose()

    def passed(self, path: Path, task: str, origin: str = "") -> Iterator[WatchEvent]:
        """Take a picture of a known product that passed elsewhere, to notice products that have become one. Inside
        :meth:`alone`."""
        pixels = read_prepared(path, self._detector.preset.size)
        with self._tray.change():
            note_passed(self._tray, task, origin or str(path), lambda: self._describe(pixels[None])[0])
        if self._tray.changed_tasks():
            names = [record.name for record in self._detector.tasks()]
            yield from regrouped(self._tray, names, self._controls())

    def _take(self, path: Path) -> Iterator[WatchEvent]:
        try:
            key = picture_key(path)
        except OSError as error:
            yield WatchEvent(LEFT_OUT, f"it could not be read ({error.strerror})", str(path))
            return
        if self._tray.has_seen(key):
            return
        yield from self._judge(path, key)
        yield from self._finish()

    def _finish(self) -> Iterator[WatchEvent]:
        """Do all that follows from the pictures so far, before the next one; also after a watch was killed."""
        yield from self._finish_adoptions()
        yield from self._finish_updates()
        yield from self._propose()
        yield from self._finish_adoptions()
        if self._tray.changed_tasks():
            names = [record.name for record in self._detector.tasks()]
            yield from regrouped(self._tray, names, self._controls())

    # --- one picture ---

    def _judge(self, path: Path, key: bytes) -> Iterator[WatchEvent]:
        """Inspect a picture; what becomes of it is one change of the tray."""
        try:
            pixels = read_prepared(path, self._detector.preset.size)
        except InputError as error:
            yield from self._over(key, [WatchEvent(LEFT_OUT, str(error), str(path))])
            return
        if len(self._detector):
            result = next(iter(self._detector.stream([path])))
            if isinstance(result, Rejected):
                yield from self._over(key, [WatchEvent(LEFT_OUT, result.reason, str(path))])
                return
            if result.verdict != UNKNOWN_VERDICT:
                yield from self._known(path, key, pixels, result)
                return
            why = result.reason
        else:
            why = "no product has been learned yet"
        yield from self._of_no_product(path, key, pixels, why)

    def _of_no_product(
        self, path: Path, key: bytes, pixels: NDArray[np.uint8], why: str, origin: str = ""
    ) -> Iterator[WatchEvent]:
        """A picture of no known product; it is kept if it shows something."""
        name = origin or str(path)
        if outliers.grey_range(outliers.grey_histogram(pixels)) <= outliers.BLANK_RANGE:
            reason = "it is blank or nearly so, and shows no product; check camera and light"
            yield from self._over(key, [WatchEvent(LEFT_OUT, reason, name)])
            return
        descriptor_C = self._describe(pixels[None])[0]
        if not np.isfinite(descriptor_C).all():
            reason = "the encoder gives values that are no numbers for it"
            yield from self._over(key, [WatchEvent(LEFT_OUT, reason, name)])
            return
        yield from self._unknown(path, key, descriptor_C, why, name)

    def _unknown(self, path: Path, key: bytes, descriptor_C: Floats, why: str, name: str) -> Iterator[WatchEvent]:
        tray, found, most = self._tray, [], self._limits.loose
        with tray.change():
            like = self._like_proposal(descriptor_C)
            if like is None:
                tray.keep(path, descriptor_C, origin=name)
                found.append(WatchEvent(UNKNOWN, f"kept: {why}", name))
                loose = tray.loose()
                for oldest in loose[: max(0, len(loose) - most)]:
                    tray.drop([oldest])
                    reason = f"pushed out of the tray, which holds {most}: too few pictures like it came"
                    found.append(WatchEvent(LEFT_OUT, reason, oldest.origin))
            elif like.status == DISMISSED:
                found.append(WatchEvent(UNKNOWN, f"not kept: it shows what was dismissed as {like.id}", name))
            else:
                if len(tray.pictures_of(like.id)) < MOST_OF_ONE:
                    tray.keep(path, descriptor_C, proposal=like.id, origin=name)
                found.append(WatchEvent(UNKNOWN, f"it shows what proposal {like.id} shows", name, proposal=like.id))
            self._note(key, found)
        if len(found) > 1:
            tray.tidy()
        yield from found

    def _like_proposal(self, descriptor_C: Floats) -> StoredProposal | None:
        """The open or dismissed proposal that a picture belongs to."""
        for proposal in self._tray.proposals(OPEN, LEARNING, DISMISSED):
            known = [each.descriptor_C for each in self._tray.pictures_of(proposal.id) if not each.suspect]
            if known and belongs(descriptor_C, np.stack(known), self._controls()):
                return proposal
        return None

    def _controls(self) -> Floats:
        if not self._controls_KC.size:
            self._controls_KC = self._describe(control_images(self._detector.preset.size))
        return self._controls_KC

    def _over(self, key: bytes, found: list[WatchEvent]) -> list[WatchEvent]:
        """Note that a picture has been processed, with what was decided."""
        with self._tray.change():
            self._note(key, found)
        return found

    def _note(self, key: bytes, found: list[WatchEvent]) -> None:
        self._tray.note_seen(key)
        for event in found:
            if event.kind != INSPECTED:
                self._tray.record(event.to_json())

    # --- known products ---

    def _known(self, path: Path, key: bytes, pixels: NDArray[np.uint8], result: Inspection) -> Iterator[WatchEvent]:
        """A picture of a known product; if it is clearly normal, it may become part of an update.

        What enters the memory is chosen by its score. What the threshold comes from must not be, or each update would
        lower it: so the others wait for the update too, and count as doubtful. And later every third is never
        learned, whatever it scores, so that it can be scored anew with each memory that the product will have.
        """
        task, tray = result.task, self._tray
        event = WatchEvent(INSPECTED, result.reason, str(path), task, inspection=result)
        # One that cannot be judged yet, because its threshold is too high, may become ready by more pictures.
        judged = result.verdict in (NORMAL, ANOMALOUS, NOT_READY)
        clearly = result.verdict != ANOMALOUS and result.p_value >= CLEARLY_NORMAL * result.false_alarms
        followed = judged and (self._is_followed(result) or self._images_of(task) < GROWN)
        with tray.change():
            if judged:
                self._thresholds.note(result)
            if judged and self._thresholds.is_kept_out(task):
                self._thresholds.keep_out(path, task)
            elif followed and (clearly or sum(each.suspect for each in tray.candidates(task)) < AT_ONCE):
                tray.keep(path, self._describe(pixels[None])[0], task=task, doubtful=not clearly)
            if result.verdict == NORMAL:
                note_passed(tray, task, str(path), lambda: self._describe(pixels[None])[0])
            self._note(key, [event])
        yield event

    def _finish_updates(self) -> Iterator[WatchEvent]:
        """Make the updates for which enough pictures wait; also one during which a watch was killed."""
        for task in self._tray.waiting_tasks(AT_ONCE):
            if task in self._detector.store:
                yield self._update(task, self._tray.candidates(task))
        yield from self._thresholds.renew()

    def _images_of(self, task: str) -> int:
        return len(self._detector.store.record(task).manifest["images"])

    def _is_followed(self, result: Inspection) -> bool:
        """Whether the good parts of a product were seen to change among the last pictures of it."""
        if self._good_parts_changed(result):
            self._following[result.task] = FOLLOWING
        left = self._following.get(result.task, 0)
        self._following[result.task] = max(0, left - 1)
        return left > 0

    def _good_parts_changed(self, result: Inspection) -> bool:
        """Whether the parts of a product that pass score higher than those it learned (core.drift), since this watch
        began or the product changed."""
        record = self._detector.store.record(result.task)
        version, state, scores = self._watches.get(result.task, ("", begin_watch(1), np.empty(0, np.float32)))
        if version != record.id:
            scores = np.asarray(read_bank(self._detector.store, record)[0]["scores"], np.float32)
            state = begin_watch(len(scores))
        p_value = float(conformal_p_values(np.asarray([result.score]), scores)[0])
        state = watch_part(state, p_value, defects=1.0)
        self._watches[result.task] = record.id, state, scores
        return state.log_passing_evidence >= math.log(CHANGED)

    def _update(self, task: str, waiting: list[KeptPicture]) -> WatchEvent:
        """Add clearly normal pictures to a product. Killed in between, the same update is made again: pictures that it
        knows are learned once."""
        clear = [each for each in waiting if not each.suspect]
        pictures = tuple(each.origin for each in clear)
        grown = self._images_of(task) >= GROWN
        why = "its good parts look different from those learned" if grown else f"it knows fewer than {GROWN} yet"
        try:
            doubtful = [each.file for each in waiting if each.suspect]
            self._thresholds.forget_replaced(task)
            kept_out = self._tray.kept_out(task)
            learned = self._detector.update(task, [each.file for each in clear], doubtful=doubtful, kept_out=kept_out)
        except InputError as error:
            event = WatchEvent(REFUSED, str(error), task=task, pictures=pictures)
        else:
            reason = f"{len(clear)} clearly normal pictures were added, because {why}; undo takes it back"
            event = WatchEvent(UPDATED, reason, task=task, pictures=pictures, promised_rate=learned.promised_rate)
        with self._tray.change():
            if event.kind == UPDATED:
                self._tray.keep_added(task, clear, MOST_OF_ONE)
                self._tray.threshold_taken(task)
            self._tray.drop(waiting)
            self._tray.record(event.to_json())
        self._tray.tidy()
        return event

    # --- new products ---

    def _propose(self) -> Iterator[WatchEvent]:
        """Propose a product if enough of the tray agree; it is searched once for each new picture in it."""
        newest, enough = self._tray.newest_loose(), self._limits.enough
        if newest == self._searched or len(self._tray.proposals(OPEN, LEARNING)) >= self._limits.proposals:
            return
        self._searched = newest
        loose = self._tray.loose()
        if len(loose) < enough:
            return
        descriptor_NC = np.stack([each.descriptor_C for each in loose])
        for group in groups(descriptor_NC, self._controls()):
            pictures = [loose[n] for n in group]
            ids = tuple(each.id for each in pictures)
            if len(group) < enough or (len(group) - enough) % AGAIN or ids in self._tried:
                continue
            odd = self._unlike_the_others(pictures, descriptor_NC[group])
            tried = learn_without_suspects(self._trial(), "proposed", pictures, odd)
            if tried.learned is None:
                self._tried.add(ids)
                continue
            rate = tried.learned.promised_rate
            kept = [each for each in pictures if each.id not in tried.suspects]
            reason = f"{len(pictures)} unknown pictures show the same; {len(tried.suspects)} of them are suspects"
            with self._tray.change():
                names = {each.id: each.origin for each in pictures}
                suspects = tuple(
                    Suspect(names[number], why, score) for number, (why, score) in sorted(tried.suspects.items())
                )
                details = _promise(tried.learned) | {"suspects": [[s.path, s.reason, s.score] for s in suspects]}
                number = self._tray.propose(pictures, tried.suspects, details)
                event = WatchEvent(
                    PROPOSED,
                    reason,
                    pictures[-1].origin,
                    proposal=number,
                    pictures=tuple(each.origin for each in kept),
                    suspects=suspects,
                    promised_rate=rate,
                )
                self._tray.record(event.to_json())
                if self._auto:
                    self._tray.decide(number, LEARNING, self._free_name())
            yield event

    @staticmethod
    def _unlike_the_others(pictures: list[KeptPicture], descriptor_NC: Floats) -> dict[int, tuple[str, float]]:
        ratio_N = outliers.neighbour_ratios(descriptor_NC)
        highest = outliers.highest_neighbour_ratio(len(pictures))
        return {
            each.id: ("unlike the others", round(ratio, 3))
            for each, ratio in zip(pictures, ratio_N.tolist(), strict=True)
            if ratio > highest
        }

    def _free_name(self) -> str:
        taken = {each.task for each in self._tray.proposals(LEARNING, ADOPTED_STATUS)}
        number = 1
        while (name := f"product-{number}") in taken or name in self._detector.store:
            number += 1
        return name

    def _finish_adoptions(self) -> Iterator[WatchEvent]:
        """Learn what was adopted; also what was being learned when a watch was killed."""
        for proposal in self._tray.proposals(LEARNING):
            if "kind" not in proposal.details:
                yield adopt(self._detector, self._tray, proposal)
                continue
            try:
                yield finish_merge(self._detector, self._tray, proposal)
            except InputError as error:
                event = WatchEvent(REFUSED, str(error), proposal=proposal.id, tasks=tuple(proposal.details["tasks"]))
                with self._tray.change():
                    self._tray.decide(proposal.id, DISMISSED)
                    self._tray.record(event.to_json())
                yield event


def _promise(learned: Learned) -> dict[str, Any]:
    """What learn promises of a proposal, to be shown with it."""
    return {
        "promised_rate": learned.promised_rate,
        "calibrated": learned.calibrated,
        "images_needed": learned.images_needed,
        "not_ready": learned.not_ready,
    }
