"""The facts about a machine without which its timings say nothing."""

from __future__ import annotations

import os
import platform
import re
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import dinosaur_ad

_Result = TypeVar("_Result")


def facts() -> dict[str, Any]:
    """Processor, cores, load, and the libraries that do the arithmetic."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "blas": f"{blas['name']} {blas['version']}",
        "onnxruntime": version("onnxruntime"),
        "dinosaur-ad": dinosaur_ad.__version__,
    }


def slug(machine: dict[str, Any]) -> str:
    """A file name for the results of a machine."""
    return re.sub(r"[^a-z0-9]+", "-", f"{machine['cpu']}-{machine['cores']}-cores".lower()).strip("-")


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", path.read_text()) if path.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def with_peak_megabytes(work: Callable[[], _Result]) -> tuple[_Result, float, float]:
    """What ``work`` returns, and resident memory before it and at its highest during it; NaN where none is told."""
    before, done = _resident(), threading.Event()
    highest = [before]

    def watch() -> None:
        while not done.wait(0.005):
            highest.append(max(highest.pop(), _resident()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        result = work()
    finally:
        done.set()
        watcher.join()
    return result, before, highest[0]


def _resident() -> float:
    path = Path("/proc/self/statm")
    if not path.exists():
        return float("nan")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
