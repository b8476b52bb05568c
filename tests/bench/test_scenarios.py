"""Scenarios by name, on tiny trees made here and, where DINOSAUR_DATA names a folder, on the real sets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dataset_miniatures import MINIATURES, convert_visa, make_visa
from dinosaur_ad.bench import scenarios
from dinosaur_ad.bench.public_datasets import DATASETS
from dinosaur_ad.bench.scenarios import data_status, describe_table, list_scenarios, open_scenario
from dinosaur_ad.datasets import FileSample, draw_drift, mtd
from dinosaur_ad.errors import InputError

NAMES = [
    *("mvtec-ad", "mvtec-ad-bottle", "mvtec-loco", "mtd-color", "mtd-blur", "mtd-geo", "mtd-geo-literal"),
    *("visa", "mpdd", "real-iad", "mvtec-ad-2", "btad"),
    *("synthetic", "synthetic-color", "synthetic-blur", "synthetic-geo", "synthetic-tiny"),
]
BUILT_IN = [name for name in NAMES if name.startswith("synthetic")]


REAL = os.environ.get("DINOSAUR_DATA")


@pytest.fixture(autouse=True)
def _no_data_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DINOSAUR_DATA", raising=False)


def touch(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def category(root: Path, name: str) -> None:
    touch(root / name, "train/good/0.png", "test/good/0.png", "test/crack/0.png", "ground_truth/crack/0_mask.png")


def tiny_mtd(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(root, *(f"MT_Free/Imgs/{n}.jpg" for n in range(4)), "MT_Crack/Imgs/9.jpg", "MT_Crack/Imgs/9.png")
    train, _ = mtd.split_names([f"{n}.jpg" for n in range(4)], 2)
    monkeypatch.setattr(mtd, "MTD_FOLDERS", {"MT_Free": 4, "MT_Crack": 1})
    monkeypatch.setattr(mtd, "MTD_TRAIN_COUNT", 2)
    monkeypatch.setattr(mtd, "MTD_TRAIN_SHA256", mtd.names_sha256(train))


def test_the_registry_has_the_papers_protocols_and_some_that_need_no_data() -> None:
    assert list(list_scenarios()) == NAMES
    assert {name for name, spec in list_scenarios().items() if spec.dataset is None} == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_is_built_in_opens_under_its_own_name(name: str) -> None:
    scenario = open_scenario(name, seed=3)
    assert scenario.name == name
    assert len(scenario.tasks) == list_scenarios()[name].tasks
    assert scenario == open_scenario(name, seed=3)
    assert scenario != open_scenario(name, seed=4)
    assert data_status(name).state == "built in"
    drifting = name.removeprefix("synthetic-") in ("color", "blur", "geo")
    assert (scenario.replay, scenario.same_images) == (("widened", True) if drifting else ("stored", False))


@pytest.mark.parametrize("folder", ["mvtec_ad", "mvtec_anomaly_detection", "mvtec"])
def test_a_dataset_is_found_under_each_of_its_names(tmp_path: Path, folder: str) -> None:
    category(tmp_path / folder, "screw")
    category(tmp_path / folder, "bottle")
    scenario = open_scenario("mvtec-ad", tmp_path)
    assert scenario.name == "mvtec-ad"
    assert [task.name for task in scenario.tasks] == ["bottle", "screw"]
    assert open_scenario("mvtec-ad", tmp_path / folder) == scenario  # the dataset itself instead of what holds it


def test_the_data_folder_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    category(tmp_path / "set" / "mvtec_ad", "bottle")
    (tmp_path / "given").mkdir()
    monkeypatch.setenv("DINOSAUR_DATA", str(tmp_path / "set"))
    assert len(open_scenario("mvtec-ad").tasks) == 1
    with pytest.raises(InputError, match="given' has no folder 'mvtec_ad'"):  # the argument comes first
        open_scenario("mvtec-ad", tmp_path / "given")


def test_a_partial_dataset_runs_and_says_so(tmp_path: Path) -> None:
    category(tmp_path / "mvtec_ad", "screw")
    category(tmp_path / "mvtec_ad", "our_gearbox")
    assert [task.name for task in open_scenario("mvtec-ad", tmp_path).tasks] == ["screw"]
    status = data_status("mvtec-ad", tmp_path)
    assert status.state == "partial"
    assert "1 of 15 categories" in status.detail
    assert status.detail.endswith(": screw")


def test_own_categories_do_not_pass_for_mvtec(tmp_path: Path) -> None:
    category(tmp_path / "mvtec_ad", "our_gearbox")
    with pytest.raises(InputError, match=r"holds none of the categories of MVTec-AD .* write folder:"):
        open_scenario("mvtec-ad", tmp_path)


def test_missing_data_says_what_to_download_from_where_under_which_licence(tmp_path: Path) -> None:
    for name, spec in list_scenarios().items():
        if spec.dataset is None:
            continue
        with pytest.raises(InputError) as problem:
            open_scenario(name, tmp_path)
        sentence = str(problem.value)
        for word in (name, str(tmp_path), *spec.dataset.folders, spec.dataset.url, spec.dataset.licence, "--data"):
            assert word in sentence
        if spec.dataset.archive is not None:
            archive, sha256 = spec.dataset.archive
            assert f"SHA-256 of {archive}: {sha256[:16]}..." in sentence
        assert "\n" not in sentence
        assert data_status(name, tmp_path).state == "missing"
    with pytest.raises(InputError, match=r"no data folder was given to look for 'mtd' in; .* --data or DINOSAUR_DATA"):
        open_scenario("mtd-geo")
    with pytest.raises(InputError, match="the data folder 'nowhere' does not exist"):
        open_scenario("mtd-geo", Path("nowhere"))


def test_an_incomplete_dataset_says_which_files_are_missing(tmp_path: Path) -> None:
    category(tmp_path / "mvtec_ad", "bottle")
    (tmp_path / "mvtec_ad/bottle/ground_truth/crack/0_mask.png").unlink()
    with pytest.raises(InputError, match=r"missing bottle/ground_truth/crack/0_mask\.png"):
        open_scenario("mvtec-ad", tmp_path)
    status = data_status("mvtec-ad", tmp_path)
    assert status.state == "missing"
    assert "bottle/ground_truth/crack/0_mask.png" in status.detail


@pytest.mark.parametrize("folder", ["mtd", "Magnetic-tile-defect-datasets.-master"])
def test_mtd_scenarios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    tiny_mtd(tmp_path / folder, monkeypatch)
    for name in ("mtd-color", "mtd-blur", "mtd-geo", "mtd-geo-literal"):
        scenario = open_scenario(name, tmp_path, seed=1)
        assert (scenario.name, len(scenario.tasks)) == (name, 10)
        kind = name.removeprefix("mtd-")
        assert f"drift: {kind}," in scenario.description
        sample = scenario.tasks[1].train[0]
        assert isinstance(sample, FileSample)
        assert sample.drift == draw_drift(kind, 2, sample.name, seed=1)  # type: ignore[arg-type]
        assert (scenario.replay, scenario.same_images) == ("widened", True)
        assert data_status(name, tmp_path).state == "ready"


@pytest.mark.parametrize("name", MINIATURES)
def test_public_datasets_are_found_as_published_and_their_state_is_told(tmp_path: Path, name: str) -> None:
    make, folder, categories = MINIATURES[name]
    make(tmp_path / folder, *categories)
    scenario = open_scenario(name, tmp_path)
    assert (scenario.name, [task.name for task in scenario.tasks]) == (name, list(categories))
    assert (scenario.replay, scenario.same_images) == ("stored", False)
    status, official = data_status(name, tmp_path), DATASETS[name].categories
    assert (status.state, status.tasks) == ("partial", 2)
    assert f"2 of {len(official)} categories" in status.detail
    make(tmp_path / folder, *official)
    assert (data_status(name, tmp_path).state, data_status(name, tmp_path).tasks) == ("ready", len(official))
    assert [task.name for task in open_scenario(name, tmp_path).tasks] == sorted(official)
    assert list_scenarios()[name].tasks == len(official)


@pytest.mark.parametrize("name", MINIATURES)
def test_a_dataset_that_cannot_be_read_is_missing_and_says_why(tmp_path: Path, name: str) -> None:
    (tmp_path / DATASETS[name].folders[0]).mkdir()
    status = data_status(name, tmp_path)
    assert status.state == "missing"
    assert "holds no categories" in status.detail


def test_visa_as_its_authors_convert_it_is_found(tmp_path: Path) -> None:
    published = make_visa(tmp_path / "original", "candle")
    convert_visa(published, tmp_path / "VisA_pytorch" / "1cls")
    assert [task.name for task in open_scenario("visa", tmp_path).tasks] == ["candle"]


@pytest.mark.parametrize("name", [name for name, dataset in DATASETS.items() if dataset.archive is not None])
def test_checksums_of_archives_are_whole_in_the_docs(name: str) -> None:
    archive = DATASETS[name].archive
    assert archive is not None
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    assert all(word in page for word in archive)
    assert len(bytes.fromhex(archive[1])) == 32


def test_any_folder_of_categories_is_a_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    category(tmp_path / "line", "caps")
    name = f"folder:{tmp_path}/line"
    assert open_scenario(name).name == name
    assert [task.name for task in open_scenario(name).tasks] == ["caps"]
    assert data_status(name).state == "ready"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(open_scenario("folder:~/line").tasks) == 1
    with pytest.raises(InputError, match="nowhere' is not a folder"):
        open_scenario("folder:nowhere")
    with pytest.raises(InputError, match="write folder:PATH"):
        open_scenario("folder:")
    assert data_status("folder:nowhere").state == "missing"


@pytest.mark.parametrize("ask", [open_scenario, data_status])
def test_an_unknown_name_is_answered_with_those_there_are(ask: object) -> None:
    with pytest.raises(InputError, match="There is no scenario 'mvtec'") as problem:
        ask("mvtec")  # type: ignore[operator]
    assert all(name in str(problem.value) for name in (*NAMES, "folder:PATH"))


def test_the_table_has_a_row_for_each_and_looks_at_each_dataset_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    category(tmp_path / "mvtec_ad", "screw")
    asked: list[str] = []
    monkeypatch.setattr(scenarios, "data_status", lambda name, data: asked.append(name) or data_status(name, data))
    rows = {row.name: row for row in describe_table(tmp_path)}
    assert list(rows) == NAMES
    assert (rows["mvtec-ad"].tasks, rows["mvtec-ad"].state) == ("1 of 15", "partial")
    assert (rows["mtd-geo"].tasks, rows["mtd-geo"].state) == ("10", "missing")
    assert (rows["synthetic"].tasks, rows["synthetic"].state) == ("5", "built in")
    assert [name for name in asked if name.startswith("mtd")] == ["mtd-color"]


@pytest.mark.skipif(REAL is None, reason="DINOSAUR_DATA is not set: this test needs the real images it points to")
def test_the_real_data_is_recognised() -> None:
    rows = {row.name: row for row in describe_table(Path(REAL or ""))}
    assert {rows[f"mtd-{drift}"].state for drift in ("color", "blur", "geo", "geo-literal")} == {"ready"}
    assert {rows[name].state for name in ("mvtec-ad", "mvtec-loco")} <= {"ready", "partial"}
