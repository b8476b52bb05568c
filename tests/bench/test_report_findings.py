"""The sentences about the results: their figures are those of the results, and what is not there is not said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from report_factory import cell

from dinosaur_ad.bench.report.findings import findings_table
from dinosaur_ad.bench.report.render import to_markdown
from dinosaur_ad.bench.report.shortcuts import CONTROL
from dinosaur_ad.bench.report.write import compared_groups
from dinosaur_ad.bench.results import CellResult


def said(cells: Sequence[CellResult]) -> str:
    return to_markdown(findings_table(cells, compared_groups(cells)))


def with_auroc(made: CellResult, diagonal: float, end: float) -> CellResult:
    matrix = np.full(made.auroc.shape, 0.5)
    np.fill_diagonal(matrix, diagonal)
    matrix[-1] = end
    return replace(made, auroc=matrix)


def test_the_leader_is_named_with_the_best_of_another_method_and_their_seeds() -> None:
    cells = [
        *(with_auroc(cell("dinosaur", seed=seed), 0.9, 0.9) for seed in (0, 1)),
        with_auroc(cell("dinosaur:fast"), 0.88, 0.88),
        with_auroc(cell("patchcore"), 0.8, 0.8),
        with_auroc(cell(CONTROL), 0.99, 0.99),  # a control wins nothing
    ]
    text = said(cells)
    assert "| mtd-color | dinosaur has the highest image AUROC, 0.900 ± 0.000; " in text
    assert (
        "the best of the other methods is patchcore with 0.800 (0.100 less); one of the two rests on one seed." in text
    )


def test_forgetting_names_who_lost_most_and_counts_them() -> None:
    cells = [with_auroc(cell("dne"), 0.9, 0.6), with_auroc(cell("iuf"), 0.9, 0.9), with_auroc(cell("ucad"), 0.5, 0.1)]
    text = said(cells)
    # The end of the diagonal is the end of the sequence: (0.9 + 0.9 + 0.6) / 3.
    assert "dne on mtd-color lost most, from 0.800 when its tasks were just learned to 0.600" in text
    assert "of 2 rows that had learned something (at least 0.6), 1 lost 0.02 or more" in text
    assert "No method lost 0.02 or more" in said([with_auroc(cell("iuf"), 0.9, 0.9)])


def test_light_is_said_only_where_it_separates_a_task() -> None:
    control = cell(CONTROL, tasks=2, gap=4)
    meter = replace(cell("dne", tasks=2), final=control.final, auroc=control.auroc)
    overlapping = cell(CONTROL, tasks=2, gap=2.5)
    control, meter = (replace(each, final=overlapping.final) for each in (control, meter))
    assert "On mtd-color, brightness alone separates mtd-color-01 and mtd-color-02" in said([control, meter])
    assert "| light |" not in said([cell(CONTROL, tasks=2, gap=0.2), cell("dne", tasks=2)])


def test_settings_that_were_chosen_on_the_test_images_are_named_only_for_the_scenarios_they_were_chosen_on() -> None:
    cells = [cell("dinosaur"), cell("dinosaur:paper"), cell("patchcore")]
    assert "| choice | Settings were chosen on these test images, so the rows are optimistic there: dinosaur (mtd-" in (
        text := said(cells)
    )
    assert "dinosaur:paper (" not in text.partition("| choice |")[2].partition("\n")[0]
    assert "| choice |" not in said([cell("dinosaur:paper"), cell("patchcore")])
