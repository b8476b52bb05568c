"""A crowd on one store: readers and writers, each a process of its own, for some seconds."""

from __future__ import annotations

import json
import math
import os
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attack.crowd_states import Known, values
from attack.jobs import pixels
from dinosaur_ad import Dinosaur, EncoderOptions
from dinosaur_ad.errors import DinosaurError, InputError

READERS = 4
MIXED, WRONG, DEAD, REFUSED = "mixed versions", "went to another task", "ended a reader", "were refused to a writer"
ALWAYS_THERE = ("a", "b")
"""Of the products in the fixed images; c comes and goes."""


class Member:
    """One of the crowd: what it found is in a file when it ends."""

    def __init__(self, root: Path, place: Path, known: Known, deadline: float) -> None:
        self.root, self.place, self.known, self.deadline = root, place, known, deadline
        self.store = place / "crowd"
        self.results = self.writes = 0
        self.problems: dict[str, list[str]] = {kind: [] for kind in (MIXED, WRONG, DEAD, REFUSED)}

    def going(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.deadline

    def open(self) -> Dinosaur:
        """The store, as any process opens it."""
        return Dinosaur(self.store, options=EncoderOptions(threads=1))

    # --- reading ---

    def read(self, number: int) -> None:
        """Inspect all images again and again, now by routing, now by name; every fourth reader opens the store anew."""
        names = [path.name for path in sorted((self.root / "fixed").iterdir())]
        images = pixels(self.root / "fixed")
        detector = self.open()
        encoder = detector.encoder
        turn = 0
        while self.going():
            turn += 1
            task = (None, None, "a", None, "b", "c")[turn % 6]
            try:
                if number == 0:
                    detector = Dinosaur(self.store, encoder=encoder)
                for name, image, result in zip(
                    names, range(len(names)), detector.inspect(images, task=task), strict=True
                ):
                    self.results += 1
                    self._check(name, image, result, task)
            except InputError as error:
                if task != "c":  # which may be forgotten just now
                    self.problems[DEAD].append(f"inspect, task {task}: {error}")
            except Exception as error:
                self.problems[DEAD].append(f"inspect, task {task}: {type(error).__name__}: {str(error)[:200]}")

    def _check(self, name: str, image: int, result: Any, task: str | None) -> None:
        found = values(result)
        states = [state[image] for state in self.known[result.task]]
        if not any(_alike(found, state) for state in states):
            self.problems[MIXED].append(f"{name} by {result.task}: {found}, and its versions say {states}")
        elif task is None and name[0] in ALWAYS_THERE and result.task != name[0]:
            self.problems[WRONG].append(f"{name} was judged by {result.task}")

    # --- writing ---

    def write(self, changes: Sequence[Callable[[Dinosaur], object]]) -> None:
        """Make changes in turn; what was begun is finished, so that the next turn finds the first state."""
        detector = self.open()
        while self.going():
            for change in changes:
                self._change(detector, change)

    def _change(self, detector: Dinosaur, change: Callable[[Dinosaur], object]) -> None:
        try:
            change(detector)
            self.writes += 1
        except DinosaurError as error:
            self.problems[REFUSED].append(str(error)[:300])

    def write_together(self) -> None:
        """Two processes update one task at the same moment; then both updates are taken back."""
        (go_read, go_write), (done_read, done_write) = os.pipe(), os.pipe()
        other = os.fork()
        if other == 0:
            os.close(go_write)
            self._second(go_read, done_write)
        os.close(go_read)
        os.close(done_write)
        detector = self.open()
        detector.encoder  # noqa: B018 (loaded before the first race)
        while self.going():
            os.write(go_write, b"1")
            before = self.writes
            self._change(detector, lambda it: it.update("e", self.place / "x"))
            answer = os.read(done_read, 300)
            if answer != b"1":
                self.problems[REFUSED].append(answer.decode() or "the other updater died")
            for _ in range(self.writes - before + (answer == b"1")):
                self._change(detector, lambda it: it.undo("e"))
        os.close(go_write)
        os.waitpid(other, 0)

    def _second(self, go: int, done: int) -> None:
        try:
            detector = self.open()
            detector.encoder  # noqa: B018
            while os.read(go, 1):
                try:
                    detector.update("e", self.place / "y")
                    os.write(done, b"1")
                except DinosaurError as error:
                    os.write(done, str(error).encode()[:290])
        finally:
            os._exit(0)


def _alike(found: Sequence[float], wanted: Sequence[float]) -> bool:
    return all(math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-7) for one, other in zip(found, wanted, strict=True))


def race(root: str, place: str, known: Known, seconds: float) -> dict[str, Any]:
    """Start everybody, wait for all, add up."""
    base, here = Path(root), Path(place)
    images, more = base / "images", base / "more"
    together: list[Callable[[Member], None]] = [
        *(lambda member, number=number: member.read(number) for number in range(READERS)),
        lambda member: member.write([lambda it: it.update("a", more / "a"), lambda it: it.undo("a")]),
        lambda member: member.write(
            [
                lambda it: it.learn("b", [images / "b", more / "b"], replace=True),
                lambda it: it.learn("b", images / "b", replace=True),
            ]
        ),
        lambda member: member.write(
            [
                lambda it: it.forget("c"),
                lambda it: it.undo("c"),
                lambda it: it.learn("d", here / "d"),
                lambda it: it.forget("d"),
                lambda it: it.store.prune(),
            ]
        ),
        Member.write_together,
    ]
    deadline = time.monotonic() + seconds
    running = {
        _started(Member(base, here, known, deadline), part, here / f"member-{n}.json"): n
        for n, part in enumerate(together)
    }
    for pid in running:
        os.waitpid(pid, 0)
    total: dict[str, Any] = {
        "results": 0,
        "writes": 0,
        "problems": {kind: [] for kind in (MIXED, WRONG, DEAD, REFUSED)},
    }
    for number in running.values():
        path = here / f"member-{number}.json"
        if not path.exists():
            total["problems"][DEAD].append(f"member {number} died")
            continue
        said = json.loads(path.read_text())
        total["results"] += said["results"]
        total["writes"] += said["writes"]
        for kind, found in said["problems"].items():
            total["problems"][kind] += found
    return total


def _started(member: Member, part: Callable[[Member], None], path: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        part(member)
        path.write_text(json.dumps({"results": member.results, "writes": member.writes, "problems": member.problems}))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
