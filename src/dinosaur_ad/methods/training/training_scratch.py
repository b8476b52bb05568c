"""A training that is half done, on disk: tensors in safetensors, the rest in JSON, believed only when every hash fits.

The JSON file is written last and names the tensor files that belong to it, so a crash at any moment leaves the position
before or the new one, never a mixture.
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

FORMAT = 1
POSITION = "position.json"
# Bytes of tensors that are copied to the CPU and encoded at once; one larger tensor is a file of its own.
SHARD = 2**30
_TENSORS = re.compile(r"[0-9a-f]{32}\.safetensors")


class Scratch:
    """One half-done training in a folder of its own. ``identity`` says of what training, in whatever words."""

    def __init__(self, folder: Path, identity: Mapping[str, Any], say: Callable[[str], None]) -> None:
        self.folder = folder
        self._identity = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        self._say = say

    def save(self, tensors: Mapping[str, torch.Tensor], notes: Mapping[str, Any]) -> bool:
        """Replace what is there; if disk, memory or GPU refuse, that is said, and no reason to stop training."""
        hashes: dict[str, str] = {}
        try:
            for group in _shards(tensors):
                name, content = f"{uuid.uuid4().hex}.safetensors", _encode(group)
                hashes[name] = hashlib.sha256(content).hexdigest()
                write_atomic(self.folder / name, content)
            body = {"format": FORMAT, "identity": self._identity, "tensors": hashes, "notes": dict(notes)}
            document = {"sha256": _checksum(body), "body": body}
            write_atomic(self.folder / POSITION, json.dumps(document).encode())
        except (OSError, RuntimeError, MemoryError) as error:
            self._remove(hashes)
            self._say(f"how far the training is could not be written to '{self.folder}' ({error}); it goes on")
            return False
        leftovers = (*self.folder.glob("*.safetensors"), *self.folder.glob(TEMPORARY))
        self._remove(path.name for path in leftovers if path.name not in hashes)
        return True

    def load(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """The tensors (on the CPU) and notes of the same training; None when there is none that can be believed."""
        from safetensors import SafetensorError

        try:
            document = json.loads((self.folder / POSITION).read_bytes())
            body = document["body"]
            if _checksum(body) != document["sha256"]:
                raise ValueError(f"{POSITION} has changed")
            if (body["format"], body["identity"]) != (FORMAT, self._identity):
                self._say(f"the half-done training in '{self.folder}' is another one; this one begins anew")
                return None
            return self._read(body["tensors"]), body["notes"]
        except FileNotFoundError as error:
            if Path(str(error.filename)).name == POSITION:
                return None
            self._say(f"the half-done training in '{self.folder}' lacks a file; it begins anew")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
            self._say(f"the half-done training in '{self.folder}' is damaged ({error}); it begins anew")
        return None

    def _read(self, hashes: Mapping[str, str]) -> dict[str, torch.Tensor]:
        from safetensors.torch import load

        tensors: dict[str, torch.Tensor] = {}
        for name, expected in hashes.items():
            path = self.folder / name
            if not _TENSORS.fullmatch(name) or path.is_symlink():  # the folder may be a stranger's
                raise ValueError("a file of tensors has a name that is not ours, or is a link")
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() != expected:
                raise ValueError("a file of tensors has changed")
            tensors |= load(content)
        return tensors

    def _remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            with suppress(OSError):
                (self.folder / name).unlink()


def digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """The SHA-256 of names, shapes and values."""
    import torch

    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        total.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        total.update(values.numpy())
    return total.hexdigest()


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _shards(tensors: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """The tensors in groups that fit into memory a second time."""
    group: dict[str, torch.Tensor] = {}
    held = 0
    for name, tensor in tensors.items():
        if group and held + tensor.nbytes > SHARD:
            yield group
            group, held = {}, 0
        group[name] = tensor
        held += tensor.nbytes
    yield group


def _encode(tensors: Mapping[str, torch.Tensor]) -> bytes:
    from safetensors.torch import save

    # Cloned, because tensors that share memory are refused.
    content: bytes = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    return content
