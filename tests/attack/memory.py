"""Small files of enormous images: what a command holds must not grow with their number.

The tests inspect a few of them; the full form learns from twenty and inspects them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from attack.arena import ONE, Arena
from attack.runner import Outcome, each

CASES = (("inspect", 5), ("learn", 20), ("inspect", 20))
IN_TESTS = (0,)
SMALL, FULL = len(IN_TESTS), len(CASES)
SIDE = 9999
MOST_MB = 1000.0
LIMIT = 400.0


def attack(arena: Arena, cases: Sequence[int]) -> Iterator[Outcome]:
    """Draw the images, then learn from them or inspect them."""
    needed = max(CASES[case][1] for case in cases)
    drawn = list(each(arena.pool, range(needed), partial(_draw, arena)))
    if problem := next((one.problem for one in drawn if one.problem), None):
        yield Outcome(-1, f"the images could not be drawn: {problem}")
        return
    for case in cases:
        yield Outcome(case, swallow(arena, *CASES[case]))


def _draw(arena: Arena, number: int) -> str | None:
    done = arena.pool.run(
        "attack.memory:draw", folder=str(arena.root / "work" / "enormous"), number=number, limit=LIMIT
    )
    return done.last_line() if done.code else None


def draw(folder: str, number: int) -> int:
    """One image of 100 million pixels in about 500 bytes (JPEG 2000), or as few as PNG can do."""
    from PIL import Image, features

    Path(folder).mkdir(exist_ok=True)
    ending = "jp2" if features.check("jpg_2000") else "png"
    Image.new("L", (SIDE, SIDE), 60 + 5 * number).save(f"{folder}/{number:02d}.{ending}")
    return 0


def swallow(arena: Arena, verb: str, count: int) -> str | None:
    """One command on some of them."""
    images = sorted((arena.root / "work" / "enormous").iterdir())[:count]
    # They are blank, so learning them has to be forced.
    words = ("learn", "big", "--force") if verb == "learn" else ("inspect",)
    with arena.place() as place:
        done = arena.pool.cli(*words, *images, "--store", place / "store", *ONE, limit=LIMIT)
    if crash := done.crash():
        return f"{verb}: {crash}"
    if done.code not in (0, 3, 4):  # 4: what is drawn shows no product
        return f"{verb}: exit code {done.code}: {done.last_line()}"
    if done.peak_mb > MOST_MB:
        return f"{verb} {count} images: {done.peak_mb:,.0f} MB of memory, and {MOST_MB:,.0f} are allowed"
    return None
