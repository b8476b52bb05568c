"""What a result was made with: versions, hardware, revision, memory. Nothing that names a person or a machine."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dinosaur_ad import __version__
from dinosaur_ad._atomic import sha256_file
from dinosaur_ad._cpu import core_count, cpu_model
from dinosaur_ad.errors import InputError

REVISION_VARIABLE = "DINOSAUR_REVISION"
"""Environment variable that names the commit of the source where there is no repository."""

_PACKAGES = ("numpy", "onnxruntime", "pillow", "ray", "scipy", "torch", "transformers")


def environment(device: str) -> dict[str, Any]:
    """Versions, processor and revision of what runs now."""
    return {
        "dinosaur-ad": __version__,
        "revision": git_revision(),
        "package_sha256": package_sha256(),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": cpu_model(),
        "cores": core_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "device": _accelerator(device),
    }


@cache
def package_sha256() -> str:
    """The SHA-256 of all source files of this package by name and content; asked once a process.

    It is the same for a checkout of a commit and for a wheel built from it.
    """
    root = Path(__file__).resolve().parents[1]
    files = sorted(path for path in root.rglob("[!.]*") if path.is_file() and path.suffix != ".pyc")
    lines = (f"{path.relative_to(root).as_posix()}\0{sha256_file(path)}\n" for path in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@cache
def source_sha256(module: str) -> str | None:
    """The SHA-256 of the file of an imported module, such as the one a method is defined in; None without a file."""
    path = getattr(sys.modules.get(module), "__file__", None)
    with suppress(OSError):
        return sha256_file(Path(path)) if path else None
    return None


def git_revision() -> str | None:
    """The commit of this package's own source, with ``+changes`` where git says that it was changed since.

    None where the source belongs to no repository of this project: installed into another project's environment, that
    project's commit says nothing. Where there is no repository (a copy on a cluster's machine), ``DINOSAUR_REVISION``
    can say which commit the copy is of; it is recorded as given.

    :raises InputError: ``DINOSAUR_REVISION`` is not 7 to 40 hexadecimal digits.
    """
    root = _repository(Path(__file__).resolve())
    if root is None:
        return _given_revision()
    revision = _commit(root / ".git")
    return f"{revision}+changes" if revision and _changed(root) else revision


def exact_revision() -> str:
    """The recorded revision where it names the source that runs, and nothing but it: what a published number needs.

    Stricter than :func:`git_revision`, which records what it can: new files below ``src`` count as changes too, and a
    repository that git cannot be asked about is not taken for a clean one.

    :raises InputError: it is not known, or the source was changed since.
    """
    revision = git_revision()
    if revision is None:
        raise InputError(
            "--publish needs the commit that this source is of, and there is no repository to ask; run it from a "
            f"clone, or set {REVISION_VARIABLE} to that commit."
        )
    root = _repository(Path(__file__).resolve())
    state = None if root is None else _status(root, untracked="normal")
    if revision.endswith("+changes") or state:
        raise InputError(
            "--publish needs source that is exactly that of a commit, and files below src were changed or added since "
            f"{revision.removesuffix('+changes')}; commit or undo that, or leave out --publish."
        )
    if root is not None and state is None:
        raise InputError(
            "--publish needs source that is exactly that of a commit, and git cannot say whether it is still that of "
            f"{revision}; install git, or leave out --publish."
        )
    return revision


def _repository(module: Path) -> Path | None:
    """The root of the repository that ``module`` is source of: ``pyproject.toml`` names us, ``src`` holds this file."""
    root = next((folder for folder in module.parents if (folder / ".git").exists()), None)
    if root is None or module.parent.parent != root / "src" / "dinosaur_ad":
        return None
    try:
        project = tomllib.loads((root / "pyproject.toml").read_text("utf-8")).get("project")
    except (OSError, ValueError):
        return None
    return root if isinstance(project, dict) and project.get("name") == "dinosaur-ad" else None


def _given_revision() -> str | None:
    given = os.environ.get(REVISION_VARIABLE)
    if not given:
        return None
    if not re.fullmatch(r"[0-9a-f]{7,40}(\+changes)?", given):
        raise InputError(
            f"{REVISION_VARIABLE} is '{given[:60]}', which is no revision; give the commit's 7 to 40 hexadecimal "
            "digits, or unset it."
        )
    return given


def _changed(folder: Path) -> bool:
    return bool(_status(folder, untracked="no"))


def _status(folder: Path, *, untracked: str) -> bytes | None:
    """The changes below ``src`` by git status, empty if there are none; None where git cannot be run."""
    with suppress(OSError, subprocess.SubprocessError):
        command = ["git", "status", "--porcelain", f"--untracked-files={untracked}", "--", "src"]
        return subprocess.run(command, cwd=folder, capture_output=True, timeout=10, check=True).stdout.strip()
    return None


def _commit(git: Path) -> str | None:
    """Read from the files, because git may not be installed."""
    if git.is_file():  # a worktree: the file says where its own folder is
        git = Path(git.read_text("utf-8").partition(":")[2].strip())
    with suppress(OSError, StopIteration):
        head = (git / "HEAD").read_text("utf-8").strip()
        if not head.startswith("ref: "):
            return head[:12]
        reference = head.removeprefix("ref: ")
        common = git / "commondir"
        shared = git / common.read_text("utf-8").strip() if common.is_file() else git
        loose = shared / reference
        if loose.is_file():
            return loose.read_text("utf-8").strip()[:12]
        packed = (shared / "packed-refs").read_text("utf-8").splitlines()
        return next(line for line in packed if line.endswith(f" {reference}"))[:12]
    return None


def peak_device_bytes(device: str) -> int | None:
    """The peak GPU memory of torch; None on a CPU."""
    if not device.startswith("cuda"):
        return None
    import torch

    return int(torch.cuda.max_memory_allocated(device))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _accelerator(device: str) -> str:
    if not device.startswith("cuda"):
        return device
    import torch

    return f"{device}: {torch.cuda.get_device_name(device)}" if torch.cuda.is_available() else f"{device}: absent"
