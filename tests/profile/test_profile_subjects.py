"""Every method of the benchmark, and the detector, can be profiled; in this process, as small as they get."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import pytest
from PIL import Image

from detector_helpers import TINY, product
from dinosaur_ad.encoders.weights.local import from_file
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import get_method, list_methods
from dinosaur_ad.presets import DEFAULT, FAST, PAPER, Preset
from dinosaur_ad.profile import measured_methods as profile_methods
from dinosaur_ad.profile.measured_methods import DetectorSubject, SubjectJob, make_subject
from dinosaur_ad.profile.method_runs import RANDOM_WEIGHTS, stand_in_weights

OTHERS = [name for name, spec in list_methods().items() if name != "dinosaur" and not spec.control]


def quiet(text: str) -> None:
    """Nobody listens."""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path / "home"))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number}.png" for number in range(4)]
    for path, image in zip(paths, product(0, 4, size=70), strict=True):
        Image.fromarray(image).save(path)
    return paths


def tiny_job(name: str, folder: Path) -> SubjectJob:
    config = asdict(get_method(name).tiny().config)
    listed = {
        key: list(value) if isinstance(value, tuple) else value for key, value in config.items()
    }  # as JSON has it
    return SubjectJob(str(folder), name, listed | ({"epochs": 1} if "epochs" in config else {}))


@pytest.mark.parametrize("name", OTHERS)
def test_a_method_learns_here_and_inspects_elsewhere(name: str, tmp_path: Path, files: list[Path]) -> None:
    pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
    pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")
    job = tiny_job(name, tmp_path)
    teacher = make_subject(job, quiet)
    learning = teacher.learn(files)
    trains = "epochs" in (job.config or {})
    assert (learning["images"], learning["epochs"]) == (4, 1 if trains else None)
    assert learning["seconds"] > 0
    # What is trained reads ahead while it computes: no parts of it add up to the whole, and none are claimed.
    assert sum(learning["parts"].values()) == pytest.approx(0 if trains else learning["seconds"])

    subject = make_subject(job, quiet)
    subject.load()
    stages = subject.inspect(files[0], 70, 70)
    assert {"decode", "resize"} < set(stages)
    assert ("encode" in stages) != ("model" in stages)
    assert ("map" in stages) == get_method(name).spec.method.has_maps
    assert all(ms >= 0 for ms in stages.values())
    subject.inspect_many(files)
    facts = subject.facts()
    assert facts["parameters"] == teacher.facts()["parameters"]
    assert facts["storage"]["task_bytes"] == teacher.facts()["storage"]["task_bytes"] > 0
    assert facts["made_with"]["description"]


def test_a_method_that_measures_images_as_they_are_decodes_them_in_its_own_stage(
    tmp_path: Path, files: list[Path]
) -> None:
    job = tiny_job("photometer", tmp_path)
    make_subject(job, quiet).learn(files)
    subject = make_subject(job, quiet)
    subject.load()
    stages = subject.inspect(files[0], 70, 70)
    assert set(stages) == {"encode", "score"}
    assert stages["encode"] > 0


@pytest.mark.parametrize("preset", [DEFAULT, FAST, PAPER], ids=lambda preset: str(preset.name))
def test_the_detector_learns_here_and_inspects_elsewhere(preset: Preset, tmp_path: Path, files: list[Path]) -> None:
    small = replace(preset, layers=(0, 1), size=70).to_json()
    job = SubjectJob(str(tmp_path), encoder="tiny-dinov2", preset=small, options={"threads": 1})
    learning = make_subject(job, quiet).learn(files)
    assert set(learning["parts"]) >= {"encode", "memory", "calibrate", "store", "rest"}
    assert sum(learning["parts"].values()) == pytest.approx(learning["seconds"])

    subject = make_subject(job, quiet)
    subject.load()
    stages = subject.inspect(files[0], 70, 70)
    assert set(stages) == {"decode", "resize", "encode", "route", "score", "map", "rest"}
    facts = subject.facts()
    files_kept = facts["storage"]["files"]
    several = len(preset.readings) > 1
    assert set(files_kept) == {"bank", "prototype", *(["calibration"] if several else ["reserve"])}
    read = files_kept["bank"] + files_kept["prototype"] + files_kept.get("calibration", 0)
    assert facts["storage"]["task_bytes"] == read
    assert ("calibration" in facts["storage"]["words"]) == several
    assert ("reserve" in facts["storage"]["words"]) == bool(preset.reserve)
    assert facts["parameters"]["trainable"] == 0
    assert facts["encoder_flops"] > 0


def test_another_store_is_only_read(tmp_path: Path, files: list[Path]) -> None:
    taught = SubjectJob(str(tmp_path / "taught"), encoder="tiny-dinov2", preset=TINY.to_json())
    make_subject(taught, quiet).learn(files)
    store = tmp_path / "taught" / "store"
    before = {path: path.read_bytes() for path in store.rglob("*.*") if path.is_file()}
    subject = make_subject(replace(taught, folder=str(tmp_path / "own"), store=str(store)), quiet)
    subject.learn(files)
    subject.load()
    assert isinstance(subject, DetectorSubject)
    subject.inspect(files[0], 70, 70)
    assert {path: path.read_bytes() for path in store.rglob("*.*") if path.is_file()} == before
    assert subject.facts()["storage"]["tasks"] == 1


def test_without_memory_iuf_is_inspected_untrained_and_others_are_refused(
    tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
    pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")
    monkeypatch.setattr(profile_methods, "available_bytes", lambda: 2**20)
    job = tiny_job("iuf", tmp_path)
    learning = make_subject(job, quiet).learn(files)
    assert (learning["seconds"], learning["images"]) == (None, 0)
    assert "GiB are available" in learning["skipped"]
    subject = make_subject(job, quiet)
    subject.load()
    assert subject.inspect(files[0], 70, 70)["model"] > 0
    with pytest.raises(InputError, match="cannot be profiled here: learning needs about"):
        make_subject(tiny_job("dne", tmp_path / "dne"), quiet).learn(files)


# --- weights that are not here ---


@pytest.mark.parametrize(
    "settings",
    [
        {"backbone": "tiny-resnet", "weights": ""},
        {"backbone": "tiny-vit", "weights": ""},
        {"encoder": "tiny-dinov2", "weights": ""},
        {"backbone": "resnet50", "weights": "given.safetensors"},
        {"backbone": "efficientnet-b4", "weights": ""},  # which only its method knows
        {"teacher": "given.safetensors"},
        {"width": 64},
    ],
)
def test_weights_that_are_here_are_used(settings: dict[str, str], tmp_path: Path) -> None:
    assert stand_in_weights(settings, tmp_path) == ({}, None)
    assert not list(tmp_path.glob("random-*"))


def test_random_weights_stand_in_and_are_named_so(tmp_path: Path) -> None:
    changes, note = stand_in_weights({"backbone": "resnet18", "weights": ""}, tmp_path)
    assert note == RANDOM_WEIGHTS
    assert Path(changes["weights"]).name == "random-resnet18.safetensors"
    weights = from_file("resnet18", changes["weights"])
    assert "random-resnet18" in weights.spec.describe(weights.source)
    assert stand_in_weights({"backbone": "resnet18", "weights": ""}, tmp_path) == (changes, note)
    assert stand_in_weights({"teacher": ""}, tmp_path) == ({"teacher": "random"}, RANDOM_WEIGHTS)
