"""A proposal as the page and the API show it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dinosaur_ad._text import printable
from dinosaur_ad.station.gathering import part_of
from dinosaur_ad.station.jobs import Job
from dinosaur_ad.watch.regrouping import MERGE, SPLIT
from dinosaur_ad.watch.tray import ADOPTED, DISMISSED, KeptPicture, StoredProposal

if TYPE_CHECKING:
    from dinosaur_ad.station.tables import WarningRow

PRODUCT = "product"


@dataclass(frozen=True)
class ProposedPicture:
    """A picture of a proposal; ``part`` is None where it did not come from this station. A suspect is not learned;
    ``reason`` says why. ``there`` is whether its copy is still kept."""

    id: int
    origin: str
    part: int | None
    suspect: bool
    reason: str
    there: bool


@dataclass(frozen=True)
class ProposalCard:
    """A proposal: ``kind`` is "product", "merge" or "split", ``status`` "open", "learning", "adopted" or "dismissed".

    ``promised_rate``, ``calibrated`` and ``images_needed`` are what learning promises (as :class:`~dinosaur_ad.Learned`
    says), for products alone. ``products`` are those that a merge or a split is about, ``groups`` the parts of a split.
    ``task`` is the name that was chosen.
    """

    id: int
    kind: str
    status: str
    task: str
    since: str | None
    reason: str
    promised_rate: float | None
    calibrated: int
    images_needed: int | None
    not_ready: str
    pictures: tuple[ProposedPicture, ...]
    products: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    decided: str | None
    decided_by: str | None
    can_undo: bool
    job: Job | None = None

    @property
    def good(self) -> list[ProposedPicture]:
        """The pictures that would be learned."""
        return [each for each in self.pictures if not each.suspect]

    @property
    def suspects(self) -> list[ProposedPicture]:
        """The pictures that would not."""
        return [each for each in self.pictures if each.suspect]

    @property
    def parts(self) -> list[int]:
        """The parts that show it, the newest first; suspects are none of them."""
        shown = [each.part for each in reversed(self.good)] or [part for group in self.groups for part in group]
        return [each for each in dict.fromkeys(shown) if each is not None]

    def to_json(self) -> dict[str, Any]:
        """As the API shows it."""
        return asdict(self) | {"job": None if self.job is None else self.job.to_json()}


def card_of(
    proposal: StoredProposal, kept: list[KeptPicture], warning: WarningRow | None, job: Job | None
) -> ProposalCard:
    """A proposal with its pictures, its warning in the history and the job that learns it."""
    details, over = proposal.details, proposal.status in (ADOPTED, DISMISSED)
    kind, reasons = details.get("kind", PRODUCT), {path: reason for path, reason, _ in details.get("suspects", ())}
    pictures = tuple(
        ProposedPicture(
            each.id,
            each.origin,
            part_of(each.origin),
            each.suspect,
            reasons.get(each.origin, "") if each.suspect else "",
            each.file.is_file(),
        )
        for each in kept
    )
    groups = (tuple(part for origin in group if (part := part_of(origin))) for group in details.get("groups", ()))
    return ProposalCard(
        id=proposal.id,
        kind=kind,
        status=proposal.status,
        task=proposal.task,
        since=details.get("since"),
        reason=details.get("reason", ""),
        promised_rate=details.get("promised_rate"),
        calibrated=details.get("calibrated", 0),
        images_needed=details.get("images_needed"),
        not_ready=details.get("not_ready", ""),
        pictures=pictures,
        products=tuple(details.get("tasks", ())),
        groups=tuple(groups),
        decided=warning.closed if warning and over else None,
        decided_by=warning.closed_by if warning and over else None,
        can_undo=kind == MERGE and proposal.status == ADOPTED and bool(details.get("after")),
        job=job,
    )


def waiting_sentence(card: ProposalCard) -> str:
    """What the plant is told of a proposal."""
    if card.kind == MERGE:
        first, second = (printable(each) for each in card.products)
        return f"'{first}' and '{second}' look like one product now; merge them or keep both on the page Proposals."
    if card.kind == SPLIT:
        return f"'{printable(card.products[0])}' shows two things now; look at them on the page Proposals."
    return (
        f"{len(card.pictures)} unknown parts show the same and may be a new product; give it a name or put it aside on "
        "the page Proposals."
    )
