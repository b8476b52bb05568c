"""Damaged and hostile weight files and records: each is read as something whole, or refused in one sentence."""

from __future__ import annotations

import io
import json
import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoder_helpers import export_like, original_form
from safetensors.numpy import save

from dinosaur_ad.encoders import load_encoder
from dinosaur_ad.encoders.registry import EncoderSpec, get_spec
from dinosaur_ad.encoders.weights import local as weights
from dinosaur_ad.encoders.weights.sources import random_tensors
from dinosaur_ad.encoders.weights.weight_folder import cache_home
from dinosaur_ad.errors import EncoderError

Toy = tuple[EncoderSpec, Path]
CASES = int(os.environ.get("DINOSAUR_FUZZ", "60"))
"""How many damaged copies of each kind of file; ``DINOSAUR_FUZZ=2000`` for a long run."""


def damaged(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Copies of a file that are cut off, have flipped bits, blocks of other bytes, or parts out of place."""
    rng = np.random.default_rng(seed)
    for case in range(count):
        copy, kind = bytearray(content), case % 6
        # Headers are short and decide most, so half of the damage is done near the beginning or the end.
        place = int(
            rng.choice(
                [rng.integers(len(copy)), rng.integers(min(600, len(copy))), -rng.integers(1, min(600, len(copy)))]
            )
        )
        if kind == 0:
            copy = copy[:place] if place else bytearray()
        elif kind == 1:
            for at in rng.integers(0, len(copy), 8):
                copy[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            copy[place] ^= 1 << int(rng.integers(8))
        elif kind == 3:
            copy[place : place + 16 if place < -16 else None] = rng.bytes(16)
        elif kind == 4:
            copy[:8] = struct.pack("<Q", [0, 7, len(copy), 2**31, 2**63 - 1, 2**64 - 1][rng.integers(6)])
        else:
            start, stop = sorted(rng.integers(0, len(copy), 2))
            copy = copy[stop:] + copy[:start]
        yield bytes(copy)


def outcome(attempt: Callable[[], object]) -> str:
    """``"whole"``, or ``"refused"`` in one sentence; anything else is raised."""
    try:
        attempt()
    except EncoderError as error:
        sentence = str(error)
        assert sentence.isprintable(), sentence
        assert sentence.endswith(".")
        assert len(sentence) < 1000
        return "refused"
    return "whole"


def tally(content: bytes, path: Path, attempt: Callable[[], object], seed: int, count: int = CASES) -> Counter[str]:
    counted: Counter[str] = Counter()
    for number, copy in enumerate(damaged(content, count, seed)):
        path.write_bytes(copy)
        try:
            counted[outcome(attempt)] += 1
        except Exception as error:
            error.add_note(f"case {number} of {path.name}, seed {seed}")
            raise
    return counted


@pytest.mark.parametrize("name", ["tiny-dinov2", "tiny-resnet"])
def test_damaged_safetensors(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    counted = tally(save(random_tensors(get_spec(name))), path, lambda: weights.from_file(name, path), seed=1)
    assert counted["refused"] > CASES / 3


@pytest.mark.parametrize("zipped", [True, False])
def test_damaged_checkpoints(zipped: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
    spec, path = get_spec("tiny-dinov3"), tmp_path / "model.pth"
    state = {key: torch.from_numpy(value) for key, value in original_form(spec, random_tensors(spec)).items()}
    file = io.BytesIO()
    torch.save({"model": state}, file, _use_new_zipfile_serialization=zipped)
    counted = tally(file.getvalue(), path, lambda: weights.from_file("tiny-dinov3", path), seed=2)
    assert counted["refused"] > CASES / 3


def test_damaged_wheels_and_models(toy: Toy, tmp_path: Path) -> None:
    for name, content in {
        "toy.whl": toy[1].read_bytes(),
        "toy.onnx": export_like(get_spec("tiny-dinov2"), random_tensors(get_spec("tiny-dinov2"))).SerializeToString(),
    }.items():
        path = tmp_path / name
        tally(content, path, lambda path=path: weights.from_file("toy", path), seed=3)  # type: ignore[misc]


def test_a_damaged_cache(toy: Toy, home: Path) -> None:
    """Neither the weights nor their record can be changed into others that are used."""
    weights.add("toy", toy[1], progress=lambda _: None)
    true = weights.ensure("toy").sha256
    folder = home / "encoders" / "toy"

    def use() -> None:
        weights.status("toy")
        if weights.status("toy").state != "absent":  # then it would be fetched
            assert weights.verify("toy").sha256 == true

    for name in ("model.safetensors", "weights.json"):
        content = (folder / name).read_bytes()
        tally(content, folder / name, use, seed=4)
        (folder / name).write_bytes(content)
    assert weights.verify("toy").state == "ready"


def header(content: bytes) -> dict[str, Any]:
    (size,) = struct.unpack("<Q", content[:8])
    document: dict[str, Any] = json.loads(content[8 : 8 + size])
    return document


HOSTILE: dict[str, Any] = {
    "huge shape": {"shape": [2**62, 2**62]},
    "negative shape": {"shape": [-16]},
    "no shape": {"shape": []},
    "text as shape": {"shape": "16"},
    "offsets beyond": {"data_offsets": [0, 2**60]},
    "offsets turned": {"data_offsets": [64, 0]},
    "integers": {"dtype": "I32"},
    "truths": {"dtype": "BOOL", "shape": [64]},
    "unknown numbers": {"dtype": "F99"},
    "narrow numbers": {"dtype": "F8_E4M3", "shape": [64]},
    "brain floats": {"dtype": "BF16", "shape": [32]},
    "complex": {"dtype": "C64", "shape": [8]},
}


@pytest.mark.parametrize("change", HOSTILE)
def test_hostile_headers_of_safetensors(change: str, tmp_path: Path) -> None:
    content = save(random_tensors(get_spec("tiny-dinov2")))
    document = header(content)
    (size,) = struct.unpack("<Q", content[:8])
    document["norm.bias"] |= HOSTILE[change]
    text = json.dumps(document).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])
    assert outcome(lambda: weights.from_file("tiny-dinov2", tmp_path / "a.safetensors")) == "refused"


def test_names_out_of_a_file_cannot_forge_lines(tmp_path: Path) -> None:
    evil = {f"x\n\x1b[2Jdinosaur: all is well {'!' * 5000}": np.zeros(3, np.float32)}
    (tmp_path / "a.safetensors").write_bytes(save(random_tensors(get_spec("tiny-dinov2")) | evil))
    assert outcome(lambda: weights.from_file("tiny-dinov2", tmp_path / "a.safetensors")) == "refused"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors: {name: value.astype(np.int64) for name, value in tensors.items()}, "holds int64"),
        (lambda tensors: tensors | {"norm.bias": np.full(16, 1e300)}, "not finite"),
        (lambda tensors: tensors | {"layer.0.attn.qkv.bias": np.zeros(47, np.float32)}, "not three projections"),
        (lambda tensors: tensors | {"backbone.norm.bias": tensors["norm.bias"]}, "is there twice"),
        (lambda tensors: {name: value[..., None] for name, value in tensors.items()}, "has the shape"),
    ],
)
def test_tensors_that_are_none_of_a_network(change: Callable[..., Any], says: str, tmp_path: Path) -> None:
    changed = change(random_tensors(get_spec("tiny-dinov2")))
    (tmp_path / "a.safetensors").write_bytes(save({name: np.ascontiguousarray(v) for name, v in changed.items()}))
    with pytest.raises(EncoderError, match=says):
        weights.from_file("tiny-dinov2", tmp_path / "a.safetensors")


def test_a_negative_variance_is_refused(tmp_path: Path) -> None:
    tensors = random_tensors(get_spec("tiny-resnet"))
    tensors["embedder.embedder.normalization.running_var"][1] = -1
    (tmp_path / "a.safetensors").write_bytes(save(tensors))
    with pytest.raises(EncoderError, match="negative variances"):
        weights.from_file("tiny-resnet", tmp_path / "a.safetensors")


def test_a_checkpoint_cannot_claim_more_than_it_holds(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
    torch.save({"norm.bias": torch.zeros(1).expand(200_000, 200_000)}, tmp_path / "a.pth")
    with pytest.raises(EncoderError, match="claims more than 4 GiB"):
        weights.from_file("tiny-dinov2", tmp_path / "a.pth")


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"norm.bias": Evil()}, tmp_path / "a.pth")
    with pytest.raises(EncoderError, match="no readable checkpoint of tensors alone"):
        weights.from_file("tiny-dinov2", tmp_path / "a.pth")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"[" * 90_000, b'{"source": 1}', b"\xff\xfe", b"1" * 10_000])
def test_a_record_that_is_none_counts_as_no_weights(content: bytes, toy: Toy, home: Path) -> None:
    weights.add("toy", toy[1], progress=lambda _: None)
    (home / "encoders" / "toy" / "weights.json").write_bytes(content)
    assert weights.status("toy").state == "absent"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_pipes_are_not_waited_for(toy: Toy, home: Path, tmp_path: Path) -> None:
    weights.add("toy", toy[1], progress=lambda _: None)
    os.mkfifo(tmp_path / "a.safetensors")
    assert outcome(lambda: weights.from_file("tiny-dinov2", tmp_path / "a.safetensors")) == "refused"
    for name in ("model.safetensors", "weights.json"):
        (home / "encoders" / "toy" / name).unlink()
        os.mkfifo(home / "encoders" / "toy" / name)
        assert outcome(lambda: weights.verify("toy")) == "refused"


def test_a_file_larger_than_any_weights_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dinosaur_ad.encoders.weights.weight_files.MOST_BYTES", 1000)
    (tmp_path / "a.safetensors").write_bytes(bytes(2000))
    assert outcome(lambda: weights.from_file("tiny-dinov2", tmp_path / "a.safetensors")) == "refused"


def test_numbers_that_overflow_in_the_network_are_refused_where_they_appear(tmp_path: Path) -> None:
    """Finite weights can still give tokens that are none, and these would be compared with anything."""
    tensors = random_tensors(get_spec("tiny-dinov2"))
    tensors["norm.weight"][:] = 3e38
    tensors["norm.bias"][:] = 3e38
    (tmp_path / "a.safetensors").write_bytes(save(tensors))
    encoder = load_encoder("tiny-dinov2", size=28, weights=tmp_path / "a.safetensors")
    images = np.random.default_rng(0).integers(0, 256, (9, 28, 28, 3), dtype=np.uint8)
    for attempt in (encoder.encode, encoder.encode_prepared):
        with pytest.raises(EncoderError, match="gives tokens that are no numbers on onnx-cpu in float32"):
            attempt(images)


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("DINOSAUR_HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", nobody)
    with pytest.raises(EncoderError, match="set DINOSAUR_HOME"):
        cache_home()


def test_only_what_a_fetch_left_is_swept(toy: Toy, home: Path, tmp_path: Path) -> None:
    folder, victim = home / "encoders" / "toy", tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").touch()
    (folder / ".notes").mkdir(parents=True)
    (folder / ".fetch-link").symlink_to(victim)
    (folder / ".fetch-dead").mkdir()
    from dinosaur_ad.encoders.weights.weight_folder import sweep

    sweep(folder)
    assert (victim / "precious").exists()
    assert sorted(path.name for path in folder.iterdir()) == [".fetch-link", ".notes"]


def test_a_graph_cache_that_may_only_be_read_is_used(
    toy: Toy, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    weights.add("toy", toy[1], progress=lambda _: None)
    load_encoder("toy", size=28)

    def refused(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", refused)
    assert load_encoder("toy", size=28).channels == 16
    assert not caplog.text


def test_only_graphs_of_ours_are_dropped(toy: Toy, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.add("toy", toy[1], progress=lambda _: None)
    monkeypatch.setattr("dinosaur_ad.encoders.backends.onnx_backend.KEPT_GRAPHS", 1)
    (home / "graphs").mkdir()
    (home / "graphs" / "mine.onnx").touch()
    for size in (14, 28):
        load_encoder("toy", size=size)
    assert len(list((home / "graphs").iterdir())) == 2
    assert (home / "graphs" / "mine.onnx").exists()


def test_huge_numbers_of_threads_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "99999999999999")
    threads = load_encoder("tiny-dinov2", size=28).threads  # None: the run time takes as many as there are cores
    assert threads is None or threads in range(1, 1 + (os.cpu_count() or 1))
    with pytest.raises(EncoderError, match="at most 1024"):
        load_encoder("tiny-dinov2", size=28, threads=10**12)


def test_a_folder_of_weights_is_no_way_around(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02cos\nsystem\n.")
    assert outcome(lambda: weights.from_file("tiny-dinov2", tmp_path)) == "refused"
