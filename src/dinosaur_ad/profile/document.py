"""A profile as a JSON document: its fields, how they follow from what was measured, writing and reading.

The fields are described in docs/profile.md; ``FORMAT`` and ``VERSION`` identify them. A change of what a field means
needs another version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad._schema import Shape, anything, flag, items, maybe, number, record, text, whole
from dinosaur_ad.errors import InputError
from dinosaur_ad.profile.stages import STAGES, spread

FORMAT, VERSION = "dinosaur-profile", 1
MEASURED, SKIPPED, FAILED, PARTIAL = "measured", "skipped", "failed", "partial"

# Every field that tables show; others are allowed beside them.
_ANY, _TEXT, _MOST = anything(16), text(100_000), 1_000_000
_NUMBER, _COUNT = number(-1e300, 1e300), whole(0, _MOST)
_MAYBE_NUMBER, _MAYBE_TEXT, _OBJECT = maybe(_NUMBER), maybe(_TEXT), record({}, others=_ANY)


def _fields(*names: str, of: Shape = _NUMBER, **others: Shape) -> Shape:
    return record(dict.fromkeys(names, of) | others, others=_ANY)


_SPREAD = ("n", "mean", "std", "min", "p50", "p95", "p99", "max")
_METHOD = {"name": _TEXT, "status": _TEXT, "reason": _MAYBE_TEXT, "notes": items(_TEXT, _MOST)}
_NUMBERS = {
    "parameters": _fields("total", "trainable"),
    "storage": _fields("task_bytes", words=_TEXT),
    "made_with": _OBJECT,
    "cold_start": _fields("seconds"),
    "latency_ms": _fields(*_SPREAD, "fps"),
    "stages_ms": record({}, others=_fields(*_SPREAD)),
    "batches": items(_fields("images_a_second", size=_COUNT), _MOST),
    "memory": _fields("before_bytes", "inspect_peak_bytes", "learn_peak_bytes", of=_MAYBE_NUMBER),
    "learning": _fields(
        *("seconds", "coreset_share"),
        of=_MAYBE_NUMBER,
        **{"images": _COUNT, "epochs": maybe(_COUNT), "parts": record({}, others=_NUMBER), "skipped": _MAYBE_TEXT},
    ),
    "energy": _fields("source", "reason", of=_MAYBE_TEXT, joules_an_image=_MAYBE_NUMBER),
    "floor": maybe(_fields("encoder_flops", "ms", "encode_ms", "times_the_floor")),
}
_WITHOUT_NUMBERS, _WITH_NUMBERS = record(_METHOD, others=_ANY), record(_METHOD | _NUMBERS, others=_ANY)


def _method(value: Any, place: str) -> None:
    _WITHOUT_NUMBERS(value, place)
    if value["status"] == MEASURED:
        _WITH_NUMBERS(value, place)


_DOCUMENT = _fields(
    *("machine", "before", "after", "throttling"),
    of=_OBJECT,
    **{"device_name": _TEXT, "made": _TEXT, "complete": flag, "float32_flops_a_second": _NUMBER},
    settings=_fields(
        *("repeats", "runs", "warm_up", "learn_images", "learn_repeats"),
        of=_COUNT,
        **{"batch_sizes": items(_COUNT, _MOST), "images": _OBJECT, "order": items(items(_TEXT, _MOST), _MOST)},
    ),
    methods=items(_method, _MOST),
)


def check_profile(document: Any) -> str | None:
    """What keeps a document from being a profile of this version, or None.

    >>> check_profile({"format": "dinosaur-profile", "version": 2})
    'is a profile of version 2, and this dinosaur-ad reads version 1'
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return "is no profile of dinosaur-ad"
    if document.get("version") != VERSION:
        return f"is a profile of version {document.get('version')}, and this dinosaur-ad reads version {VERSION}"
    try:
        _DOCUMENT(document, "")
    except ValueError as error:
        return f"is not a whole profile: {error}"
    return None


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
