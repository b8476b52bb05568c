"""One bit of one file of a store is flipped: refused, the task left out and named, or nothing changed at all.

Most cases are judged in a child that flips, inspects and flips back, with one encoder for all of them. Some go through
the command line. In others the damaged task is updated, or an update is undone: that must not turn damage into a good
hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from attack.arena import Arena
from attack.compare import results_problem
from attack.runner import Outcome, each

SMALL, FULL = 300, 7000
AT_ONCE = 25
HEADER_BYTES = 300
"""Where an array file says what it holds; half of its flips go there."""


@dataclass(frozen=True)
class Flip:
    """Which bit of which file, and what is done with the damaged store: inspect, command, update or undo."""

    case: int
    store: str
    file: str
    byte: int
    bit: int
    then: str

    def __str__(self) -> str:
        return f"{self.store}/{self.file} byte {self.byte} bit {self.bit}, then {self.then}"


def attack(arena: Arena, cases: Sequence[int]) -> Iterator[Outcome]:
    """Flip, then compare."""
    flips = [choose(arena, case) for case in cases]
    alone = {flip.case: flip for flip in flips if flip.then == "command"}
    yield from each(arena.pool, list(alone), lambda case: through_the_command_line(arena, alone[case]))
    rest = (flip for flip in flips if flip.then != "command")
    batches = dict(enumerate(iter(lambda: list(islice(rest, AT_ONCE)), [])))
    found: dict[int, list[Outcome]] = {}

    def together(number: int) -> None:
        found[number] = batch(arena, batches[number])

    for done in each(arena.pool, list(batches), together):
        yield from found[done.case]


def choose(arena: Arena, case: int) -> Flip:
    """The flip of a case: the files in turn, so that small ones are damaged as often as large ones."""
    dice = arena.random("flips", case)
    store = "small" if case % 8 == 5 else "store"
    then = {3: "update", 7: "undo", 9: "command"}.get(case % 10, "inspect") if store == "store" else "inspect"
    files = sorted(path for path in (arena.root / store).rglob("*") if path.is_file() and path.stat().st_size)
    if then in ("update", "undo"):  # both are about the task a
        files = [path for path in files if path.parent.parent.name != "tasks" or path.parent.name == "a"]
        files = [path for path in files if path.parent.parent.parent.name != "tasks" or path.parent.parent.name == "a"]
    path = files[dice.randrange(len(files))]
    size = path.stat().st_size
    header = path.suffix == ".safetensors" and dice.random() < 0.5
    byte = dice.randrange(min(size, HEADER_BYTES) if header else size)
    return Flip(case, store, path.relative_to(arena.root / store).as_posix(), byte, dice.randrange(8), then)


def flip_bit(path: Path, byte: int, bit: int) -> None:
    """Flip one bit in place; a second time flips it back."""
    with path.open("r+b") as file:
        file.seek(byte)
        value = file.read(1)[0]
        file.seek(byte)
        file.write(bytes([value ^ (1 << bit)]))


def through_the_command_line(arena: Arena, flip: Flip) -> str | None:
    """One flip, and what ``dinosaur inspect`` says of the store."""
    with arena.place(arena.root / flip.store) as place:
        flip_bit(place / "store" / flip.file, flip.byte, flip.bit)
        problem = results_problem(arena, arena.inspect(place / "store"))
    return f"{flip}: {problem}" if problem else None


def batch(arena: Arena, flips: Sequence[Flip]) -> list[Outcome]:
    """Several flips in one child; one that kills the child or hangs is a failure, and the others go on in a new one."""
    outcomes: list[Outcome] = []
    left = list(flips)
    with arena.place() as place:
        while left:
            journal = place / "journal.jsonl"
            journal.write_text("")
            done = arena.pool.run(
                "attack.flips_jobs:judge",
                root=str(arena.root),
                place=str(place),
                flips=[asdict(flip) for flip in left],
                journal=str(journal),
            )
            lines: list[dict[str, Any]] = [json.loads(line) for line in journal.read_text().splitlines()]
            outcomes += [
                Outcome(flip.case, f"{flip}: {line['problem']}" if line["problem"] else None)
                for flip, line in zip(left, lines, strict=False)
            ]
            left = left[len(lines) :]
            if left:  # the child did not get further: it died of the next one
                outcomes.append(Outcome(left[0].case, f"{left[0]}: {done.crash() or done.last_line()}"))
                left = left[1:]
    return outcomes
