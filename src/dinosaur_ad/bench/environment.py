"""What a result was made with: versions, hardware, revision, memory. Nothing that names a person or a machine."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from dinosaur_ad import __version__

_PACKAGES = ("numpy", "onnxruntime", "pillow", "ray", "scipy", "torch", "transformers")


def environment(device: str) -> dict[str, Any]:
    """Versions, processor and revision of what runs now."""
    return {
        "dinosaur-ad": __version__,
        "revision": git_revision(),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "device": _accelerator(device),
    }


def git_revision() -> str | None:
    """The commit this source tree is at, if it is one; read from the files, because git may not be installed."""
    for folder in Path(__file__).resolve().parents:
        git = folder / ".git"
        if git.is_dir():
            with suppress(OSError, IndexError):
                head = (git / "HEAD").read_text("utf-8").strip()
                if not head.startswith("ref: "):
                    return head[:12]
                reference = head.removeprefix("ref: ")
                loose = git / reference
                if loose.is_file():
                    return loose.read_text("utf-8").strip()[:12]
                packed = (git / "packed-refs").read_text("utf-8").splitlines()
                return next(line for line in packed if line.endswith(f" {reference}"))[:12]
            return None
    return None


def peak_memory_bytes() -> int | None:
    """The most memory this process has held so far, where the system tells."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def peak_device_bytes(device: str) -> int | None:
    """The most GPU memory torch has held so far; None on a CPU."""
    if not device.startswith("cuda"):
        return None
    import torch

    return int(torch.cuda.max_memory_allocated(device))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


def _accelerator(device: str) -> str:
    if not device.startswith("cuda"):
        return device
    import torch

    return f"{device}: {torch.cuda.get_device_name(device)}" if torch.cuda.is_available() else f"{device}: absent"
