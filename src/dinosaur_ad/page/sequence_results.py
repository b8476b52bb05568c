"""What a sequence of products leaves behind: one row an inspected image, and everything derived from rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean, median
from typing import Any

from dinosaur_ad.core.metrics import auroc, forgetting


@dataclass(frozen=True)
class SequenceRow:
    """One image inspected after the product ``after`` was learned; ``label`` 1 means it is truly anomalous."""

    after: str
    product: str
    image: str
    kind: str
    label: int
    task: str
    score: float
    threshold: float
    p_value: float
    verdict: str
    ms: float

    @property
    def alarm(self) -> bool:
        """Whether the detector called it anomalous, rightly or wrongly."""
        return self.verdict == "anomalous"

    @property
    def relative(self) -> float:
        """The score in units of its threshold, which makes products comparable."""
        return self.score / self.threshold


@dataclass(frozen=True)
class Share:
    """``count`` of ``total``, with the 95 % interval that so few images allow to claim."""

    count: int
    total: int
    rate: float | None
    low: float
    high: float

    @classmethod
    def of(cls, count: int, total: int) -> Share:
        """The share with its Wilson score interval.

        >>> Share.of(3, 100)
        Share(count=3, total=100, rate=0.03, low=0.0103, high=0.0845)
        """
        if total == 0:
            return cls(0, 0, None, 0.0, 1.0)
        z, p = NormalDist().inv_cdf(0.975), count / total
        centre = (p + z * z / (2 * total)) / (1 + z * z / total)
        reach = z / (1 + z * z / total) * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
        return cls(count, total, p, round(max(0.0, centre - reach), 4), round(min(1.0, centre + reach), 4))


@dataclass(frozen=True)
class Summary:
    """The numbers of a run. ``matrix[t][j]`` is the image AUROC on product ``j`` after ``t``, None if ``j > t``.

    Everything but the matrix and the forgetting is about the end, when all products are known.
    """

    products: tuple[str, ...]
    matrix: tuple[tuple[float | None, ...], ...]
    mean_auroc: float | None
    forgetting: float | None
    routing: Share
    false_alarms: Share
    recall: Share
    ms_per_image: float


@dataclass(frozen=True)
class Taught:
    """One product as it was learned."""

    product: str
    description: str
    images: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class SequenceRun:
    """A sequence of products, learned and inspected: all that is kept of it. ``asked`` is the false-alarm rate wanted.

    ``detector`` says what made the results (encoder, provider, precision, preset, seed), ``software`` with which
    versions.
    """

    date: str
    detector: dict[str, Any]
    software: dict[str, str]
    asked: float
    taught: tuple[Taught, ...]
    rows: tuple[SequenceRow, ...]

    @property
    def summary(self) -> Summary:
        """The numbers, derived from the rows."""
        return summarise(self.rows)

    @property
    def seconds_per_product(self) -> float:
        """How long learning took, on average."""
        return fmean(taught.seconds for taught in self.taught)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object: the summary first, for people; then the rows it comes from."""
        document = asdict(self)
        rows = document.pop("rows")
        return document | {
            "seconds_per_product": self.seconds_per_product,
            "summary": asdict(self.summary),
            "rows": rows,
        }


def last_rows(rows: Sequence[SequenceRow]) -> list[SequenceRow]:
    """The rows of the last evaluation."""
    return [row for row in rows if row.after == rows[-1].after]


def auroc_of(rows: Sequence[SequenceRow]) -> float | None:
    """Image AUROC of rows; None when one of the two classes is missing."""
    value = auroc([row.score for row in rows], [row.label for row in rows])
    return None if math.isnan(value) else value


def summarise(rows: Sequence[SequenceRow]) -> Summary:
    """Everything that can be said from the rows alone, in the order they were made."""
    products = tuple(dict.fromkeys(row.after for row in rows))
    matrix = tuple(
        tuple(
            auroc_of([row for row in rows if (row.after, row.product) == (after, product)]) if j <= t else None
            for j, product in enumerate(products)
        )
        for t, after in enumerate(products)
    )
    end = last_rows(rows)
    normal = [row for row in end if row.label == 0]
    anomalous = [row for row in end if row.label == 1]
    reached = [value for value in matrix[-1] if value is not None]
    lost = forgetting([[math.nan if value is None else value for value in line] for line in matrix])
    return Summary(
        products=products,
        matrix=matrix,
        mean_auroc=sum(reached) / len(reached) if reached else None,
        forgetting=None if math.isnan(lost) else lost,
        routing=Share.of(sum(row.task == row.product for row in end), len(end)),
        false_alarms=Share.of(sum(row.alarm for row in normal), len(normal)),
        recall=Share.of(sum(row.alarm for row in anomalous), len(anomalous)),
        ms_per_image=median(row.ms for row in end),
    )
