"""Small files of enormous images: what a command holds must not grow with their number.

A case is one command; learn and inspect in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from attack.arena import ONE, Arena
from attack.runner import Outcome, each

SMALL, FULL = 1, 2
SIDE, IMAGES, FEWER = 9999, 20, 5
MOST_MB = 1000.0
LIMIT = 400.0


def attack(arena: Arena, cases: Sequence[int]) -> Iterator[Outcome]:
    """Draw the images, then learn from them and inspect them; one case alone takes fewer of them."""
    count = IMAGES if len(cases) > 1 else FEWER
    drawn = list(each(arena.pool, range(count), partial(_draw, arena)))
    if problem := next((one.problem for one in drawn if one.problem), None):
        yield Outcome(-1, f"the images could not be drawn: {problem}")
        return
    for case in cases:
        yield Outcome(case, swallow(arena, "inspect" if case % 2 else "learn"))


def _draw(arena: Arena, number: int) -> str | None:
    done = arena.pool.run(
        "attack.memory:draw", folder=str(arena.root / "work" / "enormous"), number=number, limit=LIMIT
    )
    return done.last_line() if done.code else None


def draw(folder: str, number: int) -> int:
    """One image of 100 million pixels in about 500 bytes (JPEG 2000), or as few as PNG can do."""
    from pathlib import Path

    from PIL import Image, features

    Path(folder).mkdir(exist_ok=True)
    ending = "jp2" if features.check("jpg_2000") else "png"
    Image.new("L", (SIDE, SIDE), 60 + 5 * number).save(f"{folder}/{number:02d}.{ending}")
    return 0


def swallow(arena: Arena, verb: str) -> str | None:
    """One command on all of them."""
    folder = arena.root / "work" / "enormous"
    words = ("learn", "big", folder) if verb == "learn" else ("inspect", folder)
    with arena.place() as place:
        done = arena.pool.cli(*words, "--store", place / "store", *ONE, limit=LIMIT)
    if crash := done.crash():
        return f"{verb}: {crash}"
    if done.code not in (0, 2, 3):
        return f"{verb}: exit code {done.code}: {done.last_line()}"
    if done.peak_mb > MOST_MB:
        return f"{verb}: {done.peak_mb:,.0f} MB of memory, and {MOST_MB:,.0f} are allowed"
    return None
