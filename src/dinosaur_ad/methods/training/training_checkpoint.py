"""The checkpoint of an unfinished training: tensors as safetensors, the rest as JSON, all of it verified by hash.

The JSON file is written last and names the tensor files that belong to it, so a crash at any moment leaves the old
checkpoint or the new one.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dinosaur_ad._atomic import TEMPORARY, write_atomic

if TYPE_CHECKING:
    import torch

FORMAT = 2
DOCUMENT = "checkpoint.json"
SHARD_BYTES = 2**30
"""Tensors copied to the CPU and encoded at a time; a larger tensor is a file of its own."""
_TENSOR_FILE = re.compile(r"[0-9a-f]{32}\.safetensors")


class TrainingCheckpoint:
    """The checkpoint in ``folder``; ``identity`` (JSON) is all that makes it a checkpoint of this training."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self.folder, self._say = folder, say
        self._identity = _sha256(identity)

    def save(self, tensors: Mapping[str, torch.Tensor], notes: Mapping[str, Any]) -> bool:
        """Replace the checkpoint; an error of disk, memory or GPU is reported and does not stop the training."""
        hashes: dict[str, str] = {}
        try:
            for shard in _shards(tensors):
                name, content = f"{uuid.uuid4().hex}.safetensors", _encode(shard)
                hashes[name] = hashlib.sha256(content).hexdigest()
                write_atomic(self.folder / name, content)
            body = {"format": FORMAT, "identity": self._identity, "tensors": hashes, "notes": dict(notes)}
            write_atomic(self.folder / DOCUMENT, json.dumps({"sha256": _sha256(body), "body": body}).encode())
        except (OSError, RuntimeError, MemoryError) as error:
            self._remove(hashes)
            self._say(f"the checkpoint could not be written to '{self.folder}' ({error}); training continues")
            return False
        leftovers = (*self.folder.glob("*.safetensors"), *self.folder.glob(TEMPORARY))
        self._remove(path.name for path in leftovers if path.name not in hashes)
        return True

    def load(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """The tensors (on the CPU) and notes; None, and a sentence, where they are damaged or of another training."""
        from safetensors import SafetensorError

        if not (self.folder / DOCUMENT).exists():
            return None
        try:
            document = json.loads((self.folder / DOCUMENT).read_bytes())
            body = document["body"]
            if _sha256(body) != document["sha256"]:
                raise ValueError(f"{DOCUMENT} was changed")
            if (body["format"], body["identity"]) == (FORMAT, self._identity):
                return self._read(body["tensors"]), body["notes"]
            reason = "belongs to another training"
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
            reason = f"is damaged ({error})"
        self._say(f"the checkpoint in '{self.folder}' {reason}; training starts from the beginning")
        return None

    def _read(self, hashes: Mapping[str, str]) -> dict[str, torch.Tensor]:
        from safetensors.torch import load

        tensors: dict[str, torch.Tensor] = {}
        for name, expected in hashes.items():
            path = self.folder / name
            if not _TENSOR_FILE.fullmatch(name) or path.is_symlink():  # the folder may come from somebody else
                raise ValueError("a tensor file has an unexpected name or is a link")
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != expected:
                raise ValueError("a tensor file was changed")
            tensors |= load(content)
        return tensors

    def _remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            with suppress(OSError):
                (self.folder / name).unlink()


def tensors_sha256(tensors: Mapping[str, torch.Tensor]) -> str:
    """The SHA-256 of names, shapes and values."""
    import torch

    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        total.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        total.update(values.numpy())
    return total.hexdigest()


def _sha256(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _shards(tensors: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """The tensors in groups of up to ``SHARD_BYTES``."""
    shard: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if shard and sum(each.nbytes for each in shard.values()) + tensor.nbytes > SHARD_BYTES:
            yield shard
            shard = {}
        shard[name] = tensor
    yield shard


def _encode(tensors: Mapping[str, torch.Tensor]) -> bytes:
    from safetensors.torch import save

    # Cloned, because safetensors refuses tensors that share memory.
    content: bytes = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    return content
