"""Taking times in turns, and what a benchmark hands back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Seconds of every turn, after one that does not count."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The turn in the middle."""
        return statistics.median(self.seconds)

    @property
    def fastest(self) -> float:
        """The turn that was disturbed least; targets are judged by it: what else the machine does is not ours."""
        return min(self.seconds)


def in_turns(work: Mapping[str, Callable[[], object]], turns: int) -> dict[str, Timing]:
    """Time each piece of work ``turns`` times, one after the other within a turn."""
    for each in work.values():
        each()
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(turns):
        for name, each in work.items():
            started = time.perf_counter()
            each()
            seconds[name].append(time.perf_counter() - started)
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


@dataclass(frozen=True)
class Table:
    """Rows of text or numbers under a caption."""

    caption: str
    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]


@dataclass(frozen=True)
class Target:
    """What was asked for, what was measured, and whether that is enough."""

    what: str
    asked: str
    measured: float
    met: bool


def at_least(what: str, measured: float, asked: float) -> Target:
    """A target that larger values meet."""
    return Target(what, f"at least {asked:g}", measured, measured >= asked)


def at_most(what: str, measured: float, asked: float) -> Target:
    """A target that smaller values meet."""
    return Target(what, f"at most {asked:g}", measured, measured <= asked)


@dataclass(frozen=True)
class Section:
    """What one benchmark found."""

    title: str
    tables: list[Table]
    targets: list[Target] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Section:
        """The section that :meth:`to_json` gave."""
        tables = [Table(**table) for table in document["tables"]]
        return cls(document["title"], tables, [Target(**target) for target in document["targets"]])

    def to_markdown(self) -> str:
        """As a section of a Markdown page."""
        parts = [f"## {self.title}"]
        if self.targets:
            rows: list[tuple[object, ...]] = [
                (each.what, each.asked, each.measured, "yes" if each.met else "NO") for each in self.targets
            ]
            parts.append(_markdown(Table("", ("target", "asked", "measured", "met"), rows)))
        return "\n\n".join([*parts, *map(_markdown, self.tables)])


def milliseconds(timing: Timing) -> tuple[float, float]:
    """Median and fastest, for two columns of a table."""
    return timing.median * 1e3, timing.fastest * 1e3


def _markdown(table: Table) -> str:
    lines = [table.columns, ("---",) * len(table.columns), *table.rows]
    body = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
    return f"{table.caption}\n\n{body}" if table.caption else body


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
