"""The hyperparameter grid: every cell is what learning with its ratio and radius gives, and no work is done twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dinosaur_ad.bank import teaching
from dinosaur_ad.bench import grid as grid_module
from dinosaur_ad.bench.cache import DiskCache
from dinosaur_ad.bench.cell import OtherConfigurationError
from dinosaur_ad.bench.grid import GridPlan, GridResult, ScenarioGrid, load_grids, plan_grid, run_grid
from dinosaur_ad.bench.grid_scores import cell_scores
from dinosaur_ad.bench.lessons import lesson, photo
from dinosaur_ad.bench.metrics import ranked_auroc
from dinosaur_ad.bench.places import LocalPlace
from dinosaur_ad.bench.runner import RunOptions
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.cli import main
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.scoring import patch_distances
from dinosaur_ad.datasets import Scenario
from dinosaur_ad.datasets.synthetic import synthetic_drift_scenario
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Workbench
from dinosaur_ad.methods.dinosaur import DinosaurMethod, photo_features
from dinosaur_ad.methods.dinosaur.photo_features import PhotoFeatures

SCENARIO = "synthetic-tiny"  # two tasks of 8 training images
RATIOS, RADII = (0.25, 0.5, 1.0), (0, 1, 3)
TINY = {"encoder": "tiny-dinov2", "layers": "0+1", "size": "70"}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests: they ask for the same few images."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def where(tmp_path: Path, cache: Path) -> RunOptions:
    return RunOptions(str(tmp_path / "out"), cache=cache)


def tiny_plan(preset: str = "paper", **changes: Any) -> GridPlan:
    settings = TINY | changes.pop("settings", {})
    return plan_grid(preset, **{"ratios": RATIOS, "radii": RADII, "settings": settings, "minimum": 1} | changes)


def quiet(text: str) -> None:
    """Nobody listens."""


def made_up(scenario: str, value: float, **changes: Any) -> ScenarioGrid:
    """A grid of one ratio, two radii and one task."""
    fields: dict[str, Any] = {
        "preset": "paper",
        "encoder": {"description": "made up", "weights_sha256": "00"},
        "scenario": scenario,
        "seed": 0,
        "device": "cpu",
        "ratios": [0.1],
        "radii": [0, 1],
        "minimum": 20,
        "members": [[20]],
        "per_task": [[[value], [value + 0.1]]],
        "tasks": ["one"],
        "settings": {},
        "data": ["ab"],
        "environment": {},
        "seconds": 1.0,
    }
    return ScenarioGrid(**fields | changes)


# --- the scores of all cells ---


@pytest.mark.parametrize("top", [0.0, 0.2])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_all_cells_of_a_bank_are_what_each_would_be_alone(library: str, top: float) -> None:
    rng = np.random.default_rng(0)
    tokens, bank = rng.normal(size=(7, 4, 5, 6)), rng.normal(size=(4, 5, 9, 6))
    if library == "torch":
        torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
        tokens, bank = torch.from_numpy(tokens), torch.from_numpy(bank)
    sizes, radii = (1, 3, 3, 9), (0, 2, 6)  # a size twice, and a radius beyond the grid
    expected = [[np.asarray(pool(patch_distances(tokens, bank[:, :, :m], r), top)) for r in radii] for m in sizes]
    assert np.allclose(cell_scores(tokens, bank, sizes, radii, top), expected)


def test_images_are_compared_in_groups_without_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    tokens, bank = rng.normal(size=(5, 3, 3, 4)), rng.normal(size=(3, 3, 2, 4))
    together = cell_scores(tokens, bank, (1, 2), (0, 1), 0.0)
    monkeypatch.setattr("dinosaur_ad.bench.grid_scores.QUIET_PRODUCT", 2 * 2 * 4)  # two images at a time
    assert np.allclose(cell_scores(tokens, bank, (1, 2), (0, 1), 0.0), together)


# --- the grid ---


def similar_products(name: str, data: Path | None, seed: int) -> Scenario:
    """Two tasks so alike that the nearest prototype is often not that of the bank which finds an image most normal."""
    return synthetic_drift_scenario("color", seed, levels=(1, 2), train=8, test_normal=6, test_per_kind=2, size=70)


def aurocs_from_scratch(plan: GridPlan, scenario: Scenario, cache: Path, ratio: float, radius: int) -> list[float]:
    """What the method itself gives, taught with that ratio and radius."""
    config = replace(plan.config, ratio=ratio, radius=radius)
    method = DinosaurMethod(config, Workbench(plan.seed, "cpu", DiskCache(cache)))
    for index in range(len(scenario.tasks)):
        method.learn(lesson(scenario, index))
    return [
        ranked_auroc(method.score([photo(each) for each in task.test]).image, [each.label for each in task.test]).auroc
        for task in scenario.tasks
    ]


# Of 8 images in blocks of 3, what a later block is picked from depends on the ratio: prefixes would be wrong there.
@pytest.mark.parametrize("at_once", [1024, 3])
@pytest.mark.parametrize("preset", ["paper", "fast"])
def test_every_cell_is_what_learning_with_its_settings_gives(
    preset: str, at_once: int, where: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teaching, "LEARN_AT_ONCE", at_once)
    monkeypatch.setattr(grid_module, "open_scenario", similar_products)
    plan = tiny_plan(preset, seed=1)
    scenario = similar_products("", None, seed=1)
    (part,) = run_grid(plan, [scenario.name], where, quiet).parts
    expected = [[aurocs_from_scratch(plan, scenario, where.cache, ratio, r) for r in RADII] for ratio in RATIOS]
    assert np.allclose(part.per_task, expected, atol=1e-9)
    assert len(np.unique(part.auroc)) > 5  # cells that were all alike would prove nothing
    if at_once > 8:
        assert part.members == [[2, 2], [4, 4], [8, 8]]


def test_the_minimum_makes_cells_repeat_and_can_be_lifted(where: RunOptions, tmp_path: Path) -> None:
    (kept,) = run_grid(tiny_plan(minimum=4), [SCENARIO], where, quiet).parts
    assert (kept.minimum, kept.members) == (4, [[4, 4], [4, 4], [8, 8]])
    assert kept.repeated == len(RADII)
    assert kept.per_task[0] == kept.per_task[1] != kept.per_task[2]
    lifted = run_grid(tiny_plan(minimum=1), [SCENARIO], replace(where, out=str(tmp_path / "lifted")), quiet).parts[0]
    assert lifted.repeated == 0
    assert lifted.per_task[1:] == kept.per_task[1:]


def test_the_papers_minimum_hides_the_small_ratios() -> None:
    assert tiny_plan("paper", minimum=None).minimum == 20
    members = [[20, 20], [20, 20], [20, 22], [39, 44], [78, 88]]  # 391 and 443 images
    grid = made_up("x", 0.5, ratios=[0.01, 0.025, 0.05, 0.1, 0.2], members=members)
    assert grid.repeated == 2  # 2.5 % repeats 1 % for both radii, 5 % differs for one task


def test_torch_gives_the_same_grid(where: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
    expected = run_grid(tiny_plan("fast"), [SCENARIO], where, quiet)
    # As on a GPU: what is multiplied is a tensor, wherever it lies.
    monkeypatch.setattr(photo_features, "array_mover", lambda device: torch.from_numpy)
    moved = run_grid(tiny_plan("fast"), [SCENARIO], replace(where, out=str(tmp_path / "torch")), quiet)
    assert np.allclose(moved.mean, expected.mean, atol=0.02)  # a rounding may swap two images


def test_images_are_encoded_once(where: RunOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []
    encode = PhotoFeatures._encode

    def counted(self: PhotoFeatures, photos: Any, *how: Any) -> Any:
        encoded.extend(photo.key for photo in photos)
        return encode(self, photos, *how)

    monkeypatch.setattr(PhotoFeatures, "_encode", counted)
    run_grid(tiny_plan(), [SCENARIO], replace(where, cache=tmp_path / "cache"), quiet)
    scenario = open_scenario(SCENARIO)
    assert len(encoded) == len(set(encoded)) == sum(len(task.train) + len(task.test) for task in scenario.tasks)


# --- keeping ---


def test_a_finished_scenario_is_not_repeated(where: RunOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_grid(tiny_plan(), [SCENARIO], where, quiet)

    def fail(*_: Any) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(grid_module, "_measure", fail)
    said: list[str] = []
    again = run_grid(tiny_plan(), [SCENARIO], where, said.append)
    assert said == [f"{SCENARIO}: already done"]
    assert again == first
    document = json.loads((Path(where.out) / f"grid-paper-{SCENARIO}.json").read_text())
    assert (document["format"], document["kind"]) == (1, "grid")
    assert np.allclose(document["auroc"], first.mean)
    assert document["tasks"] == ["fabric", "gear"]


@pytest.mark.parametrize(
    ("changes", "different"),
    [
        ({"seed": 1}, "data, seed"),
        ({"radii": (0, 1)}, "radii"),
        ({"minimum": 2}, "minimum, settings"),
        ({"settings": {"limit": "2"}}, "settings"),
    ],
)
def test_a_grid_made_otherwise_is_refused(changes: dict[str, Any], different: str, where: RunOptions) -> None:
    run_grid(tiny_plan(), [SCENARIO], where, quiet)
    file = Path(where.out) / f"grid-paper-{SCENARIO}.json"
    before = file.read_bytes()
    with pytest.raises(OtherConfigurationError, match=rf"\(different: {different}\)"):
        run_grid(tiny_plan(**changes), [SCENARIO], where, quiet)
    # Another scenario would be averaged with it, so it is refused too; another preset would not.
    other = different.removeprefix("data, ")
    with pytest.raises(OtherConfigurationError, match=rf"\(different: {other}\)"):
        run_grid(tiny_plan(**changes), ["synthetic"], where, quiet)
    run_grid(tiny_plan("fast", **changes), [SCENARIO], where, quiet)
    assert file.read_bytes() == before


def test_folders_of_one_name_are_not_taken_for_each_other(where: RunOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = open_scenario(SCENARIO)
    monkeypatch.setattr(grid_module, "open_scenario", lambda name, data, seed: replace(tiny, name=name))
    run_grid(tiny_plan(), ["folder:/a/line"], where, quiet)
    with pytest.raises(OtherConfigurationError, match=r"\(different: scenario\)"):
        run_grid(tiny_plan(), ["folder:/b/line"], where, quiet)
    with pytest.raises(InputError, match="Two of the folders have the same name"):
        run_grid(tiny_plan(), ["folder:/a/line", "folder:/b/line"], where, quiet)


def test_grids_made_alike_are_averaged_and_others_kept_apart(tmp_path: Path) -> None:
    place, other = LocalPlace(tmp_path / "a"), LocalPlace(tmp_path / "b")
    for grid in (made_up("x", 0.5), made_up("folder:/photos/line 3", 0.7), made_up("x", 0.3, preset="default")):
        grid.save(place)
    made_up("y", 0.6).save(other)
    made_up("x", 0.5).save(other)  # the same again
    LocalPlace(tmp_path / "a").write("result.json", b"{}")
    paper, default = sorted(load_grids([str(place), str(other)]), key=lambda grid: grid.preset, reverse=True)
    assert sorted(paper.scenarios) == ["folder:/photos/line 3", "x", "y"]
    assert np.allclose(paper.mean, [[0.6, 0.7]])
    assert (paper.preset, paper.ratios, paper.radii) == ("paper", (0.1,), (0, 1))
    assert np.allclose(default.mean, [[0.3, 0.4]])


def test_an_undefined_task_is_kept_as_such(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path)
    made_up("x", float("nan")).save(place)
    assert "NaN" not in (tmp_path / "grid-paper-x.json").read_text()
    assert np.isnan(load_grids([str(tmp_path)])[0].mean).all()


def test_grids_of_other_images_are_not_averaged(tmp_path: Path) -> None:
    made_up("x", 0.5).save(LocalPlace(tmp_path / "a"))
    made_up("x", 0.5, data=["cd"]).save(LocalPlace(tmp_path / "b"))
    with pytest.raises(InputError, match="two grids of 'x' that differ only in their images"):
        load_grids([str(tmp_path / "a"), str(tmp_path / "b")])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 2}, "format 2 from another version"),
        ({"per_task": [[[0.5]]]}, "is damaged"),
        ({"members": None}, "is damaged"),
    ],
)
def test_a_damaged_or_foreign_grid_is_named(change: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    made_up("x", 0.5).save(LocalPlace(tmp_path))
    file = tmp_path / "grid-paper-x.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=sentence) as refused:
        load_grids([str(tmp_path)])
    assert file.name in str(refused.value)


def test_a_single_grid_is_its_own_mean() -> None:
    assert np.allclose(GridResult((made_up("x", 0.5),)).mean, [[0.5, 0.6]])


# --- the command ---


def command(where: RunOptions, *more: str) -> list[str]:
    settings = [text for key, value in TINY.items() for text in ("--set", f"{key}={value}") if key != "encoder"]
    given = ["bench", "grid", "--scenarios", SCENARIO, "--encoder", TINY["encoder"], *settings]
    return [*given, "--out", where.out, "--cache", str(where.cache), *more]


def test_the_command_prints_the_grid_beside_the_papers(where: RunOptions, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(where, "--radii", "3", "--ratios", "0.1,0.05", "--minimum", "1")) == 0
    out, err = capsys.readouterr()
    (grid,) = load_grids([where.out])
    rows = [line.split() for line in out.splitlines() if line.strip().startswith(("5 %", "10 %"))]
    small, large = (f"{value:.3f}" for value in grid.mean[:, 0])
    assert rows == [
        ["5", "%", "1", small],  # of 8 images, one is the least
        ["10", "%", "1", large],
        ["5", "%", small, "0.781"],
        ["10", "%", large, "0.801"],
    ]
    assert "1 of 2 cells repeat" in out
    assert "testing gear (11 images)" in err


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--preset", "papers"], "There is no preset 'papers'; choose one of: default, fast, best, paper."),
        (["--preset", "default"], "'default' has several readings, matched brightness, moved copies or a budget: use "),
        (["--preset", "best"], "'best' has several readings"),
        (["--preset", "fast", "--set", "readings=point+coarse"], "'fast' has several readings"),
        (["--ratios", "0.1,1.5"], "A coreset ratio of 1.5 is not possible; give shares above 0 and up to 1."),
        (["--ratios", "0"], "A coreset ratio of 0 is not possible"),
        (["--ratios", "nan"], "A coreset ratio of nan is not possible"),
        (["--ratios", ""], "A grid needs at least one ratio, each named once; give some such as 0.05,0.1."),
        (["--ratios", "0.1,0.1"], "A grid needs at least one ratio, each named once"),
        (["--ratios", "ten"], "--ratios takes numbers such as 0.05,0.1, got 'ten'."),
        (["--radii", "-1"], "A radius of -1 patches is not possible; give 0 or more."),
        (["--radii", ","], "A grid needs at least one radius, each named once; give some such as 0,1,3."),
        (["--radii", "1.5"], "--radii takes whole numbers such as 0,1,3, got '1.5'."),
        (["--minimum", "0"], "A location cannot keep 0 patches; give a minimum of 1 or more."),
        (["--set", "radius=3"], "The setting 'radius' has an option of its own in a grid; use --radii for it."),
        (["--set", "colour=3"], "There is no setting 'colour'; choose from: dinosaur.preset"),
        (["--scenarios", ""], "A grid needs at least one scenario, each named once"),
        (["--scenarios", "nowhere"], "There is no scenario 'nowhere'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    more: list[str], sentence: str, where: RunOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(where, *more)) == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert (out, err.count("\n")) == ("", 1)
    assert not Path(where.out).exists()
