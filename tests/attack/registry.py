"""All attacks by name: how many cases the tests and the full run try, and what a case is."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from attack.arena import Arena
from attack.runner import Outcome


@dataclass(frozen=True)
class Attack:
    """One attack: its module has ``attack(arena, cases)``, and ``SMALL`` and ``FULL``, the numbers of its cases."""

    name: str
    what: str
    module_name: str

    @property
    def module(self) -> ModuleType:
        """Where it is written."""
        return importlib.import_module(f"attack.{self.module_name}")

    def count(self, *, full: bool) -> int:
        """How many cases there are."""
        return int(self.module.FULL if full else self.module.SMALL)

    def cases(self, *, full: bool) -> list[int]:
        """The cases of the full or the small form; the small form takes them from all over the full one."""
        everything = range(self.count(full=True))
        if full:
            return list(everything)
        chosen = getattr(self.module, "IN_TESTS", None)  # where the cases are not alike
        return list(chosen or sorted(random.Random(0).sample(everything, self.count(full=False))))

    def run(self, arena: Arena, cases: Sequence[int]) -> Iterator[Outcome]:
        """Try cases; afterwards look once more for files that were touched outside."""
        tried: Iterator[Outcome] = self.module.attack(arena, cases)
        yield from tried
        if touched := arena.touched():
            yield Outcome(-1, f"after all cases: {touched}", tried=0)


ATTACKS = {
    name: Attack(name, what, module)
    for name, what, module in (
        ("kills", "a writer is killed at any moment", "kills"),
        ("faults", "the operating system refuses a call", "faults"),
        ("files", "damaged image files among good ones", "files"),
        ("flips", "one bit of any file of a store is flipped", "flips"),
        ("hostile", "a store that was made to do harm", "hostile"),
        ("concurrent", "readers while writers change every task", "concurrency"),
        ("memory", "small files of enormous images", "memory"),
        ("output", "names that steer a terminal", "output"),
        ("outside", "files outside of the store and the output", "outside"),
    )
}
