"""Files outside of the store and the output: whatever a command does, it leaves no trace elsewhere.

The other attacks look after a canary; here every verb runs once, as a person starts it, and everything that it could
reach is looked at: its home, its caches, its temporary folder, the folder it was started in, the images.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from attack.arena import ONE, Arena, environment, fingerprint
from attack.runner import Outcome, each

COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", "{fixed}", "--store", "{store}", *ONE),
    "learn": ("learn", "new", "{images}/c", "--store", "{store}", *ONE),
    "learn a new store": (
        "learn",
        "new",
        "{images}/c",
        "--store",
        "{out}/new",
        "--encoder",
        "tiny-dinov2",
        *ONE,
        "--preset",
        "paper",
    ),
    "update": ("update", "a", "{new}/a", "--store", "{store}", *ONE),
    "forget": ("forget", "a", "--store", "{store}"),
    "undo": ("undo", "a", "--store", "{store}"),
    "redo": ("redo", "c", "--store", "{store}"),
    "rename": ("rename", "b", "other", "--store", "{store}"),
    "tasks": ("tasks", "--verify", "--prune", "--store", "{store}"),
    "overlays": ("inspect", "{fixed}", "--store", "{store}", "--overlays", "{out}", *ONE),
    "health": ("health", "--store", "{store}", *ONE),
    "weights": ("weights", "list"),
    "a refusal": ("inspect", "{fixed}/none.png", "--store", "{store}"),
}
SMALL = FULL = len(COMMANDS)
LIMIT = 120.0
OURS = ("dinosaur",)
"""Below the home: the documented cache (DINOSAUR_HOME)."""


def attack(arena: Arena, cases: Sequence[int]) -> Iterator[Outcome]:
    """Run every verb with a home of its own."""
    commands = list(COMMANDS.items())
    yield from each(arena.pool, cases, lambda case: trace(arena, *commands[case]))


def trace(arena: Arena, name: str, words: Sequence[str]) -> str | None:
    """What a command left behind."""
    with arena.place() as place:
        for folder in ("home", "tmp", "out", "cwd", "neighbour"):
            (place / folder).mkdir()
        (place / "neighbour" / "file.txt").write_text("a neighbour\n")
        where = {"store": place / "store", "out": place / "out", "fixed": arena.fixed}
        where |= {"images": arena.root / "images", "new": arena.root / "new"}
        argv = [word.format(**where) for word in words]
        variables = environment(place) | {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
        before = fingerprint(place, ["cwd", "neighbour"])
        done = subprocess.run(
            [sys.executable, "-m", "dinosaur_ad.cli", *argv],
            cwd=place / "cwd",
            env=variables | {"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
        time.sleep(0.2)  # for what a thread or a child of it may still write
        if done.returncode not in (0, 2):
            return f"{name}: exit code {done.returncode}: {done.stderr[-300:]!a}"
        left = [path for folder in ("home", "tmp") for path in _files(place / folder) if path.parts[:1] != OURS]
        if left:
            return f"{name}: it left {', '.join(map(str, left[:5]))} in its home or temporary folder"
        if fingerprint(place, ["cwd", "neighbour"]) != before or arena.touched():
            return f"{name}: files outside of the store and the output were changed"
    return None


def _files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
