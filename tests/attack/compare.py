"""Results of inspect against those of the untouched store: the same, or openly refused; nothing in between."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attack.arena import Arena, judged
from attack.jobs import JUDGED
from attack.runner import Done

REFUSED, CANNOT_JUDGE = 2, 4
# One task fewer means other groups of products, and their last bits with them.
CLOSE = 1e-5


def same(found: Mapping[str, Any], wanted: Mapping[str, Any], close: float = 0.0) -> str | None:
    """What differs between two opinions of one image; numbers may differ by the share ``close``."""
    for key in JUDGED:
        one, other = found.get(key), wanted[key]
        if one == other:
            continue
        if close and key == "worst":  # a place, which follows from the map
            continue
        if isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=close):
            continue
        return f"{key} {one} instead of {other}"
    return None


def results_problem(arena: Arena, done: Done, *, all_of: tuple[str, ...] = ()) -> str | None:
    """What is wrong with an inspection of the fixed images on a damaged store, if anything.

    ``all_of`` are tasks that nothing was done to: whatever else is damaged, their images are judged as before.
    """
    if crash := done.crash():
        return crash
    if done.code == REFUSED:
        if all_of:
            return f"all of it was refused, intact tasks included: {done.last_line()}"
        return None if done.sentence() else f"refused without a sentence: {done.last_line()}"
    if done.code not in (0, CANNOT_JUDGE):
        return f"exit code {done.code}: {done.last_line()}"
    try:
        results = {Path(each["path"]).name: each for each in judged(done)}
    except (ValueError, KeyError, TypeError):
        return f"it printed what is no result: {done.out[:200]!a}"
    return opinions_problem(arena.expected, results, openly=done.code == CANNOT_JUDGE, all_of=all_of)


def opinions_problem(
    expected: Mapping[str, Mapping[str, Any]],
    results: Mapping[str, Mapping[str, Any]],
    *,
    openly: bool,
    all_of: tuple[str, ...] = (),
) -> str | None:
    """What is wrong with opinions of the fixed images; ``openly`` if it was said that not all tasks were asked."""
    for name, wanted in expected.items():
        found = results.get(name)
        intact = wanted["task"] in all_of
        if found is None or "error" in found:
            if intact or not openly:
                return f"{name} was not judged"
            continue
        left_out = set(found.get("left_out") or ())
        if (left_out or found["verdict"] == "not ready") and not openly:
            return f"{name}: a task was left out ({', '.join(sorted(left_out))}) but the exit code does not say so"
        difference = same(found, wanted, CLOSE if openly else 0.0)
        excused = wanted["task"] in left_out or found["verdict"] == "not ready"
        if difference and (intact or not excused):
            return f"{name}: {difference}, silently"
    return None
