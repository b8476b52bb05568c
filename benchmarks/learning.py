"""Learning 443 images with the default encoder: where the time goes, peak memory, and growth with the images (D)."""

from __future__ import annotations

import tempfile
from functools import partial
from operator import itemgetter
from pathlib import Path

from benchmarks.images import products
from benchmarks.machine import with_peak_megabytes
from benchmarks.measure import Section, Table, at_most
from dinosaur_ad import Dinosaur
from dinosaur_ad.inspection import Learned

STAGES = ("read", "encode", "memory", "calibrate", "store")


def run(quick: bool) -> Section:
    """Teach the same product from more and more images, each time as a new task."""
    counts, turns = ((60, 120), 1) if quick else ((111, 222, 443), 3)
    images = products("gear", counts[-1])
    taught: dict[int, list[Learned]] = {count: [] for count in counts}
    peaks: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
    with tempfile.TemporaryDirectory() as folder:
        detector = Dinosaur(Path(folder) / "store")
        detector.learn("warm", images[:8])
        for turn in range(turns):
            for count in counts:
                learned, *memory = with_peak_megabytes(partial(detector.learn, f"d{count}-{turn}", images[:count]))
                taught[count].append(learned)
                peaks[count].append((memory[0], memory[1]))
    rows = [_row(count, _least_disturbed(taught[count]), max(peaks[count], key=itemgetter(1))) for count in counts]
    seconds = _least_disturbed(taught[counts[-1]])
    share = seconds["memory"] / sum(seconds.values())
    columns = ("D", *(f"{stage} s" for stage in STAGES), "memory share", "ms an image", "peak MB", "of these before")
    return Section(
        "Learning",
        [Table("Default encoder and preset, 256 px images, into a store on disk; fastest turn", columns, rows)],
        [at_most(f"learning {counts[-1]} images: share of the memory", share, 0.02)],
    )


def _least_disturbed(taught: list[Learned]) -> dict[str, float]:
    """Seconds per stage of the turn that took the least in all."""
    return min((each.seconds for each in taught), key=lambda seconds: sum(seconds.values()))


def _row(count: int, seconds: dict[str, float], peak: tuple[float, float]) -> tuple[object, ...]:
    total, (before, highest) = sum(seconds.values()), peak
    split = (seconds[stage] for stage in STAGES)
    return (count, *split, seconds["memory"] / total, total / count * 1e3, highest, before)
