"""Coreset selection against two naive forms, and how it grows with images (D), members (M) and grid.

The *literal* form is the definition as one writes it down: at every step, the broadcast difference between all
vectors and all picks so far. The *running* form remembers each vector's distance to its nearest pick, and takes the
broadcast difference with the newest pick only. Locations are independent, so the naive forms are timed on a few of
them and the time is scaled to all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Section, Table, at_least, in_turns, milliseconds
from dinosaur_ad.core.coreset import greedy_coreset

LOCATIONS, IMAGES, CHANNELS, MEMBERS = 196, 443, 384, 44

Points = NDArray[np.float32]


def literal(points_LDC: Points, size: int) -> NDArray[np.int64]:
    """The vector farthest from all picks, all distances computed anew at every step."""
    picks_LM = np.zeros((len(points_LDC), size), np.int64)
    for points_DC, picks in zip(points_LDC, picks_LM, strict=True):
        for m in range(1, size):
            distance_Dm = np.linalg.norm(points_DC[:, None] - points_DC[picks[:m]][None], axis=-1)
            picks[m] = distance_Dm.min(axis=1).argmax()
    return picks_LM


def running(points_LDC: Points, size: int) -> NDArray[np.int64]:
    """The same picks, with the distance to the nearest pick so far carried along."""
    picks_LM = np.zeros((len(points_LDC), size), np.int64)
    for points_DC, picks in zip(points_LDC, picks_LM, strict=True):
        nearest_D = np.full(len(points_DC), np.inf, np.float32)
        for m in range(1, size):
            nearest_D = np.minimum(nearest_D, np.linalg.norm(points_DC - points_DC[picks[m - 1]], axis=1))
            picks[m] = nearest_D.argmax()
    return picks_LM


def draw(locations: int, images: int) -> Points:
    """Random vectors; what they are does not change the time."""
    return np.random.default_rng(0).standard_normal((locations, images, CHANNELS), np.float32)


def run(quick: bool) -> Section:
    """Compare the forms, then let each size grow alone."""
    points, few, one = draw(LOCATIONS, IMAGES), 20, 2
    ours = greedy_coreset(points, MEMBERS, first=0)
    assert np.array_equal(ours[:few], running(points[:few], MEMBERS))
    assert np.array_equal(ours[:one], literal(points[:one], MEMBERS))
    times = in_turns(
        {
            "ours": lambda: greedy_coreset(points, MEMBERS, first=0),
            "running": lambda: running(points[:few], MEMBERS),
            "literal": lambda: literal(points[:one], MEMBERS),
        },
        turns=3 if quick else 7,
    )
    share = {"ours": 1.0, "running": LOCATIONS / few, "literal": LOCATIONS / one}
    median = {name: timing.median * share[name] for name, timing in times.items()}
    fastest = {name: timing.fastest * share[name] for name, timing in times.items()}
    compared: list[tuple[object, ...]] = [
        (name, median[name], median[name] / median["ours"], fastest[name], fastest[name] / fastest["ours"])
        for name in times
    ]
    ratio = fastest["literal"] / fastest["ours"]
    shape = f"{LOCATIONS} locations × {IMAGES} images × {CHANNELS} channels, M = {MEMBERS}"
    return Section(
        "Coreset",
        [
            Table(shape, ("form", "s, median", "times ours", "s, fastest", "times ours"), compared),
            Table("One size grows, the others stay", ("what", "ms, median", "ms, fastest"), _growth(quick)),
        ],
        [at_least("coreset: times faster than the literal form", ratio, 30)],
    )


def _growth(quick: bool) -> list[tuple[object, ...]]:
    cases = {
        "D": [(f"D = {images}", 196, images, 44) for images in (111, 222, 443, 886)],
        "M": [(f"M = {members}", 196, 443, members) for members in (22, 44, 88, 176, 264)],
        "grid": [(f"grid {side} × {side}", side * side, 443, 44) for side in (7, 14, 28)],
    }
    rows: list[tuple[object, ...]] = []
    for group in cases.values():
        for name, locations, images, members in group[:2] if quick else group:
            points = draw(locations, images)
            timing = in_turns({"ours": lambda p=points, m=members: greedy_coreset(p, m, first=0)}, 3)["ours"]  # type: ignore[misc]
            rows.append((name, *milliseconds(timing)))
    return rows
