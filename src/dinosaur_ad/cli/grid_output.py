"""How ``dinosaur bench grid`` and ``dinosaur bench storage`` print what they found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dinosaur_ad.cli._console import show, table

if TYPE_CHECKING:
    from dinosaur_ad.bench.grid_results import GridResult, ScenarioGrid
    from dinosaur_ad.bench.paper import GridNumbers

_RATIO = "ratio"


def print_grid(grid: GridResult) -> None:
    """Each scenario, then their mean beside the paper's."""
    show(f"image AUROC of the final model, preset {grid.preset}, {grid.encoder.get('description', '')}")
    for part in grid.parts:
        show("", f"{part.scenario}, {len(part.tasks)} task{'s' * (len(part.tasks) != 1)}")
        show(*_scenario_table(part))
        show(_repeats(part))
    show("", f"mean over {', '.join(grid.scenarios)}; beside it the paper's, which is over its own five protocols")
    show(*_mean_table(grid))
    show(_paper_repeats())


def _scenario_table(part: ScenarioGrid) -> list[str]:
    header = (_RATIO, "members", *(f"r={radius}" for radius in part.radii))
    rows = [
        (f"{100 * ratio:g} %", _span(members), *map(_number, line))
        for ratio, members, line in zip(part.ratios, part.members, part.auroc, strict=True)
    ]
    return table(header, rows, numeric=header)


def _mean_table(grid: GridResult) -> list[str]:
    from dinosaur_ad.bench.paper import paper

    header = (_RATIO, *(name for radius in grid.radii for name in (f"r={radius}", "paper")))
    rows = []
    for ratio, line in zip(grid.ratios, grid.mean, strict=True):
        beside = [_printed(paper().grid, ratio, radius) for radius in grid.radii]
        rows.append((f"{100 * ratio:g} %", *(_number(x) for pair in zip(line, beside, strict=True) for x in pair)))
    return table(header, rows, numeric=header)


def _repeats(part: ScenarioGrid) -> str:
    cells = len(part.ratios) * len(part.radii)
    if not part.repeated:
        return "No ratio keeps as many patches as another in every task."
    return (
        f"{part.repeated} of {cells} cells repeat the one of a smaller ratio: a location keeps at least {part.minimum} "
        "patches, or all (--minimum changes that)."
    )


def _paper_repeats() -> str:
    """The paper's two lowest rows are one setting; they differ by chance alone."""
    from dinosaur_ad.bench.paper import paper

    first, second = paper().grid.auroc[:2]
    apart = max(abs(a - b) for a, b in zip(first, second, strict=True))
    return (
        "The paper's rows for 1 % and 2.5 % should be the same but for chance, because with its minimum of 20 they "
        "differ only from 840 training images a task on, and it has no such task; they are printed up to "
        f"{apart:.3f} apart."
    )


def _printed(numbers: GridNumbers, ratio: float, radius: int) -> float:
    if ratio not in numbers.ratios or radius not in numbers.radii:
        return math.nan
    return numbers.auroc[numbers.ratios.index(ratio)][numbers.radii.index(radius)]


def print_storage() -> None:
    """The paper's table, the arithmetic done right, the preset fast, and what is wrong."""
    from dinosaur_ad.bench.storage import storage_findings, storage_rows

    header = ("dataset", "tasks", "images", "M", "printed", "formula", "a task", "fast M", "fast", "a task ")
    rows = [
        (
            row.name,
            str(row.tasks),
            _span(row.images),
            _span(row.members),
            f"{row.printed_total:.1f}",
            f"{row.total_mib:.2f}",
            f"{row.mib_a_task:.3f}",
            _span(row.fast_members),
            f"{row.fast_total_mib:.2f}",
            f"{row.fast_mib_a_task:.3f}",
        )
        for row in storage_rows()
    ]
    show(
        "MiB kept for all tasks: printed in the paper, by its formula (14 x 14 places, 10 %, float32), and for the",
        "preset fast (16 x 16 places, 20 %, float16; without the reserve that only updates read)",
        "",
        *table(header, rows, numeric=header[1:]),
        "",
        *(f"- {finding}" for finding in storage_findings()),
    )


def _span(values: tuple[int, ...] | list[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"
