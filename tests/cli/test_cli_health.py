"""The verb health: what it looks at, what it says, and that it changes nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import TINY, tree_hash
from safetensors.numpy import save_file

from dinosaur_ad import Dinosaur
from dinosaur_ad.cli import main
from dinosaur_ad.encoders import get_spec, registry
from dinosaur_ad.encoders.backends.onnx_backend import OnnxEncoder
from dinosaur_ad.encoders.weights import local as weights
from dinosaur_ad.encoders.weights import sources
from dinosaur_ad.encoders.weights.weight_folder import cache_home
from dinosaur_ad.store import TaskStore

Capture = pytest.CaptureFixture[str]


def as_json(capsys: Capture, *argv: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the one object that ``health --json`` prints; on stderr there is a fallback at the most."""
    capsys.readouterr()
    code = main(["health", "--json", *argv])
    out, err = capsys.readouterr()
    assert err == "" or err.startswith("fallback: ")
    document: dict[str, Any] = json.loads(out)
    assert document["healthy"] is (code == 0)
    return code, document


def test_a_box_that_can_inspect_is_healthy_and_left_as_it_was(capsys: Capture, store: Path) -> None:
    before = tree_hash(store)
    code, found = as_json(capsys, "--store", str(store))
    assert (code, found["problems"]) == (0, [])
    assert found["weights"]["encoder"] == found["encoder"]["encoder"] == "tiny-dinov2"
    assert (found["encoder"]["precision"], found["encoder"]["backend"]) == ("float32", "onnx")
    assert (found["store"]["tasks"], found["store"]["damaged"]) == (2, 0)
    assert found["store"]["bytes"] > 0
    assert found["disk"].keys() == {"cache", "store"}
    assert tree_hash(store) == before


