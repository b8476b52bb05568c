"""Stores that were made to do harm: a command refuses them or leaves the damaged task out, and touches nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from attack.arena import ONE, Arena, fingerprint, judged
from attack.compare import CANNOT_JUDGE, REFUSED, results_problem
from attack.hostile_arrays import array_cases
from attack.hostile_documents import Damage, document_cases
from attack.hostile_places import KEPT, place_cases
from attack.runner import Done, Outcome, each

LIMIT = 10.0
INTACT = {
    "store": (),  # store.json, or the folder of all tasks
    "task": ("b", "c"),  # what says which version of a counts
    "version": ("b", "c"),  # the newest version of a
    "gone": ("b", "c"),  # all of a
    "unread": ("a", "b", "c"),  # what only an update reads
    "stray": ("a", "b", "c"),  # something that is no part of a store was laid into it
}
"""By what was damaged: the tasks that nothing was done to."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": (),
    "tasks": ("tasks",),
    "verify": ("tasks", "--verify"),
    "health": ("health", *ONE),
    "health --verify": ("health", "--verify", *ONE),
    "prune": ("tasks", "--prune"),
    "update a": ("update", "a", "{root}/new/a", *ONE),
    "update b": ("update", "b", "{root}/new/b", *ONE),
    "learn q": ("learn", "q", "{root}/images/c", *ONE),
    "replace a": ("learn", "a", "{root}/images/a", "--replace", *ONE),
    "forget a": ("forget", "a"),
    "undo a": ("undo", "a"),
    "redo c": ("redo", "c"),
    "rename a": ("rename", "a", "other"),
}
READING = ("inspect", "tasks", "verify", "health", "health --verify")


@dataclass(frozen=True)
class Hostile:
    """One way to make a store hostile; see :data:`INTACT` for ``scope``."""

    name: str
    scope: str
    damage: Damage
    # A link, a pipe or a folder where none belongs: whether the store removes it or leaves it to people is its choice.
    foreign: bool = False

    def must_work(self, command: str) -> bool:
        """Whether a command has nothing to do with the damage, or is there to repair it."""
        if self.scope in ("task", "version", "gone") and command in ("update b", "learn q"):
            return True
        if self.foreign or self.scope == "store":
            return False
        repairs = {"task": ("forget a", "replace a"), "version": ("forget a", "replace a", "undo a")}
        return command in repairs.get(self.scope, ("update b", "learn q"))


@cache
def table() -> tuple[Hostile, ...]:
    """All hostile stores."""
    contents = (Hostile(*case) for cases in (document_cases, array_cases) for case in cases())
    return (*contents, *(Hostile(*case, foreign=True) for case in place_cases()))


SMALL, FULL = 40, len(table())


def attack(arena: Arena, cases: Sequence[int]) -> Iterator[Outcome]:
    """Make each store and run every command on it."""
    yield from each(arena.pool, cases, lambda case: harm(arena, table()[case]))


def harm(arena: Arena, hostile: Hostile) -> str | None:
    """All that is wrong with what the commands make of one hostile store."""
    problems = []
    openly = False
    for command in COMMANDS:
        done, problem = _run(arena, hostile, command)
        if command == "inspect":
            openly = done.code == REFUSED or (done.code == CANNOT_JUDGE and _left_out(done))
        elif openly and not problem and done.code == 0:
            problem = _too_kind(hostile, command)
        if problem:
            problems.append(f"{command}: {problem}")
        if done.hung:
            break  # the others would hang as long
    return f"{hostile.name}: {'; '.join(problems)}" if problems else None


def _left_out(done: Done) -> bool:
    """Whether inspect left a task out; images of a task that is gone cannot be judged either, and are unknown."""
    return any(each["left_out"] for each in judged(done))


