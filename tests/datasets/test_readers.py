"""The dataset readers, on tiny trees made here and, where DINOSAUR_DATA names a folder, on the real sets."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dinosaur_ad.datasets import Scenario, Task, folder_task, loco_scenario, mtd, mtd_scenario, mvtec_scenario
from dinosaur_ad.errors import InputError


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def draw_mask(path: Path, column: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    mask = np.zeros((2, 4), np.uint8)
    mask[:, column] = 255
    Image.fromarray(mask).save(path)


def real(name: str) -> Path:
    folder = os.environ.get("DINOSAUR_DATA")
    if not folder or not (Path(folder) / name).is_dir():
        pytest.skip(f"set DINOSAUR_DATA to a folder that holds {name}/ to check the real set")
    return Path(folder) / name


def counts(task: Task) -> tuple[int, int, int, int]:
    """(train, validation, normal test, anomalous test) images."""
    bad = sum(sample.label for sample in task.test)
    return len(task.train), len(task.validation), len(task.test) - bad, bad


def check_pixels(scenario: Scenario) -> None:
    for task in scenario.tasks:
        for sample in (task.train[0], task.test[0], task.test[-1]):
            image, mask = sample.image(), sample.mask()
            assert mask is not None
            assert image.shape == (*mask.shape, 3)
            assert mask.any() == bool(sample.label)


# A plain folder


def test_a_plain_folder_is_a_task(tmp_path: Path) -> None:
    touch(tmp_path / "caps", "a.png", "monday/b.jpg", "readme.txt")
    touch(tmp_path / "check", "good/a.png", "dent/a.png", "scratch/a.png")
    task = folder_task(tmp_path / "caps", test=tmp_path / "check")
    assert task.name == "caps"
    assert [sample.name for sample in task.train] == ["train/a.png", "train/monday/b.jpg"]
    assert [(sample.label, sample.kind) for sample in task.test] == [(0, "good"), (1, "dent"), (1, "scratch")]
    assert task.test[1].mask() is None


def test_bad_plain_folders(tmp_path: Path) -> None:
    touch(tmp_path / "caps", "a.png")
    touch(tmp_path / "flat", "a.png")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="nowhere' is not a folder"):
        folder_task(tmp_path / "nowhere")
    with pytest.raises(InputError, match="empty' holds no images"):
        folder_task(tmp_path / "empty")
    with pytest.raises(InputError, match=r"flat/a\.png' has no label"):
        folder_task(tmp_path / "caps", test=tmp_path / "flat")
    with pytest.raises(InputError, match=r"test folder '.*empty' holds no images"):
        folder_task(tmp_path / "caps", test=tmp_path / "empty")


# MVTec-AD


def category(root: Path, name: str) -> Path:
    touch(root / name, "train/good/0.png", "train/good/1.webp", "test/good/0.png", "test/crack/0.bmp")
    Image.new("L", (4, 2)).save(root / name / "test/crack/0.bmp")
    draw_mask(root / name / "ground_truth/crack/0_mask.tif", column=3)
    return root / name


def test_mvtec_layout(tmp_path: Path) -> None:
    category(tmp_path, "screw")
    category(tmp_path, "bottle")
    touch(tmp_path, "license.txt", "notes/readme.txt")
    scenario = mvtec_scenario(tmp_path)
    assert scenario.name == "mvtec_ad"
    assert [task.name for task in scenario.tasks] == ["bottle", "screw"]
    assert counts(scenario.tasks[0]) == (2, 0, 1, 1)
    assert scenario.tasks[0].test[1].name == "test/crack/0.bmp"
    assert scenario.tasks[0].test[1].mask().tolist() == [[False, False, False, True]] * 2
    assert "2 of 15 official categories (missing: cable, capsule" in scenario.description
    assert "NC" in scenario.licence


def test_own_categories_are_not_called_mvtec(tmp_path: Path) -> None:
    category(tmp_path / "factory", "gearbox")
    scenario = mvtec_scenario(tmp_path / "factory")
    assert (scenario.name, scenario.licence, scenario.citation) == ("factory", "", "")
    assert scenario.tasks[0].name == "gearbox"


def test_masks_may_be_unknown_but_not_incomplete(tmp_path: Path) -> None:
    mask = category(tmp_path, "bottle") / "ground_truth/crack/0_mask.tif"
    mask.unlink()
    with pytest.raises(InputError, match=r"missing bottle/ground_truth/crack/0_mask\.png"):
        mvtec_scenario(tmp_path)
    mask.parent.rmdir()
    mask.parent.parent.rmdir()
    assert mvtec_scenario(tmp_path).tasks[0].test[1].mask() is None


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (["train/good/0.png", "train/good/1.webp"], "missing bottle/train/good;"),
        (["test/good/0.png"], "missing bottle/test/good;"),
        (["test/crack/0.bmp"], "missing bottle/test/<kind of defect>;"),
    ],
)
def test_incomplete_categories_say_what_they_lack(tmp_path: Path, lost: list[str], words: str) -> None:
    folder = category(tmp_path, "bottle")
    for name in lost:
        (folder / name).unlink()
    with pytest.raises(InputError, match=words):
        mvtec_scenario(tmp_path)


def test_wrong_roots_are_explained(tmp_path: Path) -> None:
    category(tmp_path, "bottle")
    with pytest.raises(InputError, match="bottle' is one category"):
        mvtec_scenario(tmp_path / "bottle")
    with pytest.raises(InputError, match="holds no categories"):
        mvtec_scenario(tmp_path / "bottle" / "train")
    with pytest.raises(InputError, match="nowhere' is not a folder"):
        mvtec_scenario(tmp_path / "nowhere")


# MVTec-LOCO


def loco_category(root: Path) -> Path:
    touch(root / "pushpins", "train/good/0.png", "validation/good/0.png", "test/good/0.png")
    image = touch(root / "pushpins", "test/logical_anomalies/7.png") / "test/logical_anomalies/7.png"
    Image.new("L", (4, 2)).save(image)
    for number, column in enumerate((0, 2)):
        draw_mask(root / f"pushpins/ground_truth/logical_anomalies/7/00{number}.png", column)
    return root / "pushpins"


def test_loco_unites_masks_and_keeps_validation_apart(tmp_path: Path) -> None:
    loco_category(tmp_path)
    scenario = loco_scenario(tmp_path)
    (task,) = scenario.tasks
    assert counts(task) == (1, 1, 1, 1)
    assert task.validation[0].name == "validation/good/0.png"
    assert task.test[1].kind == "logical_anomalies"
    assert task.test[1].mask().tolist() == [[True, False, True, False]] * 2
    assert "1 of 5 official" in scenario.description
    assert "pushpins has no structural_anomalies" in scenario.description


def test_incomplete_loco_says_what_it_lacks(tmp_path: Path) -> None:
    (loco_category(tmp_path) / "validation/good/0.png").unlink()
    touch(tmp_path / "pushpins", "test/structural_anomalies/1.png")
    with pytest.raises(InputError, match=r"pushpins/validation/good, .*structural_anomalies/1/000\.png;"):
        loco_scenario(tmp_path)


def configure(category: Path, text: str) -> None:
    (category / "defects_config.json").write_text(text)


def test_loco_reads_how_much_of_a_region_has_to_be_found(tmp_path: Path) -> None:
    folder = loco_category(tmp_path)
    assert loco_scenario(tmp_path).tasks[0].test[1].regions() is None
    entry = {"defect_name": "gone", "pixel_value": 255, "saturation_threshold": 0.5, "relative_saturation": True}
    configure(folder, json.dumps([entry, {**entry, "pixel_value": 7}]))
    normal, anomalous = loco_scenario(tmp_path).tasks[0].test
    assert normal.regions() == []
    assert [(mask.tolist(), area) for mask, area in anomalous.regions()] == [
        ([[True, False, False, False]] * 2, 1),
        ([[False, False, True, False]] * 2, 1),
    ]
    configure(folder, json.dumps([{**entry, "saturation_threshold": 400, "relative_saturation": False}]))
    assert [area for _, area in loco_scenario(tmp_path).tasks[0].test[1].regions()] == [2, 2]


@pytest.mark.parametrize(
    "text",
    [
        "[{",
        "{}[]",
        '[{"pixel_value": 255}]',
        '["gone"]',
        '[{"pixel_value": 255, "saturation_threshold": 1.5, "relative_saturation": true}]',
        '[{"pixel_value": 255, "saturation_threshold": 0, "relative_saturation": false}]',
        '[{"pixel_value": 255, "saturation_threshold": 0.5, "relative_saturation": 1}]',
    ],
)
def test_a_damaged_loco_configuration_is_refused(tmp_path: Path, text: str) -> None:
    configure(loco_category(tmp_path), text)
    with pytest.raises(InputError, match=r"defects_config\.json' is not a list of defects"):
        loco_scenario(tmp_path)


# MTD


def literal_split(names: list[str], count: int) -> set[str]:
    train: set[str] = set()
    while len(train) < count:
        rest = [name for name in names if name not in train]
        train.add(min(rest, key=lambda name: hashlib.sha256(name.encode()).hexdigest()))
    return train


def test_the_split_takes_the_smallest_hashes() -> None:
    names = [f"exp{n % 6}_num_{n * 37}.jpg" for n in range(40)]
    train, test = mtd.split_names(reversed(names), train_count=15)
    assert set(train) == literal_split(names, 15)
    assert sorted(train + test) == sorted(names)


@pytest.fixture
def tiny_mtd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six normals (two to train on) and two cracks in the original layout, with the constants to match."""
    for n in range(6):
        touch(tmp_path, f"MT_Free/Imgs/exp1_num_{n}.jpg", f"MT_Free/Imgs/exp1_num_{n}.png")
    for n in range(2):
        touch(tmp_path, f"MT_Crack/Imgs/exp2_num_{n}.jpg", f"MT_Crack/Imgs/exp2_num_{n}.png")
    train, _ = mtd.split_names([f"exp1_num_{n}.jpg" for n in range(6)], 2)
    monkeypatch.setattr(mtd, "MTD_FOLDERS", {"MT_Free": 6, "MT_Crack": 2})
    monkeypatch.setattr(mtd, "MTD_TRAIN_COUNT", 2)
    monkeypatch.setattr(mtd, "MTD_TRAIN_SHA256", mtd.names_sha256(train))
    return tmp_path


