"""Readers while writers change every task: each result is that of one version of one task, and nobody is turned away.

A case is a crowd on one store for 20 seconds: four readers; writers that update and take back, learn anew, forget and
bring back, learn and prune; and two updaters of one task at the same time. All states a task goes through are known
beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attack.arena import Arena
from attack.runner import Outcome

SMALL, FULL = 1, 6
SECONDS = 20.0
LEAST = 200
"""Results without which a crowd has shown nothing; a tenth as many changes."""


def attack(arena: Arena, cases: Sequence[int]) -> Iterator[Outcome]:
    """One crowd after the other: each takes the whole machine."""
    for case in cases:
        yield from crowd(arena, case)


def crowd(arena: Arena, case: int) -> Iterator[Outcome]:
    """Let the crowd loose and count what it saw; every kind of failure is one."""
    with arena.place() as place:
        known = arena.pool.ask("attack.crowd_states:prepare", root=str(arena.root), place=str(place))
        done = arena.pool.run(
            "attack.crowd:race",
            root=str(arena.root),
            place=str(place),
            known=known,
            seconds=SECONDS,
            limit=SECONDS + 120,
        )
    if crash := done.crash() or (done.last_line() if done.code else None):
        yield Outcome(case, f"the crowd as a whole: {crash}")
        return
    said = done.result
    if said["results"] < LEAST or said["writes"] < LEAST // 10:
        yield Outcome(case, f"hardly anything happened: {said['results']} results, {said['writes']} changes")
    problems = [
        f"{len(found)} of {said['results']} results and {said['writes']} changes {what}: {found[0]}"
        for what, found in said["problems"].items()
        if found
    ]
    yield Outcome(case, problems[0] if problems else None, tried=said["results"])
    for problem in problems[1:]:
        yield Outcome(case, problem, tried=0)
