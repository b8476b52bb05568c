"""Damaged image files in a folder with good ones: each is judged as what it is or left out with a sentence."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from attack.arena import ONE, Arena, judged
from attack.compare import CLOSE, same
from attack.fuzz import fuzzed
from attack.runner import Outcome, each

SMALL, FULL = 300, 3000
AT_ONCE = 50
LIMIT = 60.0
MOST_MB = 1500.0
"""Of memory, for a few dozen small files, some of which say that they are enormous."""


def attack(arena: Arena, cases: Sequence[int]) -> Iterator[Outcome]:
    """Fill folders with damaged files, inspect them, look at every answer."""
    rest = iter(cases)
    batches = dict(enumerate(iter(lambda: list(islice(rest, AT_ONCE)), [])))
    found: dict[int, dict[int, str]] = {}

    def together(number: int) -> None:
        found[number] = folder_of(arena, batches[number])

    for done in each(arena.pool, list(batches), together):
        for case in batches[done.case]:
            yield Outcome(case, found[done.case].get(case))


def folder_of(arena: Arena, cases: Sequence[int]) -> dict[int, str]:
    """What is wrong, by case; what is wrong with the whole folder is tried again one by one."""
    with arena.place() as place:
        folder = place / "images"
        shutil.copytree(arena.fixed, folder)
        names = {}
        for case in cases:
            name, data = fuzzed(case, arena.random("files", case))
            (folder / name).write_bytes(data)
            names[name] = case
        problems, whole = _examine(arena, place / "store", folder, names)
        if whole and len(cases) == 1:
            problems = {cases[0]: f"{next(iter(names))}: {whole}"}
    if whole and len(cases) > 1:
        for case in cases:
            problems |= folder_of(arena, [case])
        return problems or {cases[0]: f"cases {cases[0]} to {cases[-1]} in one folder: {whole}"}
    return problems


def _examine(arena: Arena, store: Path, folder: Path, names: Mapping[str, int]) -> tuple[dict[int, str], str | None]:
    """What is wrong with single files, and with the run as a whole."""
    done = arena.pool.cli("inspect", folder, "--store", store, "--json", *ONE, limit=LIMIT)
    if crash := done.crash():
        return {}, crash
    if done.code not in (0, 3, 4):  # 4: a harmed image may show none of the products
        return {}, f"exit code {done.code}: {done.last_line()}"
    if done.peak_mb > MOST_MB:
        return {}, f"{done.peak_mb:.0f} MB of memory were used"
    results: dict[str, Any] = {Path(each["path"]).name: each for each in judged(done)}
    for name, wanted in arena.expected.items():
        if name not in results or (difference := same(results[name], wanted, CLOSE)):
            return {}, f"the good image {name} was not judged as before: {difference if name in results else 'missing'}"
    claimed = {name: each for name, each in results.items() if name in names and "error" not in each}
    told = arena.pool.ask("attack.files:independent", store=str(store), files=[str(folder / name) for name in claimed])
    problems = {}
    for name, case in names.items():
        if name not in results:
            problems[case] = f"{name} is not mentioned"
        elif name in claimed and (difference := _disagreement(claimed[name], told[name])):
            problems[case] = f"{name}: {difference}"
    return problems, None


def independent(store: str, files: Sequence[str]) -> dict[str, Any]:
    """What Pillow alone makes of files that were judged: not an image, not comparable, or the score of its pixels."""
    import numpy as np
    from PIL import Image

    from dinosaur_ad import Dinosaur, EncoderOptions

    detector = Dinosaur(store, options=EncoderOptions(threads=1))
    told: dict[str, Any] = {}
    for file in files:
        try:
            with warnings.catch_warnings(), Image.open(file) as image:
                warnings.simplefilter("ignore")
                image.load()
                plain = image.mode == "RGB" and not image.getexif() and "transparency" not in image.info
                pixels = np.asarray(image) if plain and getattr(image, "n_frames", 1) == 1 else None
        except Exception as error:  # Pillow's plugins raise nearly anything on a damaged file
            told[Path(file).name] = f"not an image ({type(error).__name__})"
            continue
        told[Path(file).name] = None if pixels is None else detector.inspect(pixels).score
    return told


def _disagreement(claimed: Mapping[str, Any], told: Any) -> str | None:
    if isinstance(told, str):
        return f"it was judged {claimed['verdict']}, but it is {told}"
    if told is not None and abs(claimed["score"] - told) > CLOSE * max(1.0, told):
        return f"it was given the score {claimed['score']}, but its own pixels give {told}"
    return None
