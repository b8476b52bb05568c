"""Results from strangers: whatever they say, one sentence, and nothing read or written outside of their folder."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import random
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cell_helpers import Log, around, tiny_cells
from report_factory import cell, grid
from test_runner import stop_half_way

from dinosaur_ad.bench.foreign_results import read_arrays
from dinosaur_ad.bench.method_table import method_table
from dinosaur_ad.bench.places import LocalPlace, open_place
from dinosaur_ad.bench.report import write_report
from dinosaur_ad.bench.results import CellResult, find_results
from dinosaur_ad.bench.runner import run_local
from dinosaur_ad.cli import main
from dinosaur_ad.errors import DinosaurError, InputError

EVIL = "../../../../evil"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """One good result with maps, below ``stranger/results``; all else below ``tmp_path`` must stay as it is."""
    folder = tmp_path / "stranger" / "results"
    made = cell("dinosaur:paper", "mtd-color", tasks=2, normals=3, anomalies=2, maps=True)
    made.save(open_place(folder).below(made.folder))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    return folder


def cell_folder(results: Path) -> Path:
    return results / "mtd-color/dinosaur-paper/seed-0"


def change(results: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    path = cell_folder(results) / "result.json"
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def around_it(results: Path) -> dict[str, bytes]:
    """Every file outside of the results and of what a test writes itself."""
    root = results.parents[1]
    own = (results, root / "out", root / "packed")
    files = (path for path in root.rglob("*") if path.is_file() and not any(each in path.parents for each in own))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def use(results: Path) -> list[str]:
    """Report, pack and describe them; what each says against it, and that nothing else was touched."""
    root, before, said = results.parents[1], around_it(results), []
    verbs: list[list[str]] = [
        ["bench", "report", str(results), "--out", str(root / "out")],
        ["bench", "pack", str(results), "--out", str(root / "packed")],
        ["bench", "describe", "dinosaur", str(results)],
    ]
    for verb in verbs:
        try:
            finished, failed = find_results([str(results)])
            if verb[1] == "report":
                write_report(finished, root / "out", failed=failed, folders=[str(results)])
            elif verb[1] == "describe":
                method_table("dinosaur", [str(results)])
            else:
                assert main(verb) in (0, 2)
        except DinosaurError as error:
            said.append(str(error))
    assert not [sentence for sentence in said if "\n" in sentence or len(sentence) > 1200]
    assert around_it(results) == before
    return said


def test_a_good_result_is_used(results: Path) -> None:
    assert use(results) == []
    assert (results.parents[1] / "packed/mtd-color/dinosaur-paper/seed-0/result.json").is_file()


@pytest.mark.parametrize(
    "name", [EVIL, "/tmp/evil", "..", "a/b", "a\\b", "a\0b", "", "x" * 5000, 7, None, ["a"], "a:b:c/d"]
)
@pytest.mark.parametrize("field", ["method", "scenario"])
def test_a_name_that_is_a_path_is_refused(field: str, name: object, results: Path) -> None:
    change(results, lambda document: document.update({field: name}))
    with pytest.raises(InputError, match="damaged"):
        find_results([str(results)])
    assert len(use(results)) >= 2


@pytest.mark.parametrize("scenario", ["folder:/etc", "folder:../../..", "mtd-blur"])
def test_a_result_of_another_name_than_its_folder_is_refused(scenario: str, results: Path) -> None:
    change(results, lambda document: document.update({"scenario": scenario}))
    with pytest.raises(InputError, match="says that it belongs to a folder"):
        find_results([str(results)])


def test_a_cell_can_be_named_by_its_own_folder(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(find_results([str(cell_folder(results))])[0]) == 1
    monkeypatch.chdir(cell_folder(results))
    assert len(find_results(["."])[0]) == 1


@pytest.mark.parametrize("what", ["result.json", "arrays.npz", "seed-0", "mtd-color"])
def test_links_are_refused_or_not_followed(what: str, results: Path) -> None:
    linked = next(path for path in [*results.rglob("*")] if path.name == what)
    target = results.parents[1] / "outside" / what
    linked.rename(target)
    linked.symlink_to(target)
    with pytest.raises(InputError, match=r"is a link|no results in"):
        find_results([str(results)])
    use(results)


def test_the_report_is_not_written_through_a_link(results: Path) -> None:
    (results / "report").symlink_to(results.parents[1] / "outside")
    assert main(["bench", "report", str(results)]) == 2
    assert sorted(path.name for path in (results.parents[1] / "outside").iterdir()) == ["secret"]


def test_results_may_be_reached_through_a_link(results: Path) -> None:
    (results.parents[1] / "shortcut").symlink_to(results)
    assert len(find_results([str(results.parents[1] / "shortcut")])[0]) == 1


@pytest.mark.parametrize(
    "content", [b'{"a": NaN}', b"[" * 100_000, b'{"format": 1, "seed": ' + b"9" * 400 + b"}", b"\xff"]
)
def test_json_that_is_none_is_one_sentence(content: bytes, results: Path) -> None:
    (cell_folder(results) / "result.json").write_bytes(content)
    assert use(results)


def test_a_pipe_does_not_hang(results: Path) -> None:
    place = LocalPlace(results)
    os.mkfifo(results / "cell.json")
    with pytest.raises(OSError, match="not a regular file"):
        place.read("cell.json")


def test_arrays_that_promise_more_than_they_hold_are_refused() -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, scores=np.zeros(4, np.float32))
    for shape in (b"(4,), }", b"(9,), }"):
        changed = io.BytesIO()
        with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(changed, "w") as new:
            new.writestr("scores.npy", old.read("scores.npy").replace(b"(4,), }", shape))
        if shape == b"(4,), }":
            assert read_arrays(changed.getvalue())["scores"].shape == (4,)
        else:
            with pytest.raises(ValueError, match="arrays cannot be read"):
                read_arrays(changed.getvalue())


def test_a_private_folder_is_not_shown_because_a_result_names_it(results: Path) -> None:
    """The pictures of a report are of the images the result was made with, or there are none."""
    from PIL import Image

    private = results.parents[1] / "private" / "cats"
    made = cell("dinosaur", f"folder:{private.parent}", tasks=1, normals=1, anomalies=1, maps=True)
    for name in ("train/good/0.png", "test/good/000.png", "test/crack/001.png", "ground_truth/crack/001_mask.png"):
        (private / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (32, 32)).save(private / name)
    names = ("test/good/000.png", "test/crack/001.png")
    made = replace(
        made,
        tasks=[made.tasks[0] | {"name": "cats"}],
        final=[replace(made.final[0], names=names)],
    )
    page = write_report([made], results.parents[1] / "out").html.read_text()
    assert "are not those that this result was made with" in page


# --- fuzz ---

VALUES: list[Any] = [
    None, True, -1, 0, 3, 1e308, 2**62, "", "x", EVIL, "/etc/passwd", "\x1b[31m\n", "x" * 200_000, [], [[]], [None], {},
    {"a": {"b": [1]}}, [[[[1]]]], {"tasks": 3}, [1, "a", None], {"bottle": {"epochs": "x", "loss": {}}},
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something can be changed in a document."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def spoil(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    document = copy.deepcopy(document)
    for _ in range(rng.choice([1, 1, 2, 5])):
        where = rng.choice([*places(document), ("new",)])
        inner: Any = document
        for key in where[:-1]:
            inner = inner[key]
        if rng.random() < 0.25:
            inner.pop(where[-1]) if where != ("new",) else None
        else:
            inner[where[-1]] = copy.deepcopy(rng.choice(VALUES))
    return document


@pytest.mark.parametrize("start", range(0, 120, 20))
def test_hostile_results_are_sentences_and_never_tracebacks(start: int, results: Path) -> None:
    path = cell_folder(results) / "result.json"
    good = json.loads(path.read_text())
    good["info"]["tasks"] = {
        good["tasks"][0]["name"]: {"epochs": 3, "loss": [0.5, 0.2], "first_a": {"b": 1}, "last_a": {}}
    }
    refused = 0
    for seed in range(start, start + 20):
        path.write_text(json.dumps(spoil(good, random.Random(seed))))
        refused += bool(use(results))
    assert refused > 5


@pytest.mark.parametrize("seed", range(30))
def test_hostile_arrays_are_sentences(seed: int, results: Path) -> None:
    path, rng = cell_folder(results) / "arrays.npz", random.Random(seed)
    with np.load(path) as stored:
        arrays = dict(stored)
    name = rng.choice(sorted(arrays))
    if rng.random() < 0.3:
        del arrays[name]
    else:
        strange = [
            np.zeros(0),
            np.full((5,), 99),
            np.full(5, -7, np.int16),
            np.array("x"),
            np.ones((2, 2, 2, 2)),
            np.ones(5, "S3"),
        ]
        arrays[name] = rng.choice(strange)
    np.savez_compressed(path, **arrays)
    use(results)


def test_hostile_bytes_in_arrays_are_sentences(results: Path) -> None:
    path = cell_folder(results) / "arrays.npz"
    whole, rng = path.read_bytes(), random.Random(0)
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(rng.choice([1, 3, 30])):
            content[rng.randrange(len(content))] = rng.randrange(256)
        path.write_bytes(content)
        with suppress(InputError):
            CellResult.load(open_place(cell_folder(results)))


@pytest.mark.parametrize("seed", range(20))
def test_hostile_failures_and_grids_are_sentences(seed: int, results: Path) -> None:
    rng = random.Random(seed)
    for part in grid((0.1,), (0, 3), {"mtd-color": [[0.7, 0.8]]}).parts:
        part.save(open_place(results))
    file = results / "grid-paper-mtd-color.json"
    failure = {"method": "dne", "scenario": "mtd-color", "seed": 0, "error": "no", "details": ""}
    (results / "mtd-color/dne/seed-0").mkdir(parents=True)
    spoilt = rng.choice(["grid", "failure"])
    if spoilt == "grid":
        file.write_text(json.dumps(spoil(json.loads(file.read_text()), rng)))
    else:
        failure = spoil(failure, rng)
    (results / "mtd-color/dne/seed-0/error.json").write_text(json.dumps(failure))
    use(results)


def test_a_grid_that_names_another_place_is_refused(results: Path) -> None:
    for part in grid((0.1,), (0,), {"mtd-color": [[0.7]]}).parts:
        part.save(open_place(results))
    file = results / "grid-paper-mtd-color.json"
    document = json.loads(file.read_text())
    for changes in ({"preset": EVIL}, {"preset": "default"}, {"scenario": "mtd-blur"}):
        file.write_text(json.dumps(document | changes))
        assert any("grid-paper-mtd-color.json" in sentence for sentence in use(results))


# --- going on with what a stranger began ---


@pytest.mark.parametrize(
    "name", ["../../../../victim", "/tmp/victim", "a/../../../../victim", "store/../../x", "C:\\x", ""]
)
def test_a_manifest_cannot_name_files_elsewhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, log = around(tmp_path), Log()
    stop_half_way(monkeypatch, where)
    partial = Path(where.out, tiny_cells()[0].folder, "partial")
    manifest = partial / "state-000/manifest.json"
    content = b"written by a stranger"
    for target in (tmp_path / "victim", partial / "victim"):
        target.write_bytes(content)
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {name: hashlib.sha256(content).hexdigest()}))
    before = {path: path.read_bytes() for path in (tmp_path / "victim",)}
    run_local(tiny_cells(), where, log)
    assert "damaged" in log
    assert {path: path.read_bytes() for path in before} == before
    assert not list(Path(where.out).rglob("victim"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "results", "victim"]


@pytest.mark.parametrize("link", ["partial", "partial/state-000", "partial/scratch", ".lock", "partial/row-000.npz"])
def test_a_cell_is_not_resumed_through_links(link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = around(tmp_path)
    stop_half_way(monkeypatch, where)
    path, outside = Path(where.out, tiny_cells()[0].folder, link), tmp_path / "outside"
    if path.exists():
        path.rename(outside)
    else:
        outside.mkdir()
    if outside.is_file():
        outside.write_bytes(outside.read_bytes() or b"content")
    path.symlink_to(outside)
    before = {each: each.read_bytes() for each in [outside, *outside.rglob("*")] if each.is_file()}
    said = ["is a link"]
    try:
        _, failed = run_local(tiny_cells(), where, Log())
        said += [each.error for each in failed]
    except InputError as error:
        said.append(str(error))
    assert all("is a link" in sentence for sentence in said)
    assert {each: each.read_bytes() for each in [outside, *outside.rglob("*")] if each.is_file()} == before


@pytest.mark.parametrize("seed", range(8))
def test_hostile_rows_are_made_again(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, log, rng = around(tmp_path), Log(), random.Random(seed)
    stop_half_way(monkeypatch, where)
    path = Path(where.out, tiny_cells()[0].folder, "partial/row-000.npz")
    with np.load(path) as stored:
        arrays = dict(stored)
    name = rng.choice(["0/scores", "1/scores", "0/routes", "0/oracle", "notes"])
    strange = [
        None,
        np.zeros(3, np.float32),
        np.array("x"),
        np.frombuffer(b"[" * 9999, np.uint8),
        np.full(9, 77, np.int16),
    ]
    value = rng.choice(strange)
    arrays = {key: array for key, array in arrays.items() if key != name} | ({} if value is None else {name: value})
    np.savez_compressed(path, **arrays)
    _, failed = run_local(tiny_cells(), where, log)
    assert not failed
    assert "the row of task 1 is damaged" in log


def test_a_finished_result_that_is_not_of_this_cell_is_refused(tmp_path: Path) -> None:
    where = around(tmp_path)
    (done,), _ = run_local(tiny_cells(), where, Log())
    path = Path(where.out, done.folder, "result.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 5}))
    _, (failed,) = run_local(tiny_cells(), where, Log())
    assert "says that it belongs to a folder" in failed.error


def test_a_manifest_does_not_write_beside_the_folder_it_is_restored_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file it names is there and has the right hash: only the name tells that it is not ours."""
    where, log = around(tmp_path), Log()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp" / "deep"))
    (tmp_path / "tmp" / "deep").mkdir(parents=True)
    stop_half_way(monkeypatch, where)
    folder = Path(where.out, tiny_cells()[0].folder)
    (folder / "x").write_bytes(b"a stranger's")
    manifest = folder / "partial/state-000/manifest.json"
    added = {"../../x": hashlib.sha256(b"a stranger's").hexdigest()}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | added))
    run_local(tiny_cells(), where, log)
    assert "damaged" in log
    assert not [path for path in (tmp_path / "tmp").rglob("*") if path.is_file()]
