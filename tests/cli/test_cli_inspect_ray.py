"""Batch inspection on a real Ray cluster of two worker processes: the words and codes of a local one."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import assert_refused

from dinosaur_ad.cli import main
from dinosaur_ad.cluster import fleet

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)


def documents(text: str) -> list[dict[str, Any]]:
    """What the lines say, but for when it was, how long it took and where the picture is."""
    rows = [json.loads(line) for line in text.splitlines()]
    for row in rows:
        row.get("made_by", {}).pop("threads", None)  # a worker has one thread, this process all cores
    return [{key: value for key, value in row.items() if key not in ("ms", "time", "overlay")} for row in rows]


def unpacked_stores() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("dinosaur-store-*"))


@pytest.mark.slow
def test_results_are_those_of_a_local_inspection(
    cluster: Any,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    store: Path,
    normals: Path,
    others: Path,
    defect: Path,
) -> None:
    folder = store.parent
    shutil.copytree(normals, folder / "images")
    shutil.copy(defect, folder / "images" / "defect.png")
    (folder / "images" / "010-broken.png").write_bytes(b"\x89PNG")
    monkeypatch.chdir(folder)
    argv = ["inspect", "images", str(others), "--store", "store", "--json", "--exit-code"]
    assert main(argv) == 1
    here = capsys.readouterr()
    before = unpacked_stores()
    assert main([*argv, "--engine", "ray", "--overlays", "overlays"]) == 1
    there = capsys.readouterr()

    assert len(documents(there.out)) == 24 + 20 + 2
    assert documents(there.out) == documents(here.out)
    assert re.sub(r"\d+ ms", "ms", there.err) == re.sub(r"\d+ ms", "ms", here.err)
    assert all(json.loads(line).get("ms", {"total": 1})["total"] > 0 for line in there.out.splitlines())
    assert len(list((folder / "overlays").rglob("*.png"))) == 24 + 20 + 1
    assert unpacked_stores() <= before


@pytest.mark.slow
def test_images_may_lie_behind_an_address(
    cluster: Any, capsys: Capture, store: Path, normals: Path, defect: Path
) -> None:
    broken = store.parent / "part 7.png"
    broken.write_bytes(defect.read_bytes()[:2000])
    images = [f"file://{normals}", f"file://{defect.parent}/d*.png", str(defect), broken.as_uri().replace("%20", " ")]
    assert main(["inspect", *images, "--store", str(store), "--json", "--engine", "ray", "--task", "screw"]) == 3
    *good, bad = documents(capsys.readouterr().out)
    assert [row["path"] for row in good] == [
        *(f"file://{path}" for path in sorted(normals.iterdir())),
        f"file://{defect}",
        str(defect),
    ]
    assert [row["verdict"] for row in good[-2:]] == ["anomalous", "anomalous"]
    # The same pixels at two places of a batch: matrix products may add them in another order.
    assert good[-2]["score"] == pytest.approx(good[-1]["score"], rel=1e-5)
    assert bad["path"] == f"file://{broken}"
    assert bad["error"].startswith(f"'file://{broken}' is damaged or cut short")


@pytest.mark.slow
def test_what_a_worker_refuses_is_one_sentence(
    cluster: Any, capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path, defect: Path
) -> None:
    monkeypatch.setattr(fleet, "__version__", "0.0.0")
    argv = ["inspect", str(defect), "--store", str(store), "--engine", "ray"]
    assert_refused(capsys, argv, "and this one 0.0.0; install the same version on all of them", store)


def test_more_threads_than_a_machine_has_are_refused(cluster: Any, capsys: Capture, store: Path, defect: Path) -> None:
    argv = ["inspect", str(defect), "--store", str(store), "--engine", "ray", "--threads", "64"]
    assert_refused(capsys, argv, "No machine of the Ray cluster has 64 cores for a worker", store)


@pytest.mark.usefixtures("no_ray")
class TestBeforeRayIsAsked:
    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            (["--task", "scrwe"], "There is no task 'scrwe'"),
            (["--false-alarms", "2"], "from 0.000001 to 0.5, got '2'"),
            (["--threads", "0"], "The number of threads must be at least 1"),
            ([], "This needs Ray; install it with: pip install '.[ray]'."),
        ],
    )
    def test_a_bad_question_is_refused(
        self, capsys: Capture, store: Path, defect: Path, options: list[str], sentence: str
    ) -> None:
        argv = ["inspect", str(defect), "--store", str(store), "--engine", "ray", *options]
        assert_refused(capsys, argv, sentence, store)

    def test_an_address_needs_the_engine(self, capsys: Capture, store: Path, defect: Path) -> None:
        argv = ["inspect", str(defect), "--store", str(store), "--address", "auto"]
        assert_refused(capsys, argv, "--address names a Ray cluster; add --engine ray", store)

    @pytest.mark.parametrize(
        ("image", "sentence"),
        [
            ("no-such-folder", "'no-such-folder' does not exist"),
            ("nothing://bucket/images", "cannot be opened: Protocol not known: nothing"),
            ("file:///no-such-folder", "'file:///no-such-folder' leads to no images"),
        ],
    )
    def test_images_that_are_not_there_are_refused(
        self, capsys: Capture, store: Path, image: str, sentence: str
    ) -> None:
        pytest.importorskip("fsspec", reason="fsspec is not installed (it comes with the extras 'bench' and 'ray')")
        assert_refused(capsys, ["inspect", image, "--store", str(store), "--engine", "ray"], sentence, store)

    def test_overlays_of_addresses_are_refused(self, capsys: Capture, store: Path, defect: Path) -> None:
        pytest.importorskip("fsspec", reason="fsspec is not installed (it comes with the extras 'bench' and 'ray')")
        argv = ["inspect", f"file://{defect}", "--store", str(store), "--engine", "ray", "--overlays", str(store / "o")]
        assert_refused(capsys, argv, "Overlays are drawn here, from files", store)
