"""One method on every scenario in every variant: the generated table of docs/methods/NAME.md.

The report averages results and therefore requires equal settings. This table puts results of other settings (fewer
epochs, another encoder, fewer categories) in rows of their own, and every row shows how long training was.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dinosaur_ad.bench.effort import formerly, training_of
from dinosaur_ad.bench.metrics import final_average, fm_paper, seed_spread
from dinosaur_ad.bench.paper import paper
from dinosaur_ad.bench.report.numbers import Number, own_false_alarms, pixel, storage_mib
from dinosaur_ad.bench.report.render import plain
from dinosaur_ad.bench.report.report_rows import paper_scenario
from dinosaur_ad.bench.results import CellResult, find_results
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import MethodSpec, list_methods
from dinosaur_ad.methods.method_registry import DEFAULT_VARIANT

DASH = "–"
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
# Two results with equal settings still differ if one of these does: weights, precision, and what replaces a part.
_INFO = ("description", "encoder", "weights_sha256", "precision", "substitute", "regions", "penalty")
_COUNTS = ("name", "train", "held_out", "test_normal", "test_anomalous")


@dataclass(frozen=True)
class MethodRow:
    """The seeds of one variant on one scenario, equal in all settings."""

    spec: MethodSpec
    cells: tuple[CellResult, ...]

    @property
    def first(self) -> CellResult:
        """The cell of the lowest seed."""
        return self.cells[0]

    @property
    def variant(self) -> str:
        """The variant the row was run with."""
        return self.first.method.partition(":")[2] or DEFAULT_VARIANT

    @property
    def changed(self) -> str:
        """The settings that are not the variant's own."""
        if self.variant not in self.spec.variants:
            return "a variant that no longer exists"
        config = self.spec.variants[self.variant]
        usual, stored = _as_json(config.identity()), _as_json(formerly(config) | self.first.settings)
        differ = {key: value for key, value in stored.items() if key not in usual or usual[key] != value}
        return ", ".join(f"{key}={setting_text(value)}" for key, value in differ.items())

    def mean(self, number: Number) -> str:
        """A number averaged over the seeds, with its standard deviation where there are several."""
        mean, spread = seed_spread([number(cell) for cell in self.cells])
        return _number(mean) + (f" ± {spread:.3f}" if math.isfinite(spread) else "")


def method_table(name: str, folders: Sequence[str]) -> str:
    """The table of a method as Markdown, from all results below ``folders``.

    :raises InputError: there is no such method, the folders hold no result of it, or one cell was found twice with
        different scores.
    """
    methods = list_methods()
    if name not in methods:
        raise InputError(f"There is no method '{name}'; choose from: {', '.join(methods)} (without a variant).")
    finished, _ = find_results(folders)
    rows = rows_of(methods[name], finished)
    if not rows:
        raise InputError(
            f"These folders hold no result of '{name}'; make one with: dinosaur bench run --methods {name} "
            f"--scenarios mtd-color --out runs/{name}."
        )
    notes: dict[str, int] = {}
    lines = [list(_cells(row, notes)) for row in rows]
    header = list(_HEADER)
    ruler = [":--" if column in _WORDS else "--:" for column in header]
    table = "\n".join(f"| {' | '.join(line)} |" for line in (header, ruler, *lines))
    made_with = "\n".join(f"- {_mark(number)} {plain(text)}." for text, number in notes.items())
    return f"{table}\n\n{made_with}\n"


def rows_of(spec: MethodSpec, results: Iterable[CellResult]) -> list[MethodRow]:
    """The rows of a method among all results, in the paper's order of scenarios and the method's of variants."""
    found: dict[str, dict[int, CellResult]] = {}
    for cell in results:
        if cell.method.partition(":")[0] == spec.name:
            seeds = found.setdefault(_setup(cell), {})
            if cell.seed in seeds and not np.array_equal(seeds[cell.seed].auroc, cell.auroc, equal_nan=True):
                raise InputError(f"{cell.name} was found twice with different scores; name only one of the folders.")
            seeds[cell.seed] = cell
    rows = [MethodRow(spec, tuple(seeds[seed] for seed in sorted(seeds))) for seeds in found.values()]
    scenarios, variants = list(paper().scenarios), list(spec.variants)
    return sorted(
        rows,
        key=lambda row: (
            _position(scenarios, paper_scenario(row.first.scenario)),
            row.first.scenario,
            _position(variants, row.variant),
            -len(row.first.tasks),
            row.changed,
        ),
    )


