"""The name of a pinned encoder stands for one set of numbers: others are not kept, not verified and not used."""

from __future__ import annotations

import ast
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from encoder_helpers import transformers_form
from safetensors.numpy import save_file
from test_encoder_weights import use_pip

import dinosaur_ad
from dinosaur_ad.cli import main
from dinosaur_ad.encoders import DEFAULT_ENCODER, list_specs, load_encoder, registry
from dinosaur_ad.encoders.registry import EncoderSpec, get_spec
from dinosaur_ad.encoders.weights import local as weights
from dinosaur_ad.encoders.weights.convert import tensors_sha256
from dinosaur_ad.encoders.weights.sources import random_tensors
from dinosaur_ad.errors import EncoderError

Toy = tuple[EncoderSpec, Path]


def quiet(message: str) -> None:
    """Take progress messages and say nothing."""


@pytest.fixture
def pinned(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """The encoder in a wheel, with its tensors pinned as those of the default one are."""
    spec = dataclasses.replace(toy[0], tensors_sha256=tensors_sha256(random_tensors(get_spec("tiny-dinov2"))))
    monkeypatch.setitem(registry._REGISTRY, "toy", spec)
    return spec, toy[1]


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """Weights of the right names and shapes, but other numbers."""
    path = tmp_path / "others.safetensors"
    save_file(random_tensors(dataclasses.replace(get_spec("tiny-dinov2"), source="seed:99")), path)
    return path


def poison(home: Path, path: Path, monkeypatch: pytest.MonkeyPatch, spec: EncoderSpec) -> None:
    """What a version without pins kept when it was given other weights."""
    with monkeypatch.context() as before:
        before.setitem(registry._REGISTRY, "toy", dataclasses.replace(spec, sha256=None, tensors_sha256=None))
        weights.add("toy", path, progress=quiet)


def test_every_encoder_that_is_downloaded_unasked_is_pinned_throughout() -> None:
    for spec in list_specs().values():
        if spec.source.startswith("pip:"):
            assert all((spec.sha256, spec.file_bytes, spec.wheel_sha256, spec.tensors_sha256)), spec.name
    assert get_spec(DEFAULT_ENCODER).tensors_sha256


@pytest.mark.parametrize("by", ["tensors", "file"])
def test_other_weights_are_not_kept_under_a_pinned_name(
    by: str, pinned: Toy, others: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "file":
        monkeypatch.setitem(registry._REGISTRY, "toy", dataclasses.replace(pinned[0], tensors_sha256=None))
    with pytest.raises(EncoderError, match=r"others\.safetensors has the shape of 'toy'.*--weights PATH") as caught:
        weights.add("toy", others, progress=quiet)
    assert "\n" not in str(caught.value)
    assert weights.status("toy").state == "absent"
    assert load_encoder("toy", size=28, weights=others).info()["weights_source"] == "file:others.safetensors"


def test_the_genuine_weights_are_kept_in_whichever_file_they_come(pinned: Toy, tmp_path: Path) -> None:
    """For instance out of the cache of another box, or in the names of transformers."""
    tiny = get_spec("tiny-dinov2")
    save_file(transformers_form(tiny, random_tensors(tiny), newer=False), tmp_path / "same.safetensors")
    assert weights.add("toy", tmp_path / "same.safetensors", progress=quiet).state == "ready"
    assert weights.verify("toy").source == "file:same.safetensors"


def test_a_file_of_integers_never_becomes_the_default_encoder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = get_spec(DEFAULT_ENCODER).tensor_shapes()
    save_file({name: np.zeros(shape, np.int8) for name, shape in shapes.items()}, tmp_path / "integers.safetensors")
    assert main(["weights", "add", DEFAULT_ENCODER, str(tmp_path / "integers.safetensors")]) == 2
    assert "holds int8 instead of floating-point numbers" in capsys.readouterr().err
    save_file({name: np.zeros(shape, np.float16) for name, shape in shapes.items()}, tmp_path / "zeros.safetensors")
    assert main(["weights", "add", DEFAULT_ENCODER, str(tmp_path / "zeros.safetensors")]) == 2
    assert "but other numbers" in capsys.readouterr().err
    assert weights.status(DEFAULT_ENCODER).state == "absent"


def test_a_cache_that_was_poisoned_before_is_noticed_and_fetch_restores_it(
    pinned: Toy, others: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    poison(home, others, monkeypatch, pinned[0])
    assert weights.status("toy").state == "foreign"
    for attempt in (weights.ensure, weights.verify, load_encoder):
        with pytest.raises(EncoderError, match=r"kept as 'toy' are not its own.*run: dinosaur weights fetch toy"):
            attempt("toy")
    assert main(["weights", "verify"]) == 2
    assert "are not its own" in capsys.readouterr().err
    use_pip(monkeypatch, pinned[1])
    assert weights.fetch("toy", progress=quiet).state == "ready"
    assert weights.verify("toy").sha256 == pinned[0].tensors_sha256


def test_a_record_that_lies_about_its_tensors_is_noticed(
    pinned: Toy, others: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(home, others, monkeypatch, pinned[0])
    path = home / "encoders" / "toy" / "weights.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tensors_sha256": pinned[0].tensors_sha256}))
    with pytest.raises(EncoderError, match="damaged on disk"):
        weights.verify("toy")
    with pytest.raises(EncoderError, match="damaged on disk"):
        load_encoder("toy", size=28)


def test_nothing_in_the_package_unpickles() -> None:
    """A pickle runs code when it is read; what torch reads, it reads as tensors alone."""
    for path in Path(dinosaur_ad.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"} & set(names), path
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            called = ast.unparse(node.func)
            given = {word.arg: ast.unparse(word.value) for word in node.keywords}
            assert called != "torch.load" or given.get("weights_only") == "True", path
            assert called not in ("np.load", "numpy.load") or given.get("allow_pickle", "False") == "False", path
