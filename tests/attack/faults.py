"""The operating system refuses: at each file-system call of a command in turn, with each of the usual errors."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence

from attack.arena import ONE, Arena
from attack.changes import CHANGES, Known, command, known
from attack.compare import results_problem
from attack.hooks import LASTING
from attack.runner import Done, Outcome, each

SMALL, FULL = 100, 945
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EMFILE)
READS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", "{fixed}", "--json", *ONE),
    "tasks": ("tasks",),
    "verify": ("tasks", "--verify"),
}


def attack(arena: Arena, cases: Sequence[int]) -> Iterator[Outcome]:
    """Refuse a call, then compare."""
    facts = known(arena)
    for name in READS:
        steps = {"folder": str(arena.store), "action": "count"}
        facts.calls[name] = arena.pool.cli(*_command(arena, name, arena.store), steps=steps).result
    yield from each(arena.pool, cases, lambda case: fault(arena, facts, case))


def _command(arena: Arena, name: str, store: object) -> list[str]:
    return [*(word.format(fixed=arena.fixed) for word in READS[name]), "--store", str(store)]


def fault(arena: Arena, facts: Known, case: int) -> str | None:
    """One refusal: commands and errors in turn, mostly at calls that change a file.

    A full or read-only disk stays so in half of the cases.
    """
    dice = arena.random("faults", case)
    names = [*CHANGES, *READS]
    name, number = names[case % len(names)], ERRORS[case // len(names) % len(ERRORS)]
    at = dice.choice(facts.changing(name) if dice.random() < 0.7 else range(1, len(facts.calls[name]) + 1))
    lasting = number in LASTING and dice.random() < 0.5
    where = f"{name}, {errno.errorcode[number]}{' from' if lasting else ' at'} call {at} ({facts.calls[name][at - 1]})"
    with arena.place() as place:
        store = place / "store"
        steps = {"folder": str(store), "action": "fail", "at": at, "number": number, "lasting": lasting}
        argv = command(arena, name, store) if name in CHANGES else _command(arena, name, store)
        done = arena.pool.cli(*argv, steps=steps)
        problem = _answer(arena, name, done) or facts.problem(name, store)
    return f"{where}: {problem}" if problem else None


def _answer(arena: Arena, name: str, done: Done) -> str | None:
    """What is wrong with what the command said."""
    if crash := done.crash():
        return crash
    if done.code not in ((0, 2, 4) if name in READS else (0, 2)):
        return f"exit code {done.code}: {done.last_line()}"
    if done.code and not done.sentence():
        return f"exit code {done.code} without a sentence: {done.last_line()}"
    return results_problem(arena, done) if name == "inspect" else None
