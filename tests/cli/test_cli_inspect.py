from __future__ import annotations

import contextlib
import csv
import json
import re
import sys
from datetime import datetime
from pathlib import Path

import pytest
from cli_helpers import assert_refused

from dinosaur_ad.cli import main
from dinosaur_ad.cli._results import COLUMNS
from dinosaur_ad.store.codec import seal, unseal

Capture = pytest.CaptureFixture[str]


def edit_store(store: Path, change: dict[str, object]) -> None:
    document, _ = unseal((store / "store.json").read_bytes())
    document["header"]["encoder"] |= change.pop("encoder", {})
    (store / "store.json").write_bytes(seal(document | change))


def test_a_line_per_image_and_a_summary(capsys: Capture, store: Path, normals: Path, defect: Path) -> None:
    assert main(["inspect", str(normals / "001.png"), str(defect), "--store", str(store)]) == 0
    out, err = capsys.readouterr()
    good, bad = out.splitlines()
    pattern = r"(\w+) +(\w+) +([\d.]+) / ([\d.]+)  p ([\d.]+) \(.* good parts? would look this odd\)  (.+)"
    assert re.fullmatch(pattern, good).group(1, 2, 6) == ("normal", "screw", str(normals / "001.png"))
    assert re.fullmatch(pattern, bad).group(1, 2, 6) == ("anomalous", "screw", str(defect))
    assert good.index("/") == bad.index("/")
    announced, summary = err.splitlines()
    assert announced == "tiny-dinov2 on onnx-cpu, float32, preset tiny, seed 0"
    assert re.fullmatch(r"2 images: 1 anomalous, 0 unreadable; \d+ ms an image", summary)


