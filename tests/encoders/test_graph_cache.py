"""The cache of built graphs where it can be read and not written."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from dinosaur_ad.encoders.backends.onnx_backend import _read_cached


def test_a_warm_cache_can_be_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "graph.onnx"
    path.write_bytes(hashlib.sha256(b"graph").digest() + b"graph")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "touch", refuse)
    assert _read_cached(path) == b"graph"