def test_mtd_without_drift_is_one_task(tiny_mtd: Path) -> None:
    (task,) = mtd_scenario(tiny_mtd).tasks
    assert counts(task) == (2, 0, 4, 2)
    assert task.test[-1].name == "MT_Crack/exp2_num_1.jpg"
    assert task.test[-1].kind == "crack"


@pytest.mark.parametrize("drift", ["color", "blur", "geo", "geo-literal"])
def test_mtd_drifts_over_ten_tasks_of_the_same_images(tiny_mtd: Path, drift: mtd.MtdDrift) -> None:
    scenario = mtd_scenario(tiny_mtd, drift)
    assert scenario.name == f"mtd-{drift}"
    assert [task.name for task in scenario.tasks] == [f"mtd-{drift}-{level:02d}" for level in range(1, 11)]
    assert len({tuple(sample.name for sample in (*t.train, *t.test)) for t in scenario.tasks}) == 1
    assert scenario == mtd_scenario(tiny_mtd, drift)
    another_seed = mtd_scenario(tiny_mtd, drift, seed=1)
    differs = [a.train + a.test != b.train + b.test for a, b in zip(scenario.tasks, another_seed.tasks, strict=True)]
    assert differs == [drift != "blur"] * 10  # blur has nothing to draw
    assert scenario.same_images
    assert not mtd_scenario(tiny_mtd).same_images


