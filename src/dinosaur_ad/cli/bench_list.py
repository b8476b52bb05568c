"""What ``dinosaur bench list`` prints: methods, scenarios with the state of their data, suites."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dinosaur_ad.cli._console import show

if TYPE_CHECKING:
    from dinosaur_ad.bench.scenarios import ScenarioLine

_INDENT = "  "
_NAMES = 16
# Beyond this, lines are hard to follow; below that, a column of text is too narrow to be one.
_WIDEST, _NARROWEST = 120, 60


def print_list(data: Path | None) -> None:
    """Everything that can be named in ``dinosaur bench run``, wrapped to the terminal."""
    sections = {"methods": _methods(), "scenarios": _scenarios(data), "suites": _suites()}
    for number, (title, lines) in enumerate(sections.items()):
        show(*([""] if number else []), title, *lines)


def _methods() -> Iterator[str]:
    from dinosaur_ad.methods import list_methods

    for spec in list_methods().values():
        yield from _entry(spec.name, f"{spec.summary}{'; with replay' if spec.replay else ''}")
        others = [f"{spec.name}:{variant}" for variant in spec.variants if variant != "default"]
        if others:
            yield from _entry("", f"variants: {', '.join(others)}")


def _suites() -> Iterator[str]:
    from dinosaur_ad.bench.suites import SUITES

    for name, suite in SUITES.items():
        yield from _entry(name, suite.summary)


def _scenarios(data: Path | None) -> Iterator[str]:
    from dinosaur_ad.bench.scenarios import describe_table

    rows = describe_table(data)
    widths = [max(len(text) for text in column) for column in zip(*(_state(row) for row in rows), strict=True)]
    for row in rows:
        tasks, state = _state(row)
        yield from _entry(row.name, row.summary, f"{tasks:>{widths[0]}}  {state:<{widths[1]}}  ")
    yield from _entry("folder:PATH", "any folder of categories in the MVTec-AD layout")
    yield from _what_is_missing(rows)


def _state(row: ScenarioLine) -> tuple[str, str]:
    return f"{row.tasks} tasks", row.state


def _what_is_missing(rows: Sequence[ScenarioLine]) -> Iterator[str]:
    """A paragraph for each dataset that is not whole, after the names of the scenarios that need it."""
    waiting: dict[str, list[str]] = {}
    for row in rows:
        if row.state in ("missing", "partial"):
            waiting.setdefault(f"{row.state}: {row.detail}.", []).append(row.name)
    for detail, names in waiting.items():
        yield ""
        yield f"{_INDENT}{', '.join(names)}"
        yield from _wrapped(detail, _INDENT * 2, _INDENT * 2)


def _entry(name: str, text: str, between: str = "") -> list[str]:
    """A name, something between, and a text that goes on below itself."""
    first = f"{_INDENT}{name:<{_NAMES}} {between}"
    return _wrapped(text, first, " " * len(first))


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    width = max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size((100, 24)).columns))
    # Addresses, names and options stay in one piece, so that they can be copied.
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