def test_json_is_one_object_a_line_and_nothing_else(
    capsys: Capture, store: Path, normals: Path, defect: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    images = [str(normals / "001.png"), str(tmp_path / "broken.png"), str(defect)]
    assert main(["inspect", *images, "--store", str(store), "--json"]) == 3
    out, err = capsys.readouterr()
    good, broken, bad = (json.loads(line) for line in out.splitlines())
    wanted = {"path", "task", "score", "p_value", "verdict", "threshold", "encoder", "ms", "worst", "asked"}
    assert wanted | {"false_alarms"} <= good.keys()
    assert [row["path"] for row in (good, broken, bad)] == images
    assert (good["verdict"], bad["verdict"]) == ("normal", "anomalous")
    assert good["overlay"] is None
    assert datetime.fromisoformat(good["time"]).tzinfo is not None
    assert good["made_by"]["preset"] == "tiny"
    assert "three random DINOv2 blocks" in good["made_by"]["description"]
    assert broken.keys() == {"path", "error", "time"}
    assert "not an image" in broken["error"]
    assert "3 images: 1 anomalous, 1 unreadable" in err


def test_csv_has_a_header_and_a_row_per_image(
    capsys: Capture, store: Path, normals: Path, defect: Path, tmp_path: Path
) -> None:
    (tmp_path / "=broken\n.png").write_bytes(b"\x89PNG")
    argv = ["inspect", str(normals / "001.png"), str(defect), str(tmp_path), "--store", str(store), "--format", "csv"]
    with contextlib.chdir(tmp_path):
        assert main([*argv[:3], "=broken\n.png", *argv[4:], "--overlays", str(tmp_path / "seen")]) == 3
    out = capsys.readouterr().out
    assert out.count("\n") == 4
    good, bad, broken = csv.DictReader(out.splitlines())
    assert tuple(good) == COLUMNS
    assert (good["path"], good["verdict"], good["task"]) == (str(normals / "001.png"), "normal", "screw")
    assert float(bad["score"]) > float(bad["threshold"]) > float(good["score"])
    assert (float(bad["worst_right"]) - float(bad["worst_left"]), float(bad["false_alarms"])) == (14, 0.025)
    assert Path(bad["overlay"]).is_file()
    assert (bad["encoder"], bad["provider"], bad["precision"]) == ("tiny-dinov2", "onnx-cpu", "float32")
    assert float(bad["ms"]) > 0
    assert (broken["path"], broken["verdict"], broken["score"]) == ("'=broken\\n.png", "rejected", "")
    assert "not an image" in broken["reason"]


def test_json_names_the_overlay(capsys: Capture, store: Path, defect: Path, tmp_path: Path) -> None:
    argv = ["inspect", str(defect), "--store", str(store), "--format", "json", "--overlays", str(tmp_path / "seen")]
    assert main(argv) == 0
    assert Path(json.loads(capsys.readouterr().out)["overlay"]).is_file()


def test_exit_codes(capsys: Capture, store: Path, normals: Path, defect: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    options = ["--store", str(store), "--exit-code"]
    assert main(["inspect", str(normals / "001.png"), *options]) == 0
    assert main(["inspect", str(defect), *options]) == 1
    assert main(["inspect", str(defect), "--store", str(store)]) == 0
    capsys.readouterr()
    assert main(["inspect", str(defect), str(tmp_path / "empty.png"), *options]) == 1
    assert "skipped: " in capsys.readouterr().err
    assert main(["inspect", str(defect), str(tmp_path / "empty.png"), "--store", str(store)]) == 3
    assert main(["inspect", str(normals / "001.png"), str(tmp_path / "empty.png"), *options]) == 3


def test_a_lower_false_alarm_rate_raises_the_threshold(capsys: Capture, store: Path, normals: Path) -> None:
    thresholds = []
    for rate in ("0.2", "0.001"):
        argv = ["inspect", str(normals / "001.png"), "--store", str(store), "--json", "--false-alarms", rate]
        assert main(argv) == 0
        thresholds.append(json.loads(capsys.readouterr().out)["threshold"])
    assert thresholds[0] < thresholds[1]


def test_a_named_task_is_the_only_one_asked(capsys: Capture, store: Path, normals: Path) -> None:
    argv = ["inspect", str(normals / "001.png"), "--store", str(store), "--json", "--task", "washer"]
    assert main(argv) == 4  # a nut is no washer
    row = json.loads(capsys.readouterr().out)
    assert (row["task"], list(row["asked"]), row["verdict"]) == ("washer", ["washer"], "unknown")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_colour_only_on_a_terminal_and_without_no_color(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path, defect: Path, no_color: str
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["inspect", str(defect), "--store", str(store)]) == 0
    assert ("\x1b[31manomalous" in capsys.readouterr().out) == (not no_color)


def test_a_file_name_cannot_break_the_line(capsys: Capture, store: Path, normals: Path, tmp_path: Path) -> None:
    strange = tmp_path / "a\nnormal\x1b[2J.png"
    strange.write_bytes((normals / "001.png").read_bytes())
    assert main(["inspect", str(strange), "--store", str(store)]) == 0
    out = capsys.readouterr().out
    assert out.endswith("a\\nnormal\\x1b[2J.png\n")
    assert out.count("\n") == 1


def test_bad_requests_are_refused(capsys: Capture, store: Path, defect: Path) -> None:
    inspect = ["inspect", str(defect), "--store", str(store)]
    assert_refused(capsys, [*inspect, "--task", "scrw"], "did you mean screw?", store)
    assert_refused(capsys, [*inspect, "--false-alarms", "2"], "from 0.000001 to 0.5, got '2'", store)
    assert_refused(capsys, [*inspect, "--threads", "0"], "threads must be at least 1", store)
    assert_refused(capsys, ["inspect", "gone-*.png", "--store", str(store)], "matches no images", store)


def test_a_store_with_nothing_left_is_refused(capsys: Capture, store: Path, defect: Path) -> None:
    for name in ("screw", "washer"):
        assert main(["forget", name, "--store", str(store)]) == 0
    assert_refused(capsys, ["inspect", str(defect), "--store", str(store)], "no task has been taught", store)


def test_other_weights_than_those_of_the_store_are_refused(capsys: Capture, store: Path, defect: Path) -> None:
    edit_store(store, {"encoder": {"fingerprint": "0123456789abcdef"}})
    assert_refused(
        capsys, ["inspect", str(defect), "--store", str(store)], "with other weights of 'tiny-dinov2'", store
    )


def test_an_encoder_that_is_not_known_is_refused(capsys: Capture, store: Path, defect: Path) -> None:
    edit_store(store, {"encoder": {"encoder": "dinov9"}})
    assert_refused(capsys, ["inspect", str(defect), "--store", str(store)], "There is no encoder 'dinov9'", store)


def test_a_newer_format_is_refused(capsys: Capture, store: Path, defect: Path) -> None:
    edit_store(store, {"version": 99})
    assert_refused(capsys, ["inspect", str(defect), "--store", str(store)], "written by a newer DINOSaur", store)


@pytest.mark.parametrize("file", ["bank.safetensors", "prototype.safetensors", "manifest.json"])
def test_a_damaged_task_is_left_out_named_and_in_the_exit_code(
    capsys: Capture, store: Path, normals: Path, defect: Path, file: str
) -> None:
    path = next(store.glob(f"tasks/screw/*/{file}"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert main(["inspect", str(defect), str(normals / "001.png"), "--store", str(store), "--json"]) == 4
    out, err = capsys.readouterr()
    assert [json.loads(line)["left_out"] for line in out.splitlines()] == [["screw"]] * 2
    assert err.count("left out: the task 'screw' is damaged") == 1
    assert err.splitlines()[-1].startswith("2 images: ")
    assert "without 1 damaged task" in err
    # By its name it is refused: there is nothing to compare with.
    assert_refused(capsys, ["inspect", str(defect), "--store", str(store), "--task", "screw"], "screw", store)


def test_a_folder_that_is_no_store_is_refused(capsys: Capture, normals: Path, defect: Path) -> None:
    assert_refused(capsys, ["inspect", str(defect), "--store", str(normals)], "There is no store in", normals)
