"""A child is killed while it changes the store: at any of its file-system calls, or at a random moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attack.arena import Arena
from attack.changes import CHANGES, Known, command, known
from attack.runner import Outcome, each

SMALL, FULL = 30, 600


def attack(arena: Arena, cases: Sequence[int]) -> Iterator[Outcome]:
    """Kill, then compare."""
    facts = known(arena)
    yield from each(arena.pool, cases, lambda case: kill(arena, facts, case))


def kill(arena: Arena, facts: Known, case: int) -> str | None:
    """One kill: the changes in turn; every third at a random time, the others at each call that changes a file."""
    dice = arena.random("kills", case)
    turn, change = case // len(CHANGES), list(CHANGES)[case % len(CHANGES)]
    with arena.place() as place:
        store = place / "store"
        argv = command(arena, change, store)
        if turn % 3 == 2:
            moment = dice.uniform(0, 1.1 * facts.seconds[change])
            done = arena.pool.cli(*argv, kill_after=moment)
            where = f"{change} killed after {moment * 1e3:.0f} ms"
        else:
            points = facts.changing(change)
            at = points[(2 * (turn // 3) + turn % 3) % len(points)]
            done = arena.pool.cli(*argv, steps={"folder": str(store), "action": "kill", "at": at})
            where = f"{change} killed at call {at} ({facts.calls[change][at - 1]})"
        if done.code != -9 and (done.crash() or done.code):
            return f"{where}: {done.crash() or done.last_line()}"
        problem = facts.problem(change, store)
        return f"{where}: {problem}" if problem else None
