"""What a profile is made of, and what keeps a document from being one.

The fields are described in docs/profile.md; ``FORMAT`` and ``VERSION`` are how a reader knows them. A change of what a
field means needs another version.
"""

from __future__ import annotations

import math
from types import NoneType
from typing import Any

FORMAT, VERSION = "dinosaur-profile", 1
MEASURED, SKIPPED, FAILED, PARTIAL = "measured", "skipped", "failed", "partial"

_NUMBER = (int, float)
_MAYBE = (int, float, NoneType)
_WORDS = (str, NoneType)

# Every field that tables show: a type or several; a list whose entries are all alike; or fields of its own.
_SPREAD = dict.fromkeys(("n", "mean", "std", "min", "p50", "p95", "p99", "max"), _NUMBER)
_METHOD: dict[str, Any] = {"name": str, "status": str, "reason": _WORDS, "notes": [str]}
_NUMBERS: dict[str, Any] = {
    "parameters": {"total": _NUMBER, "trainable": _NUMBER},
    "storage": {"task_bytes": _NUMBER, "words": str},
    "made_with": dict,
    "cold_start": {"seconds": _NUMBER},
    "latency_ms": {**_SPREAD, "fps": _NUMBER},
    "stages_ms": dict,
    "batches": [{"size": int, "images_a_second": _NUMBER}],
    "memory": dict.fromkeys(("before_bytes", "inspect_peak_bytes", "learn_peak_bytes"), _MAYBE),
    "learning": {
        **{"images": int, "epochs": (int, NoneType), "seconds": _MAYBE, "parts": dict},
        **{"coreset_share": _MAYBE, "skipped": _WORDS},
    },
    "energy": {"joules_an_image": _MAYBE, "source": _WORDS, "reason": _WORDS},
    "floor": (dict, NoneType),
}
_FLOOR = dict.fromkeys(("encoder_flops", "ms", "encode_ms", "times_the_floor"), _NUMBER)
_DOCUMENT: dict[str, Any] = {
    **{"device_name": str, "made": str, "complete": bool, "machine": dict, "before": dict, "after": dict},
    "throttling": dict,
    "settings": {
        **{"repeats": int, "runs": int, "warm_up": int, "learn_images": int, "learn_repeats": int},
        **{"batch_sizes": [int], "images": dict, "order": [list]},
    },
    "float32_flops_a_second": _NUMBER,
    "methods": [dict],
}


def check_profile(document: Any) -> str | None:
    """What keeps a document from being a profile of this version, or None.

    >>> check_profile({"format": "dinosaur-profile", "version": 2})
    'is a profile of version 2, and this dinosaur-ad reads version 1'
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return "is no profile of dinosaur-ad"
    if document.get("version") != VERSION:
        return f"is a profile of version {document.get('version')}, and this dinosaur-ad reads version {VERSION}"
    fault = _fault(document, _DOCUMENT, "")
    for number, method in enumerate(document["methods"] if not fault else ()):
        fault = fault or _fault_of_method(method, f"methods[{number}]")
    return fault and f"lacks the field {fault} of a profile, or has something else there"


def _fault_of_method(method: dict[str, Any], place: str) -> str | None:
    fault = _fault(method, _METHOD, place)
    if fault or method["status"] != MEASURED:
        return fault
    fault = _fault(method, _NUMBERS, place)
    if fault:
        return fault
    stages = (_fault(values, _SPREAD, f"{place}.stages_ms.{stage}") for stage, values in method["stages_ms"].items())
    parts = method["learning"]["parts"]
    floor = method["floor"] and _fault(method["floor"], _FLOOR, f"{place}.floor")
    return (
        next(filter(None, stages), None)
        or _fault(parts, dict.fromkeys(parts, _NUMBER), f"{place}.learning.parts")
        or floor
        or None
    )


def _fault(value: Any, wanted: Any, place: str) -> str | None:
    """The place of the first thing that is not as it is wanted."""
    if isinstance(wanted, dict):
        if not isinstance(value, dict):
            return place
        inside = ((value.get(key, _MISSING), kind, f"{place}.{key}".lstrip(".")) for key, kind in wanted.items())
    elif isinstance(wanted, list):
        if not isinstance(value, list):
            return place
        inside = ((each, wanted[0], f"{place}[{number}]") for number, each in enumerate(value))
    else:
        # True is a number to Python, and Infinity to its JSON.
        odd = (isinstance(value, bool) and wanted is not bool) or (
            isinstance(value, float) and not math.isfinite(value)
        )
        return place if odd or not isinstance(value, wanted) else None
    return next(filter(None, (_fault(*each) for each in inside)), None)


_MISSING = object()