def test_mtd_gives_replay_its_training_images_from_the_widened_range(tiny_mtd: Path) -> None:
    scenario = mtd_scenario(tiny_mtd, "geo")
    assert scenario.replay == "widened"
    assert mtd_scenario(tiny_mtd).replay == "stored"
    task = scenario.tasks[9]
    assert [sample.path for sample in task.widened] == [sample.path for sample in task.train]
    assert len({sample.drift for sample in task.widened}) == 2  # redrawn for each image
    assert not {sample.drift for sample in task.widened} & {sample.drift for sample in task.train}
    assert task.widened != mtd_scenario(tiny_mtd, "geo", seed=1).tasks[9].widened


def test_a_geometric_task_has_one_transform_and_a_color_task_one_for_each_image(tiny_mtd: Path) -> None:
    def drifts(kind: mtd.MtdDrift) -> int:
        task = mtd_scenario(tiny_mtd, kind).tasks[4]
        return len({sample.drift for sample in (*task.train, *task.test)})

    assert drifts("geo") == 1
    assert drifts("color") == 8


def test_a_partial_mtd_is_refused(tiny_mtd: Path) -> None:
    (tiny_mtd / "MT_Free/Imgs/exp1_num_3.jpg").unlink()
    (tiny_mtd / "MT_Crack/Imgs/exp2_num_0.png").unlink()
    with pytest.raises(InputError, match=r"MT_Free/Imgs has 5 of 6 \.jpg files, 1 defective images have no"):
        mtd_scenario(tiny_mtd)


def test_renamed_mtd_files_are_refused(tiny_mtd: Path) -> None:
    for path in (tiny_mtd / "MT_Free/Imgs").glob("*.jpg"):
        path.rename(path.with_name(f"tile_{path.name}"))
    with pytest.raises(InputError, match="not the original ones"):
        mtd_scenario(tiny_mtd)


def test_an_unknown_drift_is_refused(tiny_mtd: Path) -> None:
    with pytest.raises(InputError, match="choose one of none, color, blur, geo, geo-literal"):
        mtd_scenario(tiny_mtd, "fog")  # type: ignore[arg-type]


# The real sets


def test_real_mtd() -> None:
    root = real("mtd")
    plain, drifted = mtd_scenario(root), mtd_scenario(root, "geo")
    assert counts(plain.tasks[0]) == (443, 0, 509, 392)
    assert len(drifted.tasks) == 10
    names = [sample.name.removeprefix("MT_Free/") for sample in plain.tasks[0].train]
    assert set(names) == literal_split([path.name for path in (root / "MT_Free/Imgs").glob("*.jpg")], 443)
    check_pixels(plain)
    check_pixels(drifted)


def test_real_mvtec() -> None:
    scenario = mvtec_scenario(real("mvtec_ad"))
    official = {"bottle": (209, 83), "cable": (224, 150), "grid": (264, 78), "screw": (320, 160)}
    official["transistor"] = (213, 100)
    found = {task.name: (len(task.train), len(task.test)) for task in scenario.tasks}
    assert found.items() >= official.items()
    check_pixels(scenario)


def test_real_loco() -> None:
    scenario = loco_scenario(real("mvtec_loco"))
    (juice,) = (task for task in scenario.tasks if task.name == "juice_bottle")
    assert len(juice.train) == 335
    assert sum(sample.kind == "logical_anomalies" for sample in juice.test) == 142
    check_pixels(scenario)
