"""What the readers of public datasets have in common, and those of MPDD, BTAD and MVTec AD 2, on miniatures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dataset_miniatures import MINIATURES, make_btad, make_mpdd, make_mvtec_ad2, sample_names
from dinosaur_ad.datasets import (
    Scenario,
    btad_scenario,
    mpdd_scenario,
    mvtec_ad2_scenario,
    real_iad_scenario,
    visa_scenario,
)
from dinosaur_ad.errors import InputError

READERS: dict[str, Callable[[Path], Scenario]] = {
    "visa": visa_scenario,
    "mpdd": mpdd_scenario,
    "real-iad": real_iad_scenario,
    "mvtec-ad-2": mvtec_ad2_scenario,
    "btad": btad_scenario,
}


@pytest.mark.parametrize("name", READERS)
def test_tasks_are_alphabetical_and_masks_are_those_of_the_images(tmp_path: Path, name: str) -> None:
    make, _, categories = MINIATURES[name]
    scenario = READERS[name](make(tmp_path, *reversed(categories)))
    assert [task.name for task in scenario.tasks] == list(categories)
    assert scenario.licence.startswith("CC BY")
    assert scenario.citation
    assert f"{len(categories)} of " in scenario.description
    for task in scenario.tasks:
        labels = [sample.label for sample in task.test]
        assert labels == sorted(labels)  # normal ones first
        assert {sample.kind for sample in task.test if sample.label == 0} == {"good"}
        for sample in (*task.train, *task.validation, *task.test):
            mask = sample.mask()
            assert mask is not None
            assert sample.image().shape == (*mask.shape, 3)
            assert mask.sum() == 64 * sample.label
            assert mask[:8, :8].all() == bool(sample.label)


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_dataset_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    for root in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(InputError, match=root.name) as problem:
            READERS[name](root)
        assert "\n" not in str(problem.value)


# Folders


def test_mpdd_is_read_like_mvtec(tmp_path: Path) -> None:
    (task,) = mpdd_scenario(make_mpdd(tmp_path, "tubes")).tasks
    assert sample_names(task)["test"] == [
        *("test/good/004.png", "test/good/005.png", "test/scratches/900.png", "test/scratches/901.png"),
    ]
    (tmp_path / "tubes/ground_truth/scratches/901_mask.png").unlink()
    with pytest.raises(InputError, match=r"missing tubes/ground_truth/scratches/901_mask\.png;"):
        mpdd_scenario(tmp_path)


@pytest.mark.parametrize("category", ["01", "02", "03"])
def test_btad_has_images_and_masks_of_either_extension(tmp_path: Path, category: str) -> None:
    (task,) = btad_scenario(make_btad(tmp_path, category)).tasks
    assert [(sample.label, sample.kind) for sample in task.test] == [(0, "good")] * 2 + [(1, "ko")] * 2
    assert len(task.train) == 4
    next((tmp_path / category / "ground_truth/ko").glob("9001.*")).unlink()
    with pytest.raises(InputError, match=rf"BTAD layout: missing {category}/ground_truth/ko/9001\.png;"):
        btad_scenario(tmp_path)


def test_a_btad_product_without_normals_says_where_they_belong(tmp_path: Path) -> None:
    make_btad(tmp_path, "01")
    (tmp_path / "01/train").rename(tmp_path / "01/learn")
    with pytest.raises(InputError, match="missing 01/train/ok;"):
        btad_scenario(tmp_path)


def test_of_mvtec_ad_2_only_what_has_labels_is_tested(tmp_path: Path) -> None:
    (task,) = mvtec_ad2_scenario(make_mvtec_ad2(tmp_path, "can")).tasks
    assert sample_names(task)["validation"] == ["validation/good/300_regular.png"]
    assert sample_names(task)["test"] == [
        "test_public/good/004_overexposed.png",
        "test_public/good/005_overexposed.png",
        "test_public/bad/900_regular.png",
        "test_public/bad/901_regular.png",
    ]
    assert {sample.kind for sample in task.test} == {"good", "bad"}  # the masks are no kind of defect


def test_an_incomplete_mvtec_ad_2_says_what_it_lacks(tmp_path: Path) -> None:
    make_mvtec_ad2(tmp_path, "can")
    (tmp_path / "can/validation/good/300_regular.png").unlink()
    (tmp_path / "can/test_public/ground_truth/bad/900_regular_mask.png").unlink()
    lacks = r"missing can/validation/good, can/test_public/ground_truth/bad/900_regular_mask\.png;"
    with pytest.raises(InputError, match=lacks):
        mvtec_ad2_scenario(tmp_path)
