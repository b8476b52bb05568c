"""Inspections that say more than normal or anomalous: what is printed, counted and answered in the exit code."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dinosaur_ad import Dinosaur
from dinosaur_ad.cli import main
from dinosaur_ad.inspection import Inspection, Learned, Rejected

Capture = pytest.CaptureFixture[str]
REASON = "the task 'screw' has a threshold that is no number; learn it anew"


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, store: Path, normals: Path) -> Any:
    """Make ``inspect`` answer with one result for each word."""
    real = Dinosaur(store).inspect(normals / "001.png")

    def of(word: str, number: int) -> Inspection | Rejected:
        path = f"{number}.png"
        if word == "unreadable":
            return Rejected(path, f"'{path}' is empty")
        if word == "not ready":
            return replace(real, path=path, verdict="not ready", reason=REASON, threshold=float("nan"))
        if word == "unknown":
            return replace(
                real, path=path, verdict=word, reason="It shows none of the learned products.", level_ratio=2.7
            )
        if word == "dark":
            return replace(real, path=path, verdict="normal", light="2.1 times darker than every normal image learned")
        if word.startswith("without "):
            return replace(real, path=path, verdict="normal", left_out=(word.removeprefix("without "),))
        return replace(real, path=path, verdict=word)

    def inspect(words: list[str], *options: str) -> int:
        def stream(*_: object, **__: object) -> Iterator[Inspection | Rejected]:
            for number, word in enumerate(words):
                yield of(word, number)

        monkeypatch.setattr(Dinosaur, "stream", stream)
        return main(["inspect", *([str(normals)]), "--store", str(store), *options])

    return inspect


@pytest.mark.parametrize(
    ("words", "told", "untold"),
    [
        (["normal"], 0, 0),
        (["anomalous"], 1, 0),
        (["unreadable"], 3, 3),
        (["not ready"], 4, 4),
        (["without nut"], 4, 4),
        (["unknown"], 4, 4),
        (["anomalous", "unknown"], 1, 4),
        (["something new"], 4, 4),  # a verdict that is not known is no judgement
        (["anomalous", "unreadable"], 1, 3),
        (["unreadable", "not ready"], 4, 4),
        (["anomalous", "not ready"], 1, 4),
        (["without nut", "anomalous", "unreadable", "not ready"], 1, 4),
    ],
)
def test_exit_codes_and_which_goes_first(answer: Any, words: list[str], told: int, untold: int) -> None:
    assert answer(words, "--exit-code") == told
    assert answer(words) == untold
    assert answer(words, "--json", "--exit-code") == told


def test_what_cannot_be_judged_is_printed_with_its_reason_and_counted(capsys: Capture, answer: Any) -> None:
    assert answer(["normal", "not ready", "anomalous", "unreadable", "not ready"]) == 4
    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith("not ready  screw ")
    assert err.count(f"not ready: {REASON}") == 1
    assert "5 images: 1 anomalous, 2 not ready, 1 unreadable" in err.splitlines()[-1]


def test_an_unknown_image_is_printed_with_its_nearest_product_and_how_far_it_is(capsys: Capture, answer: Any) -> None:
    assert answer(["unknown", "normal", "unknown", "not ready"]) == 4
    out, err = capsys.readouterr()
    first = out.splitlines()[0]
    assert first.startswith("unknown    screw ")
    assert "is nearest, but all of it differs, 2.7 times as much as a good part  0.png" in first
    assert "differs" not in out.splitlines()[1]
    assert "4 images: 0 anomalous, 2 unknown, 1 not ready, 0 unreadable" in err.splitlines()[-1]
    assert "none of the learned" not in err
    assert answer(["unknown"], "--json") == 4
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["task"], found["level_ratio"]) == ("unknown", "screw", 2.7)
    assert answer(["unknown"], "--format", "csv") == 4
    assert "unknown,screw," in capsys.readouterr().out


def test_it_has_a_colour_of_its_own(capsys: Capture, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert answer(["not ready"]) == 4
    assert capsys.readouterr().out.startswith("\x1b[33mnot ready\x1b[0m")


def test_it_is_in_the_json(capsys: Capture, answer: Any) -> None:
    assert answer(["not ready", "without nut"], "--json") == 4
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["verdict"], first["reason"], first["threshold"]) == ("not ready", REASON, None)
    assert second["left_out"] == ["nut"]


def test_a_damaged_task_is_named_once(capsys: Capture, answer: Any) -> None:
    assert answer(["without nut", "without nut", "without bolt\x1b", "without nut"]) == 4
    err = capsys.readouterr().err
    named = [line for line in err.splitlines() if line.startswith("left out: ")]
    assert len(named) == 2
    assert named[0] == "left out: the task 'nut' is damaged and was left out; see: dinosaur tasks --verify"
    assert "'bolt\\x1b'" in named[1]
    assert "without 2 damaged tasks" in err.splitlines()[-1]


@pytest.mark.parametrize(("known", "words"), [(0, ""), (1, "1 image that"), (3, "3 images that")])
def test_images_that_were_known_already_are_counted(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, store: Path, normals: Path, known: int, words: str
) -> None:
    update = Dinosaur.update

    def with_duplicates(*arguments: Any, **options: Any) -> Learned:
        learned = update(*arguments, **options)
        object.__setattr__(learned, "duplicates", tuple(f"{n}.png" for n in range(known)))
        return learned

    monkeypatch.setattr(Dinosaur, "update", with_duplicates)
    assert main(["update", "washer", str(normals), "--store", str(store), "--force"]) == 0
    err = capsys.readouterr().err
    assert (f"left out: {words} the task knew already" in err) == (known > 0)


def test_a_part_in_unusual_light_is_told_and_counted(answer: Any, capsys: Capture) -> None:
    assert answer(["normal", "dark"], "--exit-code") == 0
    out, err = capsys.readouterr()
    plain, dark = out.splitlines()
    assert "darker" not in plain
    assert "; the image is 2.1 times darker than every normal image learned  1.png" in dark
    assert "2 images: 0 anomalous, 0 unreadable, 1 in unusual light; " in err


def test_a_part_in_unusual_light_is_told_in_csv_too(answer: Any, capsys: Capture) -> None:
    answer(["normal", "dark"], "--format", "csv")
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["light"] for row in rows] == ["", "2.1 times darker than every normal image learned"]
