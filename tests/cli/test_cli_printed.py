"""What is printed cannot lie: names and reasons that others chose neither steer a terminal nor forge a line."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import NEW_STORE_ELSEWHERE

import dinosaur_ad.cli
from dinosaur_ad.cli import main, tasks_command
from dinosaur_ad.cli._console import printable, say, show, show_json, table
from dinosaur_ad.inspection import Rejected

Capture = pytest.CaptureFixture[str]

LINE = "\nnormal     screw    0.1  p 1.0000  fine.png"
# Clears the screen, forges a line, returns to its start, reverses the writing, sets the title, ends lines.
EVIL = f"a\x1b[2J\x1b[1;1H{LINE}\r\u202egnp.\x9d0;x\x07\u2028b\u0085c"
FORBIDDEN = ("\x1b", "\r", "\x07", "\x9d", "\u202e", "\u2028", "\u0085")


def assert_harmless(printed: bytes, lines: int) -> None:
    """So many lines, and nothing among them that a terminal would act on."""
    text = printed.decode("utf-8")
    assert text.count("\n") == lines, text
    assert not [each for each in FORBIDDEN if each in text]
    assert text.replace("\n", "").isprintable()


def run(*argv: str | bytes, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"PYTHONUTF8": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "dinosaur_ad.cli", *argv]
    return subprocess.run(command, cwd=cwd, capture_output=True, timeout=120, check=False, env=environment)


@pytest.mark.parametrize("text", [EVIL, "\udcff\udc80", "\u200b\ufeff\u2066", "\x00\x08\x7f"])
def test_foreign_text_is_escaped(text: str) -> None:
    assert_harmless(printable(text).encode(), 0)


@pytest.mark.parametrize("text", ["Schraube groß.png", "ネジ.png", "a b\\c'\"", "\N{GRINNING FACE}"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_long_values_lose_their_middle(capsys: Capture) -> None:
    assert printable("a" * 3000 + "b" * 2000, limit=9) == "aaaa…bbbb"
    say(f"'{'x' * 5000}' does not exist; check the path.", "y " * 2500)
    show(f"normal  {'z' * 5000}")
    out, err = capsys.readouterr()
    assert max(map(len, err.splitlines())) <= 2000
    assert err.splitlines()[0].endswith("x' does not exist; check the path.")
    assert len(out) < 500


def test_every_way_to_print_escapes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    say(f"skipped: {EVIL}")
    show(f"normal  {EVIL}", before="anomalous")
    show(*table(("name", "action"), [(EVIL, EVIL)]))
    show_json({"path": EVIL + "\udcff", "score": float("nan"), "many": [float("inf"), 1.5]})
    out, err = capfdbinary.readouterr()
    assert_harmless(err, 1)
    assert_harmless(out, 4)
    document = json.loads(out.splitlines()[-1])
    assert document == {"path": EVIL + "\udcff", "score": None, "many": [None, 1.5]}


def test_no_verb_prints_past_it() -> None:
    """A verb that is written later cannot forget to escape, because it has no other way to print."""
    for path in Path(dinosaur_ad.cli.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id == "print"), path
            writes = isinstance(called, ast.Attribute) and called.attr == "write"
            assert not writes or path.name in ("_console.py", "_parser.py"), path


@pytest.fixture
def evil_images(tmp_path: Path, normals: Path) -> Path:
    """A readable image and an unreadable one, both with names that would do harm."""
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / f"{EVIL}.png").write_bytes((normals / "001.png").read_bytes())
    (folder / f"z{EVIL}.png").write_bytes(b"\x89PNG")
    Path(os.fsdecode(os.fsencode(folder) + b"/zz\xff\x1b[2J.png")).write_bytes(b"")
    return folder


def test_inspect(store: Path, evil_images: Path) -> None:
    done = run("inspect", str(evil_images), "--store", str(store), cwd=store.parent)
    assert done.returncode == 3
    assert_harmless(done.stdout, 1)
    assert_harmless(done.stderr, 4)  # who encodes, two that are skipped, the summary
    done = run("inspect", str(evil_images), "--store", str(store), "--json", cwd=store.parent)
    assert_harmless(done.stdout, 3)
    assert [json.loads(line)["path"].endswith(".png") for line in done.stdout.splitlines()] == [True] * 3
    done = run("inspect", f"{evil_images}/gone{EVIL}.png", "--store", str(store), cwd=store.parent)
    assert_harmless(done.stderr, 1)


def test_learn(tmp_path: Path, normals: Path, evil_images: Path) -> None:
    unreadable = [path for path in map(str, evil_images.iterdir()) if not path.endswith(f"/{EVIL}.png")]
    place = f"store{EVIL}"
    done = run("learn", "nut", str(normals), *unreadable, "--store", place, *NEW_STORE_ELSEWHERE, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert_harmless(done.stdout, 2)
    assert_harmless(done.stderr, 3)
    for refused in (["learn", EVIL, str(normals), "--store", place], ["learn", "nut", "x.png", "--store", place]):
        done = run(*refused, cwd=tmp_path)
        assert done.returncode == 2
        assert_harmless(done.stderr, 1)


def test_tasks(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    facts = tasks_command._facts

    def hostile(*arguments: object) -> dict[str, object]:
        return facts(*arguments) | {"name": EVIL, "last_change": EVIL, "changed": EVIL, "learned": "9999-99-99"}  # type: ignore[arg-type]

    monkeypatch.setattr(tasks_command, "_facts", hostile)
    assert main(["tasks", "--store", str(store)]) == 0
    out, _ = capfdbinary.readouterr()
    assert_harmless(out, 3)


@pytest.mark.parametrize(
    "argv",
    [
        ["weights", "fetch", EVIL],
        ["weights", "add", "tiny-dinov2", EVIL],
        ["weights", "add", "dinov3-small", EVIL],
        ["bench", "run", "--methods", EVIL, "--scenarios", "synthetic"],
        ["bench", "run", "--methods", "dinosaur", "--scenarios", f"folder:{EVIL}"],
        ["bench", "report", EVIL],
        ["bench", "describe", EVIL, "."],
        ["profile", "compare", EVIL],
        ["health", "--store", EVIL],
        ["undo", "x", "--store", EVIL],
        ["tasks", f"--{EVIL}"],
        [EVIL],
        ["inspect", "x.png", "--store", "s", "--backend", EVIL],
        ["inspect", "x.png", "--store", "s", "--false-alarms", EVIL],
    ],
)
def test_what_is_refused(tmp_path: Path, argv: list[str]) -> None:
    done = run(*argv, cwd=tmp_path)
    assert done.returncode == 2
    assert_harmless(done.stderr, 1)
    assert_harmless(done.stdout, done.stdout.count(b"\n"))


def test_a_reason_of_a_library_cannot_forge_a_line(capsys: Capture) -> None:
    from dinosaur_ad.cli._console import report_rejected

    report_rejected([Rejected("x.png", f"'x.png' is damaged ({LINE})")])
    assert capsys.readouterr().err.count("\n") == 1