# --- the columns ---

_WORDS = ("Scenario", "Variant", "Set by hand", "Steps a task")
_HEADER = (
    *_WORDS[:3],
    "Tasks",
    _WORDS[3],
    "Seeds",
    "Image AUROC",
    "just learned",
    "paper",
    "Pixel AUROC",
    "paper",
    "FM",
    "paper",
    "False alarms",
    "MiB kept",
)


def _cells(row: MethodRow, notes: dict[str, int]) -> Iterator[str]:
    first = row.first
    images, pixels, forgetting = printed_in_paper(first.method, first.scenario)
    note = notes.setdefault("; ".join(_made_with(first.info)), len(notes) + 1)
    yield plain(first.scenario)
    yield f"{plain(row.variant)} {_mark(note)}"
    yield plain(row.changed) or DASH
    yield _task_count(first)
    yield training_length(row)
    yield ", ".join(str(cell.seed) for cell in row.cells)
    yield row.mean(lambda cell: final_average(cell.auroc))
    yield row.mean(just_learned)
    yield _number(images)
    yield row.mean(pixel("auroc"))
    yield _number(pixels)
    yield row.mean(lambda cell: fm_paper(cell.auroc))
    yield _number(forgetting)
    yield row.mean(own_false_alarms)
    yield f"{storage_mib(first):.2f}"


def just_learned(cell: CellResult) -> float:
    """The image AUROC of each task at the moment it was learned, averaged over tasks."""
    return float(np.diagonal(cell.auroc).mean())


def training_length(row: MethodRow) -> str:
    """How many steps a task was trained for, of how many images each, and their share of the variant's own schedule."""
    training = training_of(row.first, row.spec.variants.get(row.variant))
    return "not trained" if training is None else str(training)


def printed_in_paper(method: str, scenario: str) -> tuple[float, float, float]:
    """The paper's image AUROC, pixel AUROC and forgetting; NaN where it has none.

    >>> printed_in_paper("ucad:original", "mvtec-ad")
    (0.798, 0.822, 0.0)
    """
    key, protocol = paper().method_of(method), paper_scenario(scenario)
    if key is None or protocol is None:
        return math.nan, math.nan, math.nan
    images = paper().images[protocol][key]
    return images.auroc, paper().pixels[protocol][key].pixel, images.fm


def setting_text(value: Any) -> str:
    """A setting as the command line takes it.

    >>> setting_text(True), setting_text(None), setting_text((5, 8)), setting_text(7.5e-4), setting_text("vit-base")
    ('true', 'none', '5+8', '0.00075', 'vit-base')
    """
    if isinstance(value, (list, tuple)):
        return "+".join(map(setting_text, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _made_with(info: Mapping[str, Any]) -> Iterator[str]:
    """Network and weights, and whatever replaces a part of the method, as the result says it."""
    yield str(info.get("description") or info.get("encoder") or "encoder not recorded").rstrip(".")
    for key in ("substitute", "regions", "penalty"):
        if info.get(key) not in (None, "", "none"):
            yield str(info[key]) if key == "substitute" else f"{key}: {info[key]}"


def _setup(cell: CellResult) -> str:
    info = {key: cell.info.get(key) for key in _INFO}
    data = [[task[key] for key in _COUNTS] for task in cell.tasks]
    return json.dumps([cell.method, cell.scenario, cell.settings, info, data], sort_keys=True, default=str)


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a stored result has them: a tuple becomes a list."""
    document: dict[str, Any] = json.loads(json.dumps(settings))
    return document


def _task_count(cell: CellResult) -> str:
    count, key = len(cell.tasks), paper_scenario(cell.scenario)
    total = count if key is None else paper().scenarios[key].tasks
    return str(count) if count == total else f"{count} of {total}"


def _number(value: float) -> str:
    """Three digits after the point; a negative zero is zero."""
    return f"{round(value, 3) + 0.0:.3f}".replace("-", "−") if math.isfinite(value) else DASH


def _mark(number: int) -> str:
    return str(number).translate(_SUPERSCRIPTS)


def _position(known: Sequence[str], name: str | None) -> int:
    return known.index(name) if name in known else len(known)