def test_the_words_for_people(capsys: Capture, store: Path) -> None:
    assert main(["health", "--store", str(store)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    sections = [line.split()[0] for line in out.splitlines()]
    assert sections == ["version", "weights", "encoder", "store", "disk", "healthy"]
    assert re.search(r"2 tasks, [\d.]+ MB, readable \(--verify", out)
    assert main(["health", "--store", str(store), "--verify"]) == 0
    assert re.search(r"2 tasks, [\d.]+ MB, intact\n", capsys.readouterr().out)


def test_an_empty_volume_is_healthy_and_a_wrong_path_is_not(capsys: Capture, tmp_path: Path, with_weights: str) -> None:
    empty = tmp_path / "volume"
    empty.mkdir()
    code, found = as_json(capsys, "--store", str(empty))
    assert (code, found["store"]["tasks"]) == (0, 0)
    assert list(empty.iterdir()) == []
    code, found = as_json(capsys, "--store", str(tmp_path / "volum"))
    assert (code, found["problems"]) == (
        2,
        [f"There is no folder {tmp_path / 'volum'}; check the path, or learn a task to make a store there."],
    )
    assert not (tmp_path / "volum").exists()


def test_a_folder_of_something_else_is_no_store(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "precious.png").touch()
    code, found = as_json(capsys, "--store", str(tmp_path / "photos"))
    assert code == 2
    assert "holds other files" in found["problems"][0]


def test_a_damaged_bank_is_named_and_the_rest_still_looked_at(capsys: Capture, store: Path) -> None:
    bank = next((store / "tasks" / "screw").rglob("*.safetensors"))
    content = bytearray(bank.read_bytes())
    content[-1] ^= 1
    bank.write_bytes(content)
    before = tree_hash(store)
    assert main(["health", "--store", str(store), "--verify"]) == 2
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert "screw" in err
    assert re.search(r"2 tasks, [\d.]+ MB, 1 damaged\n", out)
    assert out.splitlines()[-1] == "not healthy"
    assert tree_hash(store) == before


def test_weights_that_are_not_here_are_not_downloaded(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: object) -> None:
        raise AssertionError("health must not download")

    monkeypatch.setattr(sources, "download", download)
    monkeypatch.setattr(weights, "download", download)
    code, found = as_json(capsys)
    assert (code, found["problems"]) == (
        2,
        ["The weights of 'dinov2s-focus' are not here; run: dinosaur weights fetch dinov2s-focus."],
    )
    assert "encoder" not in found
    assert not cache_home().exists()


@pytest.fixture
def with_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """An encoder with weights on disk, which is the default one for this test."""
    spec = replace(get_spec("tiny-dinov2"), name="mine", source="hub:nobody/mine", file="model.safetensors", depth=9)
    monkeypatch.setitem(registry._REGISTRY, "mine", spec)
    monkeypatch.setattr("dinosaur_ad.encoders.DEFAULT_ENCODER", "mine")
    monkeypatch.setattr("dinosaur_ad.basis.DEFAULT_ENCODER", "mine")
    save_file(sources.random_tensors(replace(spec, source="seed:5")), tmp_path / "mine.safetensors")
    weights.add("mine", tmp_path / "mine.safetensors", progress=lambda _: None)
    return "mine"


def test_without_a_store_it_is_the_default_encoder_that_is_checked(capsys: Capture, with_weights: str) -> None:
    code, found = as_json(capsys)
    assert (code, found["weights"]["encoder"], found["weights"]["state"]) == (0, with_weights, "ready")
    assert "store" not in found


def test_damaged_weights_are_found(capsys: Capture, with_weights: str) -> None:
    kept = next(cache_home().rglob("model.safetensors"))
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.write_bytes(content)
    code, found = as_json(capsys, "--verify")
    assert code == 2
    assert found["problems"] == [
        "The weights of 'mine' are damaged on disk; run: dinosaur weights fetch mine, or add them again."
    ]


def test_other_weights_than_the_store_was_made_with_are_found(
    capsys: Capture, with_weights: str, tmp_path: Path, normals: Path
) -> None:
    Dinosaur(tmp_path / "line", encoder=with_weights, preset=TINY).learn("screw", normals)
    save_file(sources.random_tensors(replace(get_spec("mine"), source="seed:6")), tmp_path / "other.safetensors")
    weights.add("mine", tmp_path / "other.safetensors", progress=lambda _: None)
    code, found = as_json(capsys, "--store", str(tmp_path / "line"))
    assert code == 2
    assert "was made with other weights of 'mine'" in found["problems"][0]
    assert found["store"]["tasks"] == 1


def test_weights_from_a_file_need_no_cache(capsys: Capture, with_weights: str, tmp_path: Path) -> None:
    shutil.rmtree(cache_home())
    code, found = as_json(capsys, "--weights", str(tmp_path / "mine.safetensors"))
    assert (code, found["problems"]) == (0, [])
    assert found["weights"]["state"] == f"from {tmp_path / 'mine.safetensors'}"


def test_a_provider_that_is_not_here_is_a_problem_only_when_it_must_be_here(capsys: Capture, store: Path) -> None:
    code, found = as_json(capsys, "--store", str(store), "--provider", "coreml")
    assert code == 0
    assert "coreml" in found["encoder"]["fallback"]
    code, found = as_json(capsys, "--store", str(store), "--provider", "coreml", "--strict")
    assert code == 2
    assert "coreml" in found["problems"][0]


def test_a_run_time_that_breaks_gets_a_sentence(capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("no kernel image\nfor this device")

    monkeypatch.setattr(OnnxEncoder, "_run", crash)
    code, found = as_json(capsys, "--store", str(store))
    assert code == 2
    assert len(found["problems"]) == 1
    assert "(RuntimeError: no kernel image for this device)" in found["problems"][0]
    assert found["store"]["tasks"] == 2


def test_tokens_that_are_no_numbers_get_a_sentence(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    run = OnnxEncoder._run

    def broken(encoder: OnnxEncoder, pixels: Any) -> tuple[Any, Any]:
        cls, patches = run(encoder, pixels)
        return cls, np.full_like(patches, np.nan)

    monkeypatch.setattr(OnnxEncoder, "_run", broken)
    code, found = as_json(capsys, "--store", str(store))
    assert code == 2
    assert "gives tokens that are no numbers" in found["problems"][0]


def test_a_full_disk_gets_a_sentence(capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9 - 12_000_000, 12_000_000))
    code, found = as_json(capsys, "--store", str(store))
    assert code == 2
    assert len(found["problems"]) == 2
    assert all("Only 12 MB are free" in problem for problem in found["problems"])


class TestForAWatchdog:
    """Asked every minute, it must not read everything that was ever taught."""

    @pytest.fixture(autouse=True)
    def _nothing_is_hashed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("all of it was read")

        monkeypatch.setattr(TaskStore, "verify", refuse)
        monkeypatch.setattr(weights, "verify", refuse)

    def test_the_encoder_answers_and_the_documents_read(self, capsys: Capture, store: Path) -> None:
        code, found = as_json(capsys, "--store", str(store))
        assert (code, found["problems"]) == (0, [])
        assert found["encoder"]["encode_ms"] > 0
        assert (found["store"]["tasks"], found["store"]["verified"], found["weights"]["verified"]) == (2, False, False)

    @pytest.mark.parametrize("file", ["task.json", "manifest.json"])
    def test_a_damaged_document_is_found(self, capsys: Capture, store: Path, file: str) -> None:
        path = next((store / "tasks" / "screw").rglob(file))
        path.write_bytes(path.read_bytes()[:-20])
        code, found = as_json(capsys, "--store", str(store))
        assert code == 2
        assert found["store"]["damaged"] == 1
        assert "screw" in found["problems"][0]

    @pytest.mark.parametrize("gone", [True, False])
    def test_a_bank_that_is_gone_or_cut_short_is_found(self, capsys: Capture, store: Path, gone: bool) -> None:
        path = next((store / "tasks" / "screw").rglob("bank.safetensors"))
        content = path.read_bytes()
        path.unlink()
        if not gone:
            path.write_bytes(content[:-20])
        code, found = as_json(capsys, "--store", str(store))
        assert (code, found["store"]["damaged"]) == (2, 1)
        assert f"{path.relative_to(store).as_posix()} of the store {store} has " in found["problems"][0]

    def test_weights_are_there(self, capsys: Capture, with_weights: str) -> None:
        code, found = as_json(capsys)
        assert (code, found["weights"]["state"]) == (0, "ready")
