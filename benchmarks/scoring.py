"""Scoring one image against the naive form, as a share of the whole inspection, and how it grows.

The naive form goes from patch to patch: gather the coresets of its window, take the broadcast difference, keep the
least. Growth is shown for the members (M), the banks asked (T) and the grid.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.images import products
from benchmarks.measure import Section, Table, Target, at_least, at_most, in_turns, milliseconds
from dinosaur_ad import Dinosaur
from dinosaur_ad.bank.bank import members_last
from dinosaur_ad.core.arrays import squared_norms
from dinosaur_ad.core.quantise import widen
from dinosaur_ad.core.scoring import patch_distances

CHANNELS = 384
CASES = {"paper: 14 × 14, M = 44, r = 3": (14, 44, 3), "default: 16 × 16, M = 88, r = 1": (16, 88, 1)}

Floats = NDArray[np.float32]


def naive(token_HWC: Floats, bank_HWMC: Floats, radius: int) -> Floats:
    """Eq. 6-7 patch by patch."""
    height, width, channels = token_HWC.shape
    distance_HW = np.empty((height, width), np.float32)
    for i, j in np.ndindex(height, width):
        window = bank_HWMC[max(0, i - radius) : i + radius + 1, max(0, j - radius) : j + radius + 1]
        distance_HW[i, j] = np.linalg.norm(window.reshape(-1, channels) - token_HWC[i, j], axis=1).min()
    return distance_HW


def scene(side: int, members: int) -> tuple[Floats, Floats, Floats]:
    """Random tokens of one image, a random bank and its half norms."""
    rng = np.random.default_rng(0)
    token_NHWC = rng.standard_normal((1, side, side, CHANNELS), np.float32)
    bank_HWMC = rng.standard_normal((side, side, members, CHANNELS), np.float32)
    return token_NHWC, bank_HWMC, squared_norms(bank_HWMC) / 2


def ours(side: int, members: int, radius: int) -> Callable[[], Floats]:
    """Scoring of one image against a bank as the detector keeps it, ready to be called."""
    token_NHWC, bank_HWMC, half_norm_HWM = scene(side, members)
    return partial(patch_distances, token_NHWC, members_last(widen(bank_HWMC)), radius, half_norm_HWM=half_norm_HWM)


def run(quick: bool) -> Section:
    """Compare with the naive form, place it in a real inspection, and let each size grow alone."""
    turns = 5 if quick else 15
    compared, targets = _compared(turns)
    stages, share = _inspection(turns)
    return Section(
        "Scoring one image",
        [
            Table(
                "",
                (
                    "case",
                    "ours ms, median",
                    "fastest",
                    "naive ms, median",
                    "fastest",
                    "times, median",
                    "times, fastest",
                ),
                compared,
            ),
            Table("The whole inspection of one image, default encoder and preset", ("stage", "ms, median"), stages),
            Table(
                "One size grows, the others stay (default preset)",
                ("what", "ms, median", "ms, fastest"),
                _growth(turns),
            ),
        ],
        [*targets, at_most("scoring: share of the inspection of one image, one bank asked", share, 0.20)],
    )


def _compared(turns: int) -> tuple[list[tuple[object, ...]], list[Target]]:
    rows: list[tuple[object, ...]] = []
    targets = []
    for name, (side, members, radius) in CASES.items():
        fast = ours(side, members, radius)
        token_NHWC, bank_HWMC, _ = scene(side, members)
        slow = partial(naive, token_NHWC[0], bank_HWMC, radius)
        np.testing.assert_allclose(fast()[0], slow(), rtol=1e-4)
        times = in_turns({"ours": fast, "naive": slow}, turns)
        ratio = times["naive"].fastest / times["ours"].fastest
        typical = times["naive"].median / times["ours"].median
        rows.append((name, *milliseconds(times["ours"]), *milliseconds(times["naive"]), typical, ratio))
        targets.append(at_least(f"scoring: times faster than naive ({name})", ratio, 8))
    return rows, targets


def _inspection(turns: int) -> tuple[list[tuple[object, ...]], float]:
    """Median milliseconds of each stage of inspecting one image without naming its task, and the share of scoring."""
    images = products("gear", 443 if turns > 5 else 120)
    detector = Dinosaur()
    detector.learn("gear", images)
    detector.inspect(images[0])
    taken = [detector.inspect(images[turn]).ms for turn in range(turns)]
    median = {stage: float(np.median([ms[stage] for ms in taken])) for stage in taken[0]}
    return list(median.items()), median["score"] / median["total"]


def _growth(turns: int) -> list[tuple[object, ...]]:
    single = ours(16, 88, 1)
    work: dict[str, Callable[[], object]] = {f"M = {members}": ours(16, members, 1) for members in (22, 44, 88, 176)}
    work |= {f"T = {banks} banks asked": partial(_several, single, banks) for banks in (1, 2, 5)}
    work |= {f"grid {side} × {side}": ours(side, 88, 1) for side in (8, 16, 32)}
    return [(name, *milliseconds(timing)) for name, timing in in_turns(work, turns).items()]


def _several(single: Callable[[], object], banks: int) -> None:
    for _ in range(banks):
        single()
