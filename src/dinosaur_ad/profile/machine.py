"""The facts about a machine without which its timings say nothing, and how fast it multiplies matrices.

Nothing here names a person or a host. What is not known is None and never guessed. ``root`` is where the
files of the system are; tests put their own there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from dinosaur_ad._cpu import cpu_features, cpu_model, read_cpuinfo
from dinosaur_ad.bench.environment import environment
from dinosaur_ad.core.threads import allotted_threads

ROOT = Path("/")
_PACKAGES = ("numpy", "onnxruntime", "onnxruntime-gpu", "openvino", "torch", "pillow")


def machine_facts(root: Path = ROOT) -> dict[str, Any]:
    """What does not change while a profile is made, JSON-able.

    >>> machine_facts()["cores"] >= 1
    True
    """
    general = environment("cpu")
    cpuinfo = read_cpuinfo(root)
    return {
        "board": _text(root / "proc/device-tree/model").strip("\0 \n") or None,
        "processor": cpu_model(cpuinfo),
        "cores": general["cores"],
        "features": cpu_features(cpuinfo),
        "memory_bytes": _kilobytes(_text(root / "proc/meminfo"), "MemTotal"),
        "container": _container(root),
        "system": general["system"],
        "python": general["python"],
        "dinosaur-ad": general["dinosaur-ad"],
        "revision": general["revision"],
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "threads_variable": os.environ.get("OMP_NUM_THREADS"),
    }


def machine_state(root: Path = ROOT) -> dict[str, Any]:
    """What may change while a profile is made: load, frequency, governor, temperature, throttling so far."""
    cpus = root / "sys/devices/system/cpu"
    zones = [_number(path) for path in root.glob("sys/class/thermal/thermal_zone*/temp")]
    warm = [zone / 1000 for zone in zones if zone is not None]
    return {
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "governors": sorted({_text(path).strip() for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")}),
        "megahertz": _megahertz(root),
        "available_bytes": available_bytes(root),
        "hottest_celsius": max(warm) if warm else None,
        "throttle_count": _throttle_count(cpus),
        "firmware_throttled": _firmware(),
    }


def throttling(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Whether the machine slowed itself down between two states: ``seen`` is None where there are no counters.

    >>> throttling({"throttle_count": 3, "firmware_throttled": None}, {"throttle_count": 5, "firmware_throttled": None})
    {'seen': True, 'words': 'the processor counted 2 throttling events'}
    """
    found = []
    if before["throttle_count"] is not None and after["throttle_count"] is not None:
        events = after["throttle_count"] - before["throttle_count"]
        found.append((events > 0, f"the processor counted {events} throttling events"))
    if after["firmware_throttled"] is not None:
        flags = int(after["firmware_throttled"], 16)
        # Bits 0-3: under-voltage, capped, throttled, soft limit, now; bits 16-19: since the start of the machine.
        now, ever = flags & 0xF, flags >> 16 & 0xF
        earlier = int(before["firmware_throttled"] or "0x0", 16) >> 16 & 0xF
        found.append((bool(now or ever & ~earlier), f"the firmware says {after['firmware_throttled']}"))
    if not found:
        return {"seen": None, "words": "this machine has no counters of throttling that can be read"}
    return {"seen": any(seen for seen, _ in found), "words": "; ".join(words for _, words in found)}


def available_bytes(root: Path = ROOT) -> int | None:
    """Memory that a new process could have: what the system has left, or the container's limit where that is less."""
    left = _kilobytes(_text(root / "proc/meminfo"), "MemAvailable")
    limit = _container(root)["memory_bytes"]
    return min((each for each in (left, limit) if each is not None), default=None)


def matmul_rate(sides: Sequence[int] = (512, 1024), seconds: float = 0.5) -> float:
    """Float32 operations a second in products of square matrices: the fastest turn there was.

    Both NumPy and ONNX Runtime multiply, for ``seconds`` each and with all the threads they may have; a network, whose
    matrices are smaller and between whose products other things happen, will not come quite as far.
    """
    return max(_fastest(work, seconds) * 2 * side**3 for side in sides for work in _products(side))


def _products(side: int) -> list[Callable[[], object]]:
    """One product of two matrices, by NumPy and by ONNX Runtime."""
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    left, right = np.random.default_rng(0).standard_normal((2, side, side)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["left", "right"], ["product"])],
        "product",
        [helper.make_tensor_value_info("left", TensorProto.FLOAT, [side, side])],
        [helper.make_tensor_value_info("product", TensorProto.FLOAT, [side, side])],
        [numpy_helper.from_array(right, "right")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = allotted_threads() or 0
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [lambda: left @ right, lambda: session.run(None, {"left": left})]


def _fastest(work: Callable[[], object], seconds: float) -> float:
    """Turns a second in the fastest turn; at least three are taken."""
    work()
    turns: list[float] = []
    while len(turns) < 3 or sum(turns) < seconds:
        started = time.perf_counter()
        work()
        turns.append(time.perf_counter() - started)
    return 1 / min(turns)


def _container(root: Path) -> dict[str, Any]:
    """The limits of a container, cgroup version 2 or 1; None where there is none."""
    groups = root / "sys/fs/cgroup"
    quota, _, period = _text(groups / "cpu.max").strip().partition(" ")
    if not quota:
        quota, period = (_text(groups / "cpu" / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    cores = int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
    memory = _number(groups / "memory.max") or _number(groups / "memory/memory.limit_in_bytes")
    # Version 1 writes the largest number it has for "no limit".
    return {"cores": cores, "memory_bytes": memory if memory is not None and memory < 2**60 else None}


def _megahertz(root: Path) -> list[float]:
    """The frequency of every core now."""
    paths = sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"))
    read = [value / 1000 for path in paths if (value := _number(path)) is not None]
    if read:
        return read
    found = re.findall(r"^cpu MHz\s*:\s*([\d.]+)$", read_cpuinfo(root), re.MULTILINE)
    return [float(value) for value in found]


def _throttle_count(cpus: Path) -> int | None:
    counts = [_number(path) for path in cpus.glob("cpu[0-9]*/thermal_throttle/*_throttle_count")]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _firmware() -> str | None:
    """The throttling flags of a Raspberry Pi's firmware, as a hexadecimal number."""
    command = shutil.which("vcgencmd")
    if command is None:
        return None
    try:
        done = subprocess.run([command, "get_throttled"], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"throttled=(0x[0-9a-fA-F]+)", done.stdout)
    return found[1] if found else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _kilobytes(text: str, key: str) -> int | None:
    found = re.search(rf"^{key}:\s*(\d+) kB$", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
