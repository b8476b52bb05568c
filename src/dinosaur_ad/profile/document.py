"""A profile as a JSON document: its fields, how they follow from what was measured, writing and reading.

The fields are described in docs/profile.md; ``FORMAT`` and ``VERSION`` identify them. A change of what a field means
needs another version.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from types import NoneType
from typing import Any

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.errors import InputError
from dinosaur_ad.profile.stages import STAGES, spread

# --- fields ---


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


# --- from measurements to a document ---


Document = dict[str, Any]


def summarise(
    name: str,
    notes: Sequence[str],
    learned: Sequence[Mapping[str, Any]],
    rounds: Sequence[Mapping[str, Any]],
    rate: float,
) -> dict[str, Any]:
    """One method from what its processes found: all rounds of inspecting pooled, the fastest learning.

    ``rate`` are the float32 operations a second of this machine, for the floor of the encoder.
    """
    last = rounds[-1]
    totals = [ms for each in rounds for ms in each["latency_ms"]]
    found = {stage for each in rounds for stage in each["stages_ms"]}
    stages = {
        stage: spread([ms for each in rounds for ms in each["stages_ms"].get(stage, [])])
        for stage in STAGES
        if stage in found
    }
    return {
        "name": name,
        "status": MEASURED,
        "reason": None,
        "notes": list(notes),
        "parameters": last["parameters"],
        "storage": last["storage"],
        "made_with": last["made_with"],
        "cold_start": _cold_start(rounds),
        "latency_ms": {
            **spread(totals),
            "fps": 1e3 * len(totals) / sum(totals),
            "values": [round(ms, 3) for ms in totals],
        },
        "stages_ms": stages,
        "batches": _batches(rounds),
        "memory": {
            "before_bytes": last["memory"]["before_bytes"],
            "inspect_peak_bytes": _highest(rounds),
            "learn_peak_bytes": _highest(learned),
        },
        "learning": _learning(learned),
        "energy": _energy(rounds),
        "floor": _floor(last["encoder_flops"], stages, rate),
    }


def not_measured(name: str, status: str, reason: str, notes: Sequence[str] = ()) -> dict[str, Any]:
    """A method that has no numbers, and why."""
    return {"name": name, "status": status, "reason": reason.rstrip("."), "notes": list(notes)}


def _cold_start(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    each = [one["cold_start"] for one in rounds]
    return {
        "seconds": median(one["seconds"] for one in each),
        "values": [one["seconds"] for one in each],
        "parts": {part: median(one["parts"][part] for one in each) for part in each[0]["parts"]},
    }


def _batches(rounds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    by_size: dict[int, list[float]] = {}
    for one in rounds:
        for batch in one["batches"]:
            by_size.setdefault(batch["size"], []).append(batch["images_a_second"])
    return [{"size": size, "images_a_second": median(each), "values": each} for size, each in by_size.items()]


def _highest(results: Sequence[Mapping[str, Any]]) -> int | None:
    return max(
        (one["memory"]["peak_bytes"] for one in results if one["memory"]["peak_bytes"] is not None), default=None
    )


def _learning(learned: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fastest of the times it was learned, as it was: parts of different runs are not mixed."""
    times = [one["learning"]["seconds"] for one in learned]
    best = min((one["learning"] for one in learned), key=lambda learning: learning["seconds"] or 0.0)
    memory, seconds = best["parts"].get("memory"), best["seconds"]
    share = memory / seconds if memory is not None and seconds else None
    return {**best, "values": times, "coreset_share": share, "skipped": best.get("skipped")}


def _energy(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    known = [one["energy"]["joules_an_image"] for one in rounds if one["energy"]["joules_an_image"] is not None]
    return {**rounds[-1]["energy"], "joules_an_image": median(known) if known else None}


def _floor(flops: int | None, stages: Mapping[str, Mapping[str, Any]], rate: float) -> dict[str, Any] | None:
    """The encoder's operations at the machine's rate, beside what encoding took; None where they are not known."""
    if flops is None or "encode" not in stages:
        return None
    ms, took = flops / rate * 1e3, stages["encode"]["p50"]
    return {"encoder_flops": flops, "ms": ms, "encode_ms": took, "times_the_floor": took / ms}


# --- on disk ---


def write_profile(path: Path, document: Document) -> None:
    """Write a profile, whole or not at all."""
    _write(path, json.dumps(document, indent=1, allow_nan=False) + "\n", "profile")


def write_page(path: Path, html: str) -> None:
    """Write a page, whole or not at all."""
    _write(path, html, "page")


def _write(path: Path, text: str, what: str) -> None:
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"The {what} '{path}' could not be written ({reason}); choose another place.") from error


def read_profile(path: Path) -> Document:
    """A profile from a file; anything else is refused in one sentence that names the file."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"The profile '{path}' cannot be read ({reason}); make one with: dinosaur profile.") from error
    except ValueError as error:
        raise InputError(f"'{path}' is damaged or no JSON; make it again with: dinosaur profile --out.") from error
    fault = check_profile(document)
    if fault:
        raise InputError(f"'{path}' {fault}; make it again with: dinosaur profile --out.")
    checked: Document = document
    return checked
