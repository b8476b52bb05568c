"""Only results that were made alike are averaged or put into one table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from report_factory import cell

from dinosaur_ad.bench.report import tables
from dinosaur_ad.bench.report.row_groups import group_cells, short_names
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import get_method


def test_groups_come_in_the_papers_order() -> None:
    pairs = [("dinosaur", "synthetic"), ("dinosaur", "mtd-blur"), ("patchcore", "mtd-blur"), ("own", "mvtec-ad")]
    groups = group_cells([cell(method, scenario) for method, scenario in pairs])
    assert [(group.method, group.scenario) for group in groups] == [pairs[3], pairs[2], pairs[1], pairs[0]]


def test_the_same_cell_found_twice_counts_once_and_keeps_its_maps() -> None:
    (group,) = group_cells([cell(), cell(maps=True), cell()])
    assert group.seeds == (0,)
    assert group.first.final[0].maps is not None


def test_the_same_cell_with_other_scores_is_refused() -> None:
    other = cell()
    other.final[0].scores[3] += 1
    with pytest.raises(InputError, match="dinosaur:paper on mtd-color, seed 0 was found twice with different scores"):
        tables([cell(), other])


def test_other_settings_are_refused_and_both_are_named() -> None:
    with pytest.raises(InputError, match=r"with ratio 0.1 \(seed 0\) and with 0.2 \(seed 1\)"):
        tables([cell(seed=0), cell(seed=1, settings={"ratio": 0.2})])


def test_another_encoder_is_refused() -> None:
    with pytest.raises(InputError, match=r"'one'.*'another'"):
        tables([cell(seed=0, description="one"), cell(seed=1, description="another")])


def test_settings_that_were_stored_equal_those_that_were_not() -> None:
    fresh, stored = cell(seed=0, settings={"layers": (4, 5)}), cell(seed=1, settings={"layers": [4, 5]})
    assert len(group_cells([fresh, stored])) == 1


def test_another_number_of_tasks_is_refused_and_both_are_named() -> None:
    with pytest.raises(InputError, match=r"seed 0, 3 tasks.*seed 1, 2 tasks"):
        tables([cell(seed=0, tasks=3), cell(seed=1, tasks=2)])


def test_other_images_are_refused_for_one_seed_and_between_methods() -> None:
    with pytest.raises(InputError, match=r"different images by patchcore .* and dinosaur"):
        tables([cell("dinosaur", checksum="one"), cell("patchcore", checksum="another")])


def test_fixed_datasets_must_be_the_same_for_all_seeds_but_drawn_ones_need_not() -> None:
    with pytest.raises(InputError, match="different images"):
        tables([cell(scenario="mvtec-ad", seed=0, checksum="one"), cell(scenario="mvtec-ad", seed=1, checksum="two")])
    drawn = group_cells([cell(scenario="mtd-color", seed=0, checksum="one"), cell(seed=1, checksum="two")])
    assert drawn[0].seeds == (0, 1)


def test_nan_scores_do_not_make_a_cell_differ_from_itself() -> None:
    pair = [cell(), cell()]
    for each in pair:
        each.final[0].scores[0] = np.nan
    assert len(group_cells([pair[0], replace(pair[1])])[0].cells) == 1


def test_short_names_stay_unique() -> None:
    names = ["wood-1", "wood-2", "wood"]
    assert len(set(short_names(names))) == 3


def test_a_setting_that_older_results_lack_does_not_part_them_from_newer_ones() -> None:
    """A field says what results from before it were made with; only another value than that is another setup."""
    settings = get_method("patchcore:vit").config.identity()
    older = {key: value for key, value in settings.items() if key not in ("average", "compress", "image_share")}
    (group,) = group_cells(
        [cell("patchcore:vit", seed=0, settings=older), cell("patchcore:vit", seed=1, settings=settings)]
    )
    assert group.seeds == (0, 1)
    with pytest.raises(InputError, match="average"):
        group_cells(
            [
                cell("patchcore:vit", seed=0, settings=older),
                cell("patchcore:vit", seed=1, settings=settings | {"average": 1}),
            ]
        )
