"""Names that steer a terminal: nothing foreign is printed raw, nothing forges a line, nothing fills the screen."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attack.arena import ONE, Arena
from attack.runner import Done, Outcome, each
from attack.seal import change_document, current

FORGED = "normal     a    0.001 / 0.900"
NAMES: dict[str, bytes] = {
    "escape": b"x\x1b[2J\x1b[31mred",
    "title": b"x\x1b]0;owned\x07y",
    "line": b"x\n" + FORGED.encode().replace(b"/", b"|"),
    "return": b"x\rnormal",
    "bell": b"x\x07\x08\x7f",
    "right to left": "x\u202egnp.exe".encode(),
    "isolates": "x\u2066y\u2069\u200f".encode(),
    "C1": "x\u009b2Jy".encode(),
    "separators": "x\u2028y\u2029z\u0085".encode(),
    "no UTF-8": b"x\xff\xfe\xc3(",
    "half a character": b"x\xed\xa0\x80",
    "long": b"x" * 240,
    "umlaut": "Prüfling-äöü".encode(),
}
ENDLESS = "x" * 5000
LONGEST_LINE = 2000
TIDY = "\n\t"
STEERING = {"Cc", "Zl", "Zp"}
BIDI = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


def raw(done: Done) -> str | None:
    """What is wrong with what was printed."""
    if crash := done.crash():
        return crash
    for name, text in (("stdout", done.out), ("stderr", done.err)):
        for character in text:
            if character in TIDY:
                continue
            if unicodedata.category(character) in STEERING or character in BIDI or "\udc80" <= character <= "\udcff":
                return f"{name} holds {character.encode('unicode_escape', 'replace').decode()} as it is"
        lines = text.splitlines()
        if any(line.startswith(FORGED[:20]) and "|" in line for line in lines):
            return f"{name} has a line that an image's name forged"
        if not text.startswith("{") and (longest := max(map(len, lines), default=0)) > LONGEST_LINE:
            return f"{name} has a line of {longest} characters"
    return None


def _named(kind: str, readable: bool, *words: str) -> Callable[[Arena, Path], Done]:
    """A command on a folder with a good image and one that has a hostile name."""

    def run(arena: Arena, place: Path) -> Done:
        folder = place / "images"
        folder.mkdir()
        good = (arena.fixed / "a-000.png").read_bytes()
        (folder / "good.png").write_bytes(good)
        (folder / "better.png").write_bytes((arena.fixed / "b-000.png").read_bytes())
        with open(os.fsencode(folder) + b"/" + NAMES[kind] + b".png", "wb") as file:  # noqa: PTH123 (a name in bytes)
            file.write(good if readable else b"no image")
        return arena.pool.cli(*words, folder, "--store", place / "store", *ONE)

    return run


def _words(*words: str) -> Callable[[Arena, Path], Done]:
    """A command with hostile words."""
    return lambda arena, place: arena.pool.cli(
        *(word.format(store=place / "store", fixed=arena.fixed) for word in words)
    )


def _document(file: str, key: str, *words: str) -> Callable[[Arena, Path], Done]:
    """A command on a store whose documents hold hostile words, with right hashes."""

    def run(arena: Arena, place: Path) -> Done:
        store = place / "store"
        text = f"x\x1b[2J\n{FORGED}\u202e{ENDLESS}"

        def change(document: dict[str, object]) -> None:
            inner: object = document
            *path, last = key.split(".")
            for part in path:
                inner = inner[int(part) if part.lstrip("-").isdigit() else part]  # type: ignore[index]
            inner[last] = [text] * 30 if last == "images" else text  # type: ignore[index]

        change_document(current(store) / file if file == "manifest.json" else store / file, change)
        return arena.pool.cli(*(word.format(fixed=arena.fixed) for word in words), "--store", store)

    return run


def table() -> dict[str, Callable[[Arena, Path], Done]]:
    """All cases by name."""
    cases: dict[str, Callable[[Arena, Path], Done]] = {}
    for kind in NAMES:
        for readable in (True, False):
            state = "readable" if readable else "unreadable"
            cases[f"inspect, {state}, {kind}"] = _named(kind, readable, "inspect")
            cases[f"inspect --json, {state}, {kind}"] = _named(kind, readable, "inspect", "--json")
            cases[f"learn, {state}, {kind}"] = _named(kind, readable, "learn", "new")
    for kind, word in (("escape", "x\x1b[2Jy"), ("line", f"x\n{FORGED}|"), ("endless", ENDLESS), ("rtl", "x\u202ey")):
        cases[f"learn a task called {kind}"] = _words("learn", word, "{fixed}", "--store", "{store}")
        cases[f"forget a task called {kind}"] = _words("forget", word, "--store", "{store}")
        cases[f"inspect an image called {kind}"] = _words("inspect", word, "--store", "{store}")
        cases[f"a store called {kind}"] = _words("tasks", "--store", word)
        cases[f"an encoder called {kind}"] = _words(
            "learn", "q", "{fixed}", "--store", "{store}-new", "--encoder", word
        )
        cases[f"a preset called {kind}"] = _words("learn", "q", "{fixed}", "--store", "{store}-new", "--preset", word)
        cases[f"false alarms of {kind}"] = _words("inspect", "{fixed}", "--store", "{store}", "--false-alarms", word)
        cases[f"a verb called {kind}"] = _words(word)
    for words in (("tasks",), ("inspect", "{fixed}", *ONE), ("health", *ONE)):
        for file, key in (
            ("tasks/a/task.json", "history.-1.action"),
            ("tasks/a/task.json", "history.-1.date"),
            ("tasks/a/task.json", "states.-1.action"),
            ("manifest.json", "manifest.images"),
            ("manifest.json", "manifest.preset"),
            ("manifest.json", "manifest.encoder.encoder"),
            ("manifest.json", "manifest.bank.precision"),
            ("store.json", "header.preset.name"),
            ("store.json", "header.encoder.description"),
            ("store.json", "header.encoder.encoder"),
            ("store.json", "format"),
        ):
            cases[f"{words[0]}, {file} with a hostile {key}"] = _document(file, key, *words)
    return cases


SMALL, FULL = 40, len(table())


def attack(arena: Arena, cases: Sequence[int]) -> Iterator[Outcome]:
    """Give each name, then look at all that was printed."""
    known = list(table().items())
    yield from each(arena.pool, cases, lambda case: _try(arena, *known[case]))


def _try(arena: Arena, name: str, command: Callable[[Arena, Path], Done]) -> str | None:
    with arena.place() as place:
        done = command(arena, place)
        problem = raw(done)
        if not problem and "--json" in name:
            problem = _no_json(done)
        if not problem and "readable" in name and done.code not in (0, 3):
            problem = f"one odd name cost the batch (exit code {done.code}): {done.last_line()}"
    return f"{name}: {problem}" if problem else None


def _no_json(done: Done) -> str | None:
    try:
        results = [json.loads(line) for line in done.out.splitlines()]
    except ValueError:
        return "a line is no JSON"
    return None if len(results) == 3 else f"{len(results)} lines for 3 images"
