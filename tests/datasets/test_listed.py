"""VisA and Real-IAD, which list their images in a file: on miniatures, and with lists that cannot be trusted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dataset_miniatures import (
    convert_visa,
    make_real_iad,
    make_visa,
    read_visa_table,
    real_iad_list,
    sample_names,
    write_visa_table,
)
from dinosaur_ad.datasets import real_iad_scenario, visa_scenario
from dinosaur_ad.errors import InputError

# VisA


@pytest.mark.parametrize("inside", [".", "1cls", "visa_pytorch"])
@pytest.mark.parametrize("ending", ["", "_mask"])
def test_visa_is_the_same_as_published_and_converted(tmp_path: Path, inside: str, ending: str) -> None:
    published = make_visa(tmp_path / "VisA", "pcb1", "candle")
    convert_visa(published, tmp_path / "converted" / inside, ending)
    here, there = visa_scenario(published), visa_scenario(tmp_path / "converted")
    assert here.description == there.description
    for one, other in zip(here.tasks, there.tasks, strict=True):
        assert sample_names(one) == sample_names(other)
        for a, b in zip((*one.train, *one.test), (*other.train, *other.test), strict=True):
            assert (a.label, a.kind, a.key()) == (b.label, b.kind, b.key())


def test_visa_objects_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    scenario = visa_scenario(make_visa(tmp_path, "pcb1", listed=("candle",)))
    assert [task.name for task in scenario.tasks] == ["pcb1"]
    assert "1 of 12 official categories (missing: candle, capsules" in scenario.description


def test_visa_without_its_table_is_refused(tmp_path: Path) -> None:
    (make_visa(tmp_path, "pcb1") / "split_csv/1cls.csv").unlink()
    with pytest.raises(InputError, match=r"has no split_csv/1cls\.csv, which says what is trained on"):
        visa_scenario(tmp_path)


def test_listed_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    make_visa(tmp_path, "pcb1")
    (tmp_path / "pcb1/Data/Images/Normal/0002.JPG").unlink()
    (tmp_path / "pcb1/Data/Masks/Anomaly/001.png").unlink()
    with pytest.raises(InputError, match=r"lacks pcb1/Data/Images/Normal/0002\.JPG, pcb1/Data/Masks/Anomaly/001\.png,"):
        visa_scenario(tmp_path)


OUTSIDE = ["/etc/hostname", "../outside.JPG", "pcb1/Data/../../../outside.JPG", r"..\outside.JPG", r"C:\outside.JPG"]


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("column", [3, 4])
def test_a_table_that_leads_out_of_the_folder_is_refused(tmp_path: Path, path: str, column: int) -> None:
    (tmp_path / "outside.JPG").touch()
    root = make_visa(tmp_path / "visa", "pcb1")
    rows = read_visa_table(root)
    rows[-1][column] = path
    write_visa_table(root, rows)
    with pytest.raises(InputError, match="which leads out of the dataset's folder") as problem:
        visa_scenario(root)
    assert f"lists '{path}'" in str(problem.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[0].__setitem__(1, "validation"),
        lambda rows: rows[0].__setitem__(2, "good"),
        lambda rows: rows[0].__setitem__(3, ""),
        lambda rows: rows.insert(0, ["pcb1"]),
    ],
)
def test_a_table_with_other_contents_is_refused(tmp_path: Path, change: Callable[[list[list[str]]], None]) -> None:
    rows = read_visa_table(make_visa(tmp_path, "pcb1"))
    change(rows)
    write_visa_table(tmp_path, rows)
    with pytest.raises(InputError, match=r"1cls\.csv' is not VisA's table with the columns object, split, label"):
        visa_scenario(tmp_path)


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"\xff\xfe\x00", b'object,split\n"\x00'])
def test_a_damaged_table_is_refused(tmp_path: Path, content: bytes) -> None:
    (make_visa(tmp_path, "pcb1") / "split_csv/1cls.csv").write_bytes(content)
    with pytest.raises(InputError, match=r"1cls\.csv' is not VisA's table"):
        visa_scenario(tmp_path)


def test_an_image_in_both_splits_is_refused(tmp_path: Path) -> None:
    rows = read_visa_table(make_visa(tmp_path, "pcb1"))
    write_visa_table(tmp_path, [*rows, ["pcb1", "test", *rows[0][2:]]])
    with pytest.raises(InputError, match=r"lists 'pcb1/Data/Images/Normal/0003\.JPG' 2 times"):
        visa_scenario(tmp_path)


def test_listed_masks_may_be_unknown_but_not_incomplete(tmp_path: Path) -> None:
    rows = read_visa_table(make_visa(tmp_path, "pcb1"))
    rows[-1][4] = ""
    write_visa_table(tmp_path, rows)
    with pytest.raises(InputError, match=r"lists no mask for pcb1/Data/Images/Anomaly/001\.JPG;"):
        visa_scenario(tmp_path)
    rows[-2][4] = ""
    write_visa_table(tmp_path, rows)
    (task,) = visa_scenario(tmp_path).tasks
    assert [sample.mask() for sample in task.test if sample.label == 1] == [None, None]


@pytest.mark.parametrize(
    ("kept", "lacks"),
    [
        ("train", "lists no normal test images and no anomalous test images of 'pcb1'"),
        ("test", "lists no training images of 'pcb1'"),
        ("nothing", "lists no training images and no normal test images and no anomalous test images of 'pcb1'"),
    ],
)
def test_a_table_without_a_split_is_refused(tmp_path: Path, kept: str, lacks: str) -> None:
    rows = read_visa_table(make_visa(tmp_path, "pcb1"))
    write_visa_table(tmp_path, [row for row in rows if row[1] == kept])
    with pytest.raises(InputError, match=lacks):
        visa_scenario(tmp_path)


def test_training_on_defects_is_refused(tmp_path: Path) -> None:
    rows = read_visa_table(make_visa(tmp_path, "pcb1"))
    rows[-1][1] = "train"  # as in VisA's tables for two classes
    write_visa_table(tmp_path, rows)
    with pytest.raises(InputError, match=r"would learn from 'train/bad/001\.JPG', which is 'bad'"):
        visa_scenario(tmp_path)


# Real-IAD


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("images", ["realiad_1024", "realiad_512", "realiad_256", "realiad_raw"])
def test_real_iad_is_found_in_each_resolution(tmp_path: Path, nested: bool, images: str) -> None:
    scenario = real_iad_scenario(make_real_iad(tmp_path, "usb", images=images, nested=nested))
    assert f"all five views, images of {images}, 1 of 30 official categories" in scenario.description


def test_the_largest_usual_resolution_of_real_iad_is_read(tmp_path: Path) -> None:
    for images in ("realiad_raw", "realiad_256", "realiad_1024"):
        make_real_iad(tmp_path, "usb", images=images)
    assert "images of realiad_1024," in real_iad_scenario(tmp_path).description


def set_views(root: Path, **changes: Any) -> None:
    """Change the last test entry of the list for ``usb``, which is a view without a visible defect."""
    path = real_iad_list(root, "usb")
    document = json.loads(path.read_text())
    document["test"][-1].update(changes)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("kind", ["OK", "HS"])
def test_a_view_that_does_not_show_the_defect_is_normal(tmp_path: Path, kind: str) -> None:
    set_views(make_real_iad(tmp_path, "usb"), anomaly_class=kind)
    (task,) = real_iad_scenario(tmp_path).tasks
    labels = {sample.name.split("/", 1)[1]: (sample.label, sample.kind) for sample in task.test}
    assert len(task.train) == 8
    assert labels["NG/HS/S0001/usb_0001_NG_HS_C1_20231021.jpg"] == (1, "HS")
    assert labels["NG/HS/S0001/usb_0001_NG_HS_C2_20231021.jpg"] == (0, "good")
    assert sum(label for label, _ in labels.values()) == 3


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.parametrize("key", ["image_path", "mask_path"])
def test_a_list_that_leads_out_of_the_folder_is_refused(tmp_path: Path, path: str, key: str) -> None:
    set_views(make_real_iad(tmp_path, "usb"), anomaly_class="HS", **{key: path})
    with pytest.raises(InputError, match="which leads out of the dataset's folder"):
        real_iad_scenario(tmp_path)


def test_a_prefix_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    path = real_iad_list(make_real_iad(tmp_path, "usb"), "usb")
    document = json.loads(path.read_text())
    document["meta"]["prefix"] = "../realiad_512"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="which leads out of the dataset's folder"):
        real_iad_scenario(tmp_path)


def test_views_that_are_not_there_are_named(tmp_path: Path) -> None:
    make_real_iad(tmp_path, "usb")
    (tmp_path / "realiad_1024/usb/OK/S0000/usb_0000_OK_C2_20231021.jpg").unlink()
    with pytest.raises(InputError, match=r"lacks usb/OK/S0000/usb_0000_OK_C2_20231021\.jpg, listed in "):
        real_iad_scenario(tmp_path)


def test_images_without_their_list_are_refused_and_a_list_without_images_is_left_out(tmp_path: Path) -> None:
    make_real_iad(tmp_path, "audiojack", "usb")
    (tmp_path / "realiad_1024/audiojack").rename(tmp_path / "elsewhere")
    assert [task.name for task in real_iad_scenario(tmp_path).tasks] == ["usb"]
    real_iad_list(tmp_path, "usb").unlink()
    with pytest.raises(InputError, match=r"has no realiad_jsons/usb\.json; extract realiad_jsons\.zip there"):
        real_iad_scenario(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"meta": {"prefix": "usb/"}, "train": [], "test": []}',
        '{"meta": {"prefix": "usb/", "normal_class": "OK"}, "train": []}',
        '{"meta": {"prefix": "usb/", "normal_class": "OK"}, "train": 5, "test": []}',
        '{"meta": {"prefix": "usb/", "normal_class": "OK"}, "train": ["a.jpg"], "test": []}',
        '{"meta": {"prefix": 1, "normal_class": "OK"}, "test": [], '
        '"train": [{"image_path": "a.jpg", "mask_path": null, "anomaly_class": "OK"}]}',
        '{"meta": {"prefix": "usb/", "normal_class": "OK"}, "test": [], '
        '"train": [{"image_path": 7, "mask_path": null, "anomaly_class": "OK"}]}',
        '{"meta": {"prefix": "usb/", "normal_class": "OK"}, "test": [], '
        '"train": [{"image_path": "a.jpg", "mask_path": ["b.png"], "anomaly_class": "OK"}]}',
    ],
)
def test_a_damaged_list_is_refused(tmp_path: Path, text: str) -> None:
    real_iad_list(make_real_iad(tmp_path, "usb"), "usb").write_text(text)
    with pytest.raises(InputError, match=r"usb\.json' is not a list of Real-IAD with meta") as problem:
        real_iad_scenario(tmp_path)
    assert "\n" not in str(problem.value)
