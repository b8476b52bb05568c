"""What the tests of a method's page share: made-up results, and the rows of a page's tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from report_factory import cell

from dinosaur_ad.bench.places import open_place
from dinosaur_ad.bench.results import CellResult
from dinosaur_ad.methods import get_method


def made(method: str = "dne", seed: int = 0, *, info: dict[str, Any] | None = None, **options: Any) -> CellResult:
    """A made-up result of a registered method with that method's own settings, but for those in ``settings``."""
    settings = get_method(method).config.identity() | options.pop("settings", {})
    result = cell(method, options.pop("scenario", "mtd-color"), seed, settings=settings, **options)
    return replace(result, info=result.info | (info or {}))


def stored(folder: Path, *results: CellResult) -> str:
    """The results on disk, each in a folder of its own, so that they may be of the same cell."""
    for number, result in enumerate(results):
        result.save(open_place(str(folder / str(number))).below(result.folder))
    return str(folder)


def rows(page: str, first: str) -> list[list[str]]:
    """The cells of all lines of a page's tables that begin with this cell."""
    lines = [line.strip("|").split("|") for line in page.splitlines() if line.startswith(f"| {first} |")]
    return [[entry.strip() for entry in line] for line in lines]
