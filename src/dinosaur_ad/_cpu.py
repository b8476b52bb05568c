"""What the operating system says about the CPU: its name, its cores and its instruction sets."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

_ARM_PARTS = {
    **{"0xd03": "Cortex-A53", "0xd05": "Cortex-A55", "0xd07": "Cortex-A57", "0xd08": "Cortex-A72"},
    **{"0xd0b": "Cortex-A76", "0xd42": "Cortex-A78AE", "0xd0c": "Neoverse N1", "0xd49": "Neoverse N2"},
    **{"0xd40": "Neoverse V1", "0xd4f": "Neoverse V2"},
}
# As /proc/cpuinfo spells them, and what they let a run time do.
_FEATURES = {
    **{"avx2": "avx2", "avx512f": "avx512", "avx_vnni": "vnni", "avx512_vnni": "vnni", "avx512_bf16": "bf16"},
    **{"amx_tile": "amx", "amx_int8": "amx int8", "amx_bf16": "amx bf16"},
    **{"neon": "neon", "asimd": "neon", "asimdhp": "fp16", "asimddp": "dot product", "i8mm": "i8mm", "bf16": "bf16"},
    **{"sve": "sve", "sve2": "sve2"},
}


def read_cpuinfo(root: Path = Path("/")) -> str:
    """The text of /proc/cpuinfo; empty where there is none."""
    try:
        return (root / "proc/cpuinfo").read_text("utf-8", errors="replace")
    except OSError:
        return ""


def cpu_model(cpuinfo: str | None = None) -> str:
    """The name of the CPU.

    >>> cpu_model("model name : AMD EPYC"), cpu_model("CPU part : 0xd0b")
    ('AMD EPYC', 'Cortex-A76')
    """
    cpuinfo = read_cpuinfo() if cpuinfo is None else cpuinfo
    if name := re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE):
        return name[1].strip()
    parts = dict.fromkeys(re.findall(r"^CPU part\s*:\s*(\S+)$", cpuinfo, re.MULTILINE))
    known = " + ".join(_ARM_PARTS.get(part, f"ARM part {part}") for part in parts)
    return known or platform.processor() or platform.machine()


def core_count() -> int | None:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def cpu_flags(cpuinfo: str | None = None) -> frozenset[str]:
    """The instruction sets of the CPU as Linux names them; empty where the system does not list them."""
    cpuinfo = read_cpuinfo() if cpuinfo is None else cpuinfo
    found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def cpu_features(cpuinfo: str) -> list[str]:
    """The instruction sets that matter to a run time, each once.

    >>> cpu_features("flags : fpu avx2 avx512f avx512_vnni avx512_bf16"), cpu_features("Features : asimd asimddp i8mm")
    (['avx2', 'avx512', 'vnni', 'bf16'], ['neon', 'dot product', 'i8mm'])
    """
    flags = cpu_flags(cpuinfo)
    return list(dict.fromkeys(name for flag, name in _FEATURES.items() if flag in flags))
