"""The changes that kills and faults interrupt, and what a store must be afterwards: as before, or as after."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from attack.arena import ONE, Arena
from attack.hooks import CHANGING

NAMES = ["a", "b", "c", "gone", "new", "other"]
CHANGES: dict[str, tuple[str, ...]] = {
    "learn": ("learn", "new", "{images}/c", *ONE),
    "update": ("update", "a", "{new}/a", *ONE),
    "forget": ("forget", "b"),
    "undo": ("undo", "a"),
    "replace": ("learn", "b", "{images}/a", "--replace", *ONE),
    "prune": ("tasks", "--prune"),
    "redo": ("redo", "c"),
    "rename": ("rename", "a", "other"),
}


def command(arena: Arena, change: str, store: Path) -> list[str]:
    """The command line of a change."""
    words = [word.format(images=arena.root / "images", new=arena.root / "new") for word in CHANGES[change]]
    return [*words, "--store", str(store)]


class Known:
    """Of every change: what the store holds before and after it, how many file-system calls and seconds it takes."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self.before = self.portrait(arena.store)
        self.after: dict[str, Any] = {}
        self.calls: dict[str, list[str]] = {}
        self.seconds: dict[str, float] = {}
        for change in CHANGES:
            with arena.place() as place:
                done = arena.pool.cli(*command(arena, change, place / "store"))
                if done.crash() or done.code:
                    raise RuntimeError(f"{change} does not work at all: {done.crash() or done.last_line()}")
                self.after[change], self.seconds[change] = self.portrait(place / "store"), done.seconds
            with arena.place() as place:
                steps = {"folder": str(place / "store"), "action": "count"}
                self.calls[change] = arena.pool.cli(*command(arena, change, place / "store"), steps=steps).result

    def changing(self, command: str) -> Sequence[int]:
        """The numbers of the calls that change a file, or of all where none does; what is between them only looks."""
        calls = self.calls[command]
        return [n for n, call in enumerate(calls, start=1) if call in (*CHANGING, "create")] or range(1, len(calls) + 1)

    def portrait(self, store: Path) -> Any:
        """What a store holds."""
        arguments: dict[str, Any] = {"store": str(store), "fixed": str(self._arena.fixed), "names": NAMES}
        return self._arena.pool.ask("attack.jobs:portrait", **arguments)

    def problem(self, change: str, store: Path) -> str | None:
        """What is wrong with a store on which a command was interrupted; the next write is tried too."""
        images = str(self._arena.root / "images" / "c")
        arguments: dict[str, Any] = {"store": str(store), "fixed": str(self._arena.fixed), "names": NAMES}
        done = self._arena.pool.run("attack.jobs:aftermath", images=images, **arguments)
        if done.crash() or done.code:
            return f"the store cannot be used afterwards: {done.crash() or done.last_line()}"
        said = done.result
        if said["state"] not in (self.before, self.after.get(change)):
            return f"the store is neither as before nor as after: {difference(said['state'], self.before)}"
        if not said["others"]:
            return "the next write changed other tasks"
        return self._arena.touched()


@cache
def known(arena: Arena) -> Known:
    """What is known of the changes, found out once."""
    return Known(arena)


def difference(found: Any, wanted: Any, where: str = "") -> str:
    """Where two portraits differ first."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in sorted({*found, *wanted}, key=str):
            if found.get(key) != wanted.get(key):
                return difference(found.get(key), wanted.get(key), f"{where}/{key}")
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
            if one != other:
                return difference(one, other, f"{where}/{index}")
    return f"{where}: {str(found)[:80]} instead of {str(wanted)[:80]}"