def _too_kind(hostile: Hostile, command: str) -> str | None:
    """What is wrong with a command that succeeds on a store that inspect refuses, or of which it leaves a task out."""
    checks = {
        "verify": hostile.scope != "store",  # it reads tasks and no more
        "health": hostile.scope in ("store", "task"),  # it reads what describes them and no more
        "health --verify": True,
    }
    if checks.get(command):
        return "it calls the store healthy, and inspect does not"
    return None


def _run(arena: Arena, hostile: Hostile, command: str) -> tuple[Done, str | None]:
    with arena.place() as place:
        store, victim = place / "store", place / "victim"
        for name in ("secret.txt", "deep/file.txt", "deep/v0001/manifest.json", "deep/deeper/file.txt"):
            (victim / name).parent.mkdir(parents=True, exist_ok=True)
            (victim / name).write_text("the victim\n")
        hostile.damage(store, victim)
        before = fingerprint(place, ["victim"])
        if command == "inspect":
            done = arena.inspect(store, limit=LIMIT)
            known = {name: each for name, each in arena.expected.items() if hostile.scope != "gone" or name[0] != "a"}
            problem = results_problem(replace(arena, expected=known), done, all_of=INTACT[hostile.scope])
        else:
            words = [word.format(root=arena.root) for word in COMMANDS[command]]
            done = arena.pool.cli(*words, "--store", store, limit=LIMIT)
            problem = _answer(hostile, command, done)
        names = {path.name for path in place.iterdir()}
        if fingerprint(place, ["victim"]) != before or names != {"store", "victim"}:
            problem = f"files outside of the store were changed ({problem or f'exit code {done.code}'})"
        kept = store / KEPT.get(hostile.name, "")
        moved = store / KEPT.get(hostile.name, "").replace("tasks/a/", "tasks/other/")  # what lies in a renamed folder
        if not kept.exists() and not (command == "rename a" and moved.exists()):
            problem = f"it removed {KEPT[hostile.name]}, which the store had not made"
        if not problem and command not in READING:
            problem = _aftermath(arena, hostile, command, store, done)
    return done, problem


def _answer(hostile: Hostile, command: str, done: Done) -> str | None:
    if crash := done.crash():
        return crash
    if done.code not in (0, REFUSED, CANNOT_JUDGE):
        return f"exit code {done.code}: {done.last_line()}"
    if done.code and not done.sentence():
        return f"exit code {done.code} without a sentence: {done.last_line()}"
    if done.code and hostile.must_work(command):
        return f"it should work, and was refused: {done.last_line()}"
    return None


def _aftermath(arena: Arena, hostile: Hostile, command: str, store: Path, done: Done) -> str | None:
    """After a change: the tasks that nothing was done to are judged as before, and an update took over no damage."""
    changed = command.partition(" ")[2]
    intact = tuple(name for name in INTACT[hostile.scope] if name != changed)
    if not intact or (done.code and command != "prune"):
        return None
    results = arena.inspect(store, limit=LIMIT)
    if command == "update a" and hostile.scope != "stray":
        problem = results_problem(replace(arena, expected=_updated(arena)), results)
        return f"it took over damage: {problem}" if problem else None
    images = sorted(path for path in arena.fixed.iterdir() if path.name[0] in intact)
    if command == "learn q":  # another task like c: some images of c may well look more normal to it
        images = [path for path in images if path.name[0] != "c"]
    return _still_judged(arena, results, [path.name for path in images])


@cache
def _updated(arena: Arena) -> Mapping[str, Mapping[str, Any]]:
    """What an intact store says after the same update of a."""
    with arena.place() as place:
        words = [word.format(root=arena.root) for word in COMMANDS["update a"]]
        arena.pool.cli(*words, "--store", place / "store")
        return {Path(each["path"]).name: each for each in judged(arena.inspect(place / "store"))}


def _still_judged(arena: Arena, done: Done, names: Sequence[str]) -> str | None:
    wanted = {name: arena.expected[name] for name in names}
    tasks = tuple({each["task"] for each in wanted.values()})
    problem = results_problem(replace(arena, expected=wanted), done, all_of=tasks)
    return f"afterwards: {problem}" if problem else None
