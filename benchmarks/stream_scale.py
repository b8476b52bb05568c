"""A long stream through the watch: does memory or time grow, does it survive kills, is an old product known again?

    python -m benchmarks.stream_scale run --pictures 100000 --out results/stream_scale.json
    python -m benchmarks.stream_scale kills --out results/stream_kills.json
    python -m benchmarks.stream_scale table results/stream_scale.json
    python -m benchmarks.stream_scale kills-table results/stream_kills.json
    python -m benchmarks.stream_scale chart results/stream_scale.json > docs/images/stream-scale.svg

Small drawn pictures and an encoder of random weights, so that the machinery of the watch is what costs. ``run`` writes
what it has every thousand pictures, so that a run that is stopped is a shorter one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.line_chart import Panel, line_charts
from dinosaur_ad import Dinosaur
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bench.environment import environment
from dinosaur_ad.presets import FAST
from dinosaur_ad.watch.tray import Tray

ENCODER = "tiny-dinov2"
PRESET = replace(FAST, name="tiny-fast", layers=(0, 1), size=70)
SEGMENT = 500
"""Pictures of one product in a row."""
RARE, RARE_PICTURES = 3, 60
"""The product that comes at the beginning and once more after half of the stream, and how often each time."""
STRANGERS, DEFECTS = 0.01, 0.01
"""Shares of pictures that show nothing that ever comes again, and of parts with a defect."""
STEP = 1000
"""Pictures between two samples."""


class DrawnPicture(NamedTuple):
    """What a picture of the stream shows: a product (None: nothing known), and whether with a defect."""

    product: int | None
    defect: bool


def shown(number: int, total: int, seed: int) -> DrawnPicture:
    """What the picture of this number shows, of ``total``."""
    random = np.random.default_rng([seed, number, 1])
    if random.random() < STRANGERS:
        return DrawnPicture(None, False)
    half = total // 2
    rare = number < RARE_PICTURES or half <= number < half + RARE_PICTURES
    return DrawnPicture(RARE if rare else number // SEGMENT % RARE, bool(random.random() < DEFECTS))


def draw(picture: DrawnPicture, number: int, seed: int) -> NDArray[np.uint8]:
    """The pixels: a pattern of 7 x 7 fields in its own light, with noise, and with a defect a square on it."""
    random = np.random.default_rng([seed, number, 2])
    kind = 1000 + picture.product if picture.product is not None else 10_000 + number
    fields = np.random.default_rng([seed, kind]).integers(40, 215, (7, 7, 3))
    base = np.kron(fields, np.ones((10, 10, 1))) * random.uniform(0.95, 1.05)
    pixels = np.clip(base + random.normal(0, 4, base.shape), 0, 255).astype(np.uint8)
    if picture.defect:
        row, column = random.integers(0, 58, 2)
        pixels[row : row + 12, column : column + 12] = (250, 10, 240)
    return pixels


def write_picture(folder: Path, number: int, total: int, seed: int) -> Path:
    """The file of a picture."""
    path = folder / f"{number:07d}.bmp"
    Image.fromarray(draw(shown(number, total, seed), number, seed)).save(path)
    return path


def passing_files(folder: Path, total: int, seed: int) -> Iterator[Path]:
    """The files one after another; each is removed when the next one is asked for."""
    for number in range(total):
        path = write_picture(folder, number, total, seed)
        yield path
        path.unlink()


def resident_bytes() -> int:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def folder_bytes(folder: Path) -> int:
    """Of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Let the stream pass once, sampled every so many pictures; ends early after ``--minutes``."""
    result: dict[str, Any] = {
        "planned": options.pictures,
        "seed": options.seed,
        "environment": environment("cpu"),
        "samples": [],
    }
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "pictures"
        folder.mkdir()
        store = Path(place) / "store"
        detector = Dinosaur(store, encoder=ENCODER, preset=PRESET, seed=options.seed)
        result["encoder"] = detector.encoder.info()
        tally = StreamTally(options.pictures, options.seed)
        start, wall, cpu = time.perf_counter(), time.perf_counter(), time.process_time()
        for event in detector.watch(passing_files(folder, options.pictures, options.seed), adopt="auto"):
            before = tally.done
            tally.take(event.kind, event.path, event.task, event.inspection)
            if tally.done == before or tally.done % STEP:
                continue
            sample = {
                "pictures": tally.done,
                "seconds": (time.perf_counter() - wall) / STEP,
                "processor_seconds": (time.process_time() - cpu) / STEP,
                "resident_bytes": resident_bytes(),
                "store_bytes": folder_bytes(store),
                "database_bytes": (store / "watch" / "watch.sqlite").stat().st_size,
                "bank_bytes": sum(info.bytes for each in detector.tasks() for info in each.files.values()),
            }
            result["samples"].append(sample)
            result |= tally.summary() | {"tasks": len(detector)}
            write_atomic(options.out, f"{json.dumps(result, indent=1)}\n".encode())
            print(json.dumps(sample), flush=True)
            wall, cpu = time.perf_counter(), time.process_time()
            if time.perf_counter() - start > 60 * options.minutes:
                break
    return result


class StreamTally:
    """What became of the pictures: the events by kind, errors, and how the rare product was judged when it returned."""

    def __init__(self, total: int, seed: int) -> None:
        self._total, self._seed = total, seed
        self._kinds: Counter[str] = Counter()
        self._task_of: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self.done = 0

    def take(self, kind: str, path: str, task: str, inspection: Any) -> None:
        """Count an event; ``done`` goes up with the picture that it is about."""
        self._kinds[kind] += 1
        if kind not in ("inspected", "unknown", "left out") or not path or int(Path(path).stem) < self.done:
            return
        number = int(Path(path).stem)
        self.done = number + 1
        picture = shown(number, self._total, self._seed)
        if picture.product is None:
            self._counts["strangers"] += 1
            self._counts["strangers taken for a product"] += kind == "inspected"
            return
        if not inspection:
            return
        owner = self._task_of.setdefault(task, picture.product)
        self._counts["of another product"] += owner != picture.product
        what = "defects" if picture.defect else "normals"
        self._counts[what] += 1
        self._counts[f"{what} flagged"] += inspection.verdict != "normal"
        if picture.product == RARE and number >= self._total // 2:
            self._counts["returned"] += 1
            self._counts["returned and known"] += owner == RARE

    def summary(self) -> dict[str, Any]:
        """As JSON objects."""
        return {"events": dict(self._kinds), "counts": dict(self._counts)}


def table(result: dict[str, Any]) -> list[str]:
    """The first and last samples, and what became of the pictures."""
    samples = result["samples"]
    done = samples[-1]["pictures"]
    tenth = max(1, len(samples) // 10)
    lines = [
        "| pictures | processor time a picture | memory of the process | store | of it the watch's database | banks |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for start in range(0, len(samples), tenth):
        part = samples[start : start + tenth]
        last = part[-1]
        first = 0 if start == 0 else samples[start - 1]["pictures"]
        cells = [
            f"{first:,} to {last['pictures']:,}",
            f"{1000 * np.mean([each['processor_seconds'] for each in part]):.1f} ms",
            *(
                f"{last[key] / 2**20:.2f} MiB"
                for key in ("resident_bytes", "store_bytes", "database_bytes", "bank_bytes")
            ),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    counts, events = Counter(result["counts"]), Counter(result["events"])
    returned = (
        f"{counts['returned and known']} of {counts['returned']} judged pictures of the product that returned after "
        f"{result['planned'] // 2:,} pictures were taken for it"
        if counts["returned"]
        else "the run ended before the product returned"
    )
    return [
        *lines,
        "",
        f"{done:,} pictures of {result['planned']:,} planned, {result['encoder']['encoder']}, {PRESET.size} px, "
        f"{result['encoder']['provider']}, {result['tasks']} tasks from {events['proposed']} proposals, "
        f"{events['updated']} updates. {counts['normals flagged']:,} of {counts['normals']:,} good parts and "
        f"{counts['defects flagged']:,} of {counts['defects']:,} defects were called anomalous, "
        f"{counts['strangers taken for a product']} of {counts['strangers']:,} strangers were taken for a product; "
        f"{returned}.",
    ]


def chart(result: dict[str, Any]) -> list[str]:
    """Time, memory and disk against pictures."""
    samples = result["samples"]
    thousand = [each["pictures"] / 1000 for each in samples]
    panels = [
        Panel(
            "processor ms a picture",
            {"": [(x, 1000 * each["processor_seconds"]) for x, each in zip(thousand, samples, strict=True)]},
        ),
        Panel(
            "memory of the process, MiB",
            {"": [(x, each["resident_bytes"] / 2**20) for x, each in zip(thousand, samples, strict=True)]},
        ),
        Panel(
            "on disk, MiB",
            {
                "store": [(x, each["store_bytes"] / 2**20) for x, each in zip(thousand, samples, strict=True)],
                "banks": [(x, each["bank_bytes"] / 2**20) for x, each in zip(thousand, samples, strict=True)],
            },
        ),
    ]
    return [line_charts("A long stream: time, memory and disk", panels, "thousand pictures")]


def follow(store: Path, folder: Path, seed: int) -> None:
    """Watch the files of a folder to their end, in this process."""
    detector = Dinosaur(store, encoder=ENCODER, preset=PRESET, seed=seed)
    print("begun", detector.encoder.name, flush=True)
    for _ in detector.watch(folder, adopt="auto"):
        pass


def state_of(store: Path) -> tuple[object, ...]:
    """All that a watch has decided and kept, without the dates of versions."""
    detector, tray = Dinosaur(store), Tray(store)
    tasks = {each.name: (each.manifest["digests"], detector.threshold(each.name)) for each in detector.tasks()}
    kept = [each.origin for each in tray.loose()]
    recent = {name: [each.origin for each in tray.recent(name)] for name in tasks}
    decisions = tray.decisions()
    tray.close()
    return tasks, kept, recent, decisions, sorted(path.name for path in (store / "watch" / "pictures").iterdir())


def started_child(store: Path, folder: Path, seed: int) -> subprocess.Popen[bytes]:
    """Another process that watches the files, after it has opened the store."""
    command = [sys.executable, "-m", "benchmarks.stream_scale", "follow", str(store), str(folder), str(seed)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def kills(options: argparse.Namespace) -> dict[str, Any]:
    """Watch the same files once to the end, and once with ``--kills`` kills at random moments."""
    random = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as place:
        folder, whole, killed = (Path(place) / name for name in ("pictures", "whole", "killed"))
        folder.mkdir()
        for number in range(options.pictures):
            write_picture(folder, number, options.pictures, options.seed)
        started = time.perf_counter()
        follow(whole, folder, options.seed)
        seconds = time.perf_counter() - started
        done = 0
        child = started_child(killed, folder, options.seed)
        while done < options.kills:
            try:
                child.wait(timeout=float(random.uniform(0, 2)) * seconds / options.kills)
                break  # it came to the end before the last kill
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                done += 1
            child = started_child(killed, folder, options.seed)
        child.wait()
        same = state_of(whole) == state_of(killed)
        decisions = len(state_of(whole)[3])  # type: ignore[arg-type]
    return {
        "pictures": options.pictures,
        "kills": done,
        "exit_code": child.returncode,
        "decisions": decisions,
        "same": same,
        "seed": options.seed,
        "environment": environment("cpu"),
    }


def kills_table(result: dict[str, Any]) -> list[str]:
    """In a sentence."""
    outcome = "the same" if result["same"] else "another"
    return [
        f"{result['pictures']:,} pictures, the process killed {result['kills']} times at random moments and started "
        f"again: {outcome} tasks, thresholds, tray and {result['decisions']} decisions as without kills."
    ]


TABLES = {"table": table, "chart": chart, "kills-table": kills_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    long, short = verbs.add_parser("run"), verbs.add_parser("kills")
    long.add_argument("--pictures", type=int, default=100_000)
    long.add_argument("--minutes", type=float, default=float("inf"), help="end after so long")
    short.add_argument("--pictures", type=int, default=700)
    short.add_argument("--kills", type=int, default=20)
    for each in (long, short):
        each.add_argument("--out", type=Path, required=True)
        each.add_argument("--seed", type=int, default=0)
    child = verbs.add_parser("follow")  # what is killed
    child.add_argument("store", type=Path)
    child.add_argument("folder", type=Path)
    child.add_argument("seed", type=int)
    for name in TABLES:
        verbs.add_parser(name).add_argument("result", type=Path)
    options = parser.parse_args()
    if options.verb == "run":
        print("\n".join(table(run(options))))
    elif options.verb == "follow":
        follow(options.store, options.folder, options.seed)
    elif options.verb == "kills":
        result = kills(options)
        write_atomic(options.out, f"{json.dumps(result, indent=1)}\n".encode())
        print("\n".join(kills_table(result)))
    else:
        print("\n".join(TABLES[options.verb](json.loads(options.result.read_text()))))


if __name__ == "__main__":
    main()
