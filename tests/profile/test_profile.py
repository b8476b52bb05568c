"""A whole profile, with real processes: what it says, what it survives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from profile_helpers import tiny_plan

from detector_helpers import TINY, product
from dinosaur_ad import Dinosaur
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.profile import method_runs
from dinosaur_ad.profile import profiling as profile
from dinosaur_ad.profile.document import check_profile
from dinosaur_ad.profile.profile_tables import to_text
from dinosaur_ad.profile.profiling import Profiler, run_child


def quiet(text: str) -> None:
    """Nobody listens."""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def _objects(method: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of a method that have fields of their own, but for those that speak for themselves."""
    return [value for key, value in method.items() if isinstance(value, dict) and key != "made_with"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six images of a product."""
    (tmp_path / "images").mkdir()
    for number, image in enumerate(product(0, 6)):
        Image.fromarray(image).save(tmp_path / "images" / f"{number}.png")
    return tmp_path / "images"


def test_a_profile_says_everything_it_should(tmp_path: Path) -> None:
    said: list[str] = []
    names = ["dinosaur", "dinosaur:fast", "dinosaur:paper"]
    plan = tiny_plan(*names, repeats=2)
    document = json.loads(json.dumps(Profiler(plan, said.append).run(), allow_nan=False))
    assert check_profile(document) is None
    assert document["complete"] is True
    assert document["float32_flops_a_second"] > 0
    # One order of learning and one for each round, every method once in each.
    assert [sorted(order) for order in document["settings"]["order"]] == [names] * 3
    default, fast, paper = document["methods"]
    for method in (default, fast, paper):
        assert method["status"] == "measured"
        assert method["latency_ms"]["n"] == len(method["latency_ms"]["values"]) == plan.repeats * plan.runs
        assert method["stages_ms"]["encode"]["n"] == plan.repeats * plan.runs
        assert sum(stage["mean"] for stage in method["stages_ms"].values()) <= method["latency_ms"]["mean"]
        assert [batch["size"] for batch in method["batches"]] == [1, 2]
        assert len(method["cold_start"]["values"]) == plan.repeats
        assert sum(method["cold_start"]["parts"].values()) == pytest.approx(method["cold_start"]["seconds"])
        assert method["memory"]["inspect_peak_bytes"] > method["memory"]["before_bytes"] > 0
        assert method["learning"]["images"] == plan.learn_images
        assert 0 < method["learning"]["coreset_share"] < 1
        assert method["made_with"]["threads"] == 1
        assert method["floor"]["times_the_floor"] > 0
    # float32 against float16, and twenty members of four images each.
    assert paper["storage"]["task_bytes"] > fast["storage"]["task_bytes"]
    # What later updates start from is part of what a task costs.
    kept = default["storage"]["files"]
    assert default["storage"]["task_bytes"] == kept["bank"] + kept["prototype"] + kept["calibration"]
    assert any("dinosaur:paper: learning" in line for line in said)
    described = (Path(__file__).parents[2] / "docs" / "profile.md").read_text()
    parts = (document, document["settings"], document["machine"], document["before"], default, *_objects(default))
    assert {key for part in parts for key in part if f"`{key}`" not in described} <= {"format", "version"}
    assert not list(tmp_path.glob("dinosaur-profile-*"))
    assert "dinosaur:paper" in to_text([document])


def test_a_method_that_fails_does_not_end_the_profile(tmp_path: Path) -> None:
    plan = tiny_plan("dinosaur", "dinosaur:paper")
    broken = plan.methods[1].with_settings({"weights": str(tmp_path / "no-such.safetensors")})
    document = Profiler(replace(plan, methods=(plan.methods[0], broken)), quiet).run()
    whole, failed = document["methods"]
    assert (whole["status"], failed["status"]) == ("measured", "failed")
    assert "no-such.safetensors" in failed["reason"]
    assert "failed" in to_text([document])


def test_methods_that_need_torch_are_skipped_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_runs, "find_spec", lambda name: None)
    found = Profiler(tiny_plan("patchcore"), quiet).run()["methods"]
    assert [(method["name"], method["status"]) for method in found] == [("patchcore", "skipped")]
    assert "'.[bench]'" in found[0]["reason"]


def test_a_store_and_images_of_ones_own(tmp_path: Path, folder: Path) -> None:
    store = tmp_path / "store"
    detector = Dinosaur(store, encoder="tiny-dinov2", preset=TINY)
    detector.learn("nut", folder)
    detector.learn("bolt", folder)
    plan = tiny_plan("dinosaur", store=store, images=folder, learn_images=5)
    document = Profiler(plan, quiet).run()
    (method,) = document["methods"]
    assert method["status"] == "measured"
    assert method["storage"]["tasks"] == 2
    assert method["learning"]["images"] == 5
    assert document["settings"]["images"] == {
        "words": "6 files of the folder given",
        "sizes": ["70x70"],
        "formats": ["png"],
    }
    assert str(tmp_path) not in json.dumps(document)
    assert Dinosaur.load(store).store.names() == ["nut", "bolt"]


def test_what_cannot_be_profiled_is_refused_first(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(InputError, match=r"has 6 images and 7 are to be learned"):
        Profiler(tiny_plan("dinosaur", images=folder, learn_images=7), quiet).run()
    (folder / "9.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"9\.png"):
        Profiler(tiny_plan("dinosaur", images=folder, learn_images=7), quiet).run()
    with pytest.raises(StoreError, match="no-such"):
        Profiler(tiny_plan("dinosaur", store=tmp_path / "no-such"), quiet).run()
    with pytest.raises(InputError, match="--repeats must be at least 1, got 0"):
        tiny_plan("dinosaur", repeats=0)
    with pytest.raises(InputError, match="--store is what 'dinosaur' inspects with"):
        tiny_plan("patchcore", store=tmp_path)
    with pytest.raises(InputError, match="nothing to profile"):
        tiny_plan()


def test_a_process_that_crashes_is_told_in_words(tmp_path: Path) -> None:
    found = run_child({"kind": "explode"}, tmp_path / "result.json", threads=1, say=quiet)
    assert found["error"].startswith("its process ended with 1: KeyError")


def test_an_interruption_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kinds: list[str] = []

    def interrupted(job: dict[str, Any], *rest: Any, **more: Any) -> dict[str, Any]:
        kinds.append(job["kind"])
        if kinds.count("inspect") == 2:
            raise KeyboardInterrupt
        return run_child(job, *rest, **more)

    monkeypatch.setattr(profile, "run_child", interrupted)
    profiler = Profiler(tiny_plan("dinosaur", "dinosaur:paper"), quiet)
    with pytest.raises(KeyboardInterrupt):
        profiler.run()
    document = profiler.document(complete=False)
    assert check_profile(document) is None
    assert sorted(method["status"] for method in document["methods"]) == ["measured", "partial"]
    assert "interrupted" in to_text([document])
    assert not list(tmp_path.glob("dinosaur-profile-*"))
