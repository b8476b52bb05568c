"""Learns a product from pictures that nobody has looked at: without those that do not belong there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from dinosaur_ad._text import printable
from dinosaur_ad.bank.guard import TWO_KINDS
from dinosaur_ad.bank.image_features import Progress
from dinosaur_ad.core import outliers
from dinosaur_ad.errors import InputError, TeachingRefusedError
from dinosaur_ad.inspection import Learned
from dinosaur_ad.store import TaskStore
from dinosaur_ad.watch.tray import ADOPTED as ADOPTED_STATUS
from dinosaur_ad.watch.tray import DISMISSED, KeptPicture, StoredProposal, Tray
from dinosaur_ad.watch.watch_event import ADOPTED, REFUSED, WatchEvent

ATTEMPTS = 4
"""How often a group is learned, each time without the suspects of the time before."""


class Adopter(Protocol):
    """What learning a proposed product needs of a detector."""

    @property
    def store(self) -> TaskStore:
        """Where tasks are kept."""

    def learn(
        self,
        name: str,
        images: Sequence[Path],
        *,
        doubtful: Sequence[Path] | None = None,
        replace: bool = False,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Learned:
        """Teach a task from images that nobody has looked at, if ``doubtful`` others are given, or none of them."""

    def forget(self, name: str) -> None:
        """Remove a task."""


class TriedProduct(NamedTuple):
    """What learning without the suspects gave (None: too few were left), and the suspects by number."""

    learned: Learned | None
    suspects: dict[int, tuple[str, float]]


def learn_without_suspects(
    detector: Adopter,
    name: str,
    pictures: Sequence[KeptPicture],
    suspects: dict[int, tuple[str, float]],
    progress: Progress | None = None,
) -> TriedProduct:
    """Learn pictures but those that the guard refuses or finds suspicious; at least half of them must be left."""
    suspects = dict(suspects)
    for attempt in range(ATTEMPTS):
        kept = {str(each.file.absolute()): each.id for each in pictures if each.id not in suspects}
        if 2 * len(kept) < len(pictures) or len(kept) < outliers.FEWEST_IMAGES:
            break
        doubtful = [each.file for each in pictures if each.id in suspects and each.file.is_file()]
        try:
            last = detector.learn(name, [Path(file) for file in kept], doubtful=doubtful, progress=progress)
        except TeachingRefusedError as error:
            suspects |= {kept[path]: ("does not belong there", 0.0) for path in error.paths if path in kept}
            if not error.paths:
                break
            continue
        except InputError:
            break
        odd = {
            kept[each.path]: (each.reason, each.score)
            for each in last.suspects
            if each.path in kept and each.reason != TWO_KINDS
        }
        if not odd or attempt == ATTEMPTS - 1:
            return TriedProduct(last, suspects)
        suspects |= odd
        detector.forget(name)
    return TriedProduct(None, suspects)


def adopt(detector: Adopter, tray: Tray, proposal: StoredProposal, progress: Progress | None = None) -> WatchEvent:
    """Learn a proposal under the name that was chosen for it."""
    found = tray.pictures_of(proposal.id)
    pictures = [each for each in found if not each.suspect]
    name, origins = proposal.task, tuple(each.origin for each in pictures)
    learned: Learned | None = None
    if name not in detector.store:
        suspects = {each.id: ("a suspect of the proposal", 0.0) for each in found if each.suspect}
        tried = learn_without_suspects(detector, name, found, suspects, progress)
        if tried.learned is None:
            reason = (
                f"proposal {proposal.id} could not be learned as '{printable(name)}': too many of its pictures do not "
                "belong together or belong to a known product"
            )
            event = WatchEvent(REFUSED, reason, task=name, proposal=proposal.id, pictures=origins)
            with tray.change():
                tray.decide(proposal.id, DISMISSED)
                tray.record(event.to_json())
            return event
        learned = tried.learned
    reason = f"proposal {proposal.id} was learned as '{name}' from {len(pictures)} pictures; undo takes it back"
    event = WatchEvent(
        ADOPTED,
        reason,
        task=name,
        proposal=proposal.id,
        pictures=origins,
        promised_rate=learned.promised_rate if learned else None,
        learned=learned,
    )
    with tray.change():
        tray.decide(proposal.id, ADOPTED_STATUS, name)
        tray.forget_thresholds(name)
        tray.mark_changed(name)
        tray.record(event.to_json())
    return event
