"""The attack is worth something only if it notices: each of its eyes is shown what it has to see."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attack.arena import Arena, arena, fingerprint
from attack.changes import command, known
from attack.compare import opinions_problem, results_problem
from attack.files import independent
from attack.flips import choose, flip_bit
from attack.fuzz import fuzzed
from attack.hooks import Steps
from attack.hostile import COMMANDS, table
from attack.output import raw
from attack.registry import ATTACKS
from attack.runner import Done
from attack.seal import change_document, current

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the attack needs a system that can fork")


@pytest.fixture(scope="module")
def place() -> Iterator[Arena]:
    with arena(size=1) as made:
        yield made


def done(code: int = 0, out: str = "", err: str = "", hung: bool = False) -> Done:
    return Done(code, hung, 1.0, 50.0, out, err, None)


def test_a_crash_is_a_hang_a_signal_a_traceback_or_an_internal_error() -> None:
    assert done().crash() is None
    assert done(4, err="dinosaur: a sentence").crash() is None
    for ended in (done(hung=True), done(-7), done(1, err="Traceback (most recent call last)\nValueError"), done(70)):
        assert ended.crash()


def test_a_lost_task_is_noticed(place: Arena) -> None:
    with place.place() as folder:
        assert known(place).problem("forget", folder / "store") is None
    with place.place() as folder:
        shutil.rmtree(folder / "store" / "tasks" / "c")
        assert "neither as before nor as after" in str(known(place).problem("forget", folder / "store"))


def test_a_lost_step_of_undo_is_noticed(place: Arena) -> None:
    with place.place() as folder:
        assert place.pool.cli("tasks", "--prune", "--store", folder / "store").code == 0
        assert "undo/gone" in str(known(place).problem("update", folder / "store"))


def test_every_call_of_a_change_is_counted_and_a_kill_comes_at_the_chosen_one(place: Arena) -> None:
    calls = known(place).calls["update"]
    assert {"create", "write", "fsync", "unlink"} <= set(calls)
    assert {"replace", "rename"} & set(calls)
    for at, code in ((1, -9), (len(calls), -9), (len(calls) + 50, 0)):
        with place.place() as folder:
            steps = {"folder": str(folder / "store"), "action": "kill", "at": at}
            argv = ("update", "a", place.root / "new" / "a", "--store", folder / "store")
            assert place.pool.cli(*argv, steps=steps).code == code


def test_a_file_that_is_written_over_is_noticed(place: Arena) -> None:
    """Whoever replaces a file without a rename loses a task at one moment, and that moment is among those tried."""
    facts, found = known(place), []
    task = "attack.jobs:careless"
    with place.place() as folder:
        steps: dict[str, Any] = {"folder": str(folder / "store"), "action": "count"}
        calls = place.pool.run(task, argv=command(place, "forget", folder / "store"), steps=steps).result
    for at in (number for number, call in enumerate(calls, start=1) if call == "write"):
        with place.place() as folder:
            steps = {"folder": str(folder / "store"), "action": "kill", "at": at}
            assert place.pool.run(task, argv=command(place, "forget", folder / "store"), steps=steps).code == -9
            found.append(facts.problem("forget", folder / "store"))
    assert any(found)


def test_a_refused_call_reaches_the_caller_and_a_full_disk_stays_full(tmp_path: Path) -> None:
    steps = Steps(str(tmp_path), "fail", at=2, number=errno.ENOSPC, lasting=True)
    for step, fails in ((1, False), (2, True), (3, True)):
        if fails:
            with pytest.raises(OSError, match="No space left"):
                steps.step("write", tmp_path / str(step))
        else:
            steps.step("write", tmp_path / str(step))
    steps.step("open", tmp_path / "read")  # can still be read
    assert steps.concerns(tmp_path / "x")
    assert not steps.concerns(tmp_path.parent / "x")


def opinions(**changes: Any) -> dict[str, dict[str, Any]]:
    said = {"task": "a", "score": 0.5, "p_value": 0.1, "threshold": 0.4, "verdict": "anomalous"}
    return {"a.png": said | {"normal_level": 0.1, "false_alarms": 0.025, "worst": {}, "left_out": []} | changes}


@pytest.mark.parametrize(
    "change",
    [
        {"score": 0.5000001},
        {"threshold": float("nan")},
        {"verdict": "normal"},
        {"task": "b"},
        {"worst": {"row": 1}},
        {"left_out": ["a"]},
    ],
)
def test_a_silent_change_is_noticed(change: dict[str, Any]) -> None:
    assert opinions_problem(opinions(), opinions(), openly=False) is None
    assert opinions_problem(opinions(), opinions(**change), openly=False)


def test_a_task_that_is_left_out_by_name_is_no_failure_unless_it_was_intact() -> None:
    found = opinions(task="b", score=0.9, left_out=["a"])
    assert opinions_problem(opinions(), found, openly=True) is None
    assert opinions_problem(opinions(), found, openly=True, all_of=("a",))
    assert opinions_problem(opinions(), {}, openly=True, all_of=("a",))
    assert opinions_problem(opinions(), opinions(task="b", left_out=["c"]), openly=True)


def test_hashes_are_made_right(place: Arena) -> None:
    """A document that was changed harmlessly, with its hashes, is as good as before: so only content is attacked."""
    with place.place() as folder:
        store = folder / "store"
        images = ["x.png"] * 19
        change_document(current(store) / "manifest.json", lambda document: document["manifest"].update(images=images))
        change_document(store / "store.json", lambda document: document.update(created="2026-01-01T00:00:00+00:00"))
        result = place.inspect(store)
        assert result.code == 0, result.err
        assert place.pool.cli("tasks", "--verify", "--store", store).code == 0
        assert "x.png" in result.out


def test_every_hostile_store_is_one(place: Arena) -> None:
    assert len(table()) >= 100
    assert len({hostile.name for hostile in table()}) == len(table())
    for hostile in table():
        with place.place() as folder:
            before = _everything(folder / "store")
            (folder / "victim" / "deep").mkdir(parents=True)
            hostile.damage(folder / "store", folder / "victim")
            assert _everything(folder / "store") != before, hostile.name


def _everything(store: Path) -> list[tuple[str, int, int, bytes]]:
    found = []
    for path in sorted(store.rglob("*")):
        facts = path.lstat()
        small = stat.S_ISREG(facts.st_mode) and facts.st_size < 10**8  # not a terabyte of nothing
        found.append((str(path), facts.st_mode, facts.st_size, path.read_bytes() if small else b""))
    return found


def test_all_commands_are_tried_on_hostile_stores() -> None:
    verbs = {words[:2] if words[:1] == ("tasks",) else words[:1] for words in COMMANDS.values() if words}
    assert verbs >= {("update",), ("learn",), ("forget",), ("undo",), ("health",), ("tasks",), ("tasks", "--verify")}


def test_flips_reach_every_file_and_come_back(place: Arena) -> None:
    flips = [choose(place, case) for case in range(700)]
    everything = {path.relative_to(place.root).as_posix() for path in _files(place.root, "store", "small")}
    assert {f"{flip.store}/{flip.file}" for flip in flips} == everything
    with place.place() as folder:
        before = fingerprint(folder)
        flip_bit(folder / "store" / "store.json", 30, 2)
        assert fingerprint(folder) != before
        flip_bit(folder / "store" / "store.json", 30, 2)
        assert fingerprint(folder) == before


def _files(root: Path, *names: str) -> list[Path]:
    found = [path for name in names for path in (root / name).rglob("*") if path.is_file()]
    return [path for path in found if path.stat().st_size]


def test_a_fuzzed_file_is_the_same_whenever_it_is_asked_for(place: Arena) -> None:
    made = [fuzzed(case, place.random("files", case)) for case in range(300)]
    assert made == [fuzzed(case, place.random("files", case)) for case in range(300)]
    assert len({data for _, data in made}) > 200


def test_pillow_alone_tells_an_image_from_garbage(place: Arena, tmp_path: Path) -> None:
    (tmp_path / "garbage.png").write_bytes(b"garbage")
    files = [str(tmp_path / "garbage.png"), str(place.fixed / "a-000.png")]
    told = independent(str(place.store), files)
    assert "not an image" in told["garbage.png"]
    assert told["a-000.png"] == pytest.approx(place.expected["a-000.png"]["score"], rel=1e-5)


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "\u202e", "\x9b", "\u2028", "x" * 5000])
def test_what_steers_a_terminal_is_noticed(text: str) -> None:
    assert raw(done(out="normal  a.png\n", err="1 image: 0 anomalous\n")) is None
    assert raw(done(out=f"normal  {text}\n"))


def test_a_refusal_needs_a_sentence(place: Arena) -> None:
    assert results_problem(place, done(2, err="dinosaur: The store is damaged; restore it from a backup.\n")) is None
    assert results_problem(place, done(2))
    assert results_problem(place, done(0, out="no results\n"))


def test_the_small_form_is_part_of_the_full_one() -> None:
    for attack in ATTACKS.values():
        small, full = attack.cases(full=False), attack.cases(full=True)
        assert set(small) <= set(full)
    counts = {name: ATTACKS[name].count(full=True) for name in ("kills", "faults", "files", "flips")}
    assert counts == {"kills": 600, "faults": 945, "files": 3000, "flips": 7000}
