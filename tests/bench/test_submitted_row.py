"""``bench submit``: what is packed into a row, and what is not taken."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from row_helpers import REVISION, run_photometer, unpacked

from dinosaur_ad._atomic import sha256_file
from dinosaur_ad.bench.environment import package_sha256
from dinosaur_ad.bench.places import open_place
from dinosaur_ad.bench.results import CellResult, FailedCell
from dinosaur_ad.bench.row_files import MANIFEST
from dinosaur_ad.bench.submitted_row import pack_row
from dinosaur_ad.bench.verify import verify
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import photometer

CELL = Path("synthetic-tiny", "photometer", "seed-0")


@pytest.fixture(scope="module")
def _ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_photometer(tmp_path_factory.mktemp("row"))


@pytest.fixture
def results(tmp_path: Path, _ran: Path) -> Path:
    """Two seeds of one method from one commit."""
    return shutil.copytree(_ran, tmp_path / "results")


def save(content: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "row.zip"
    path.write_bytes(content)
    return path


def change(results: Path, **fields: Any) -> None:
    path = results / CELL / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_a_row_says_what_made_it_and_verifies(results: Path, tmp_path: Path) -> None:
    row = pack_row([str(results)])
    path = save(row.content, tmp_path)
    said = json.loads(unpacked(path)[MANIFEST])
    assert (said["format"], said["method"], said["exact"]) == (1, "photometer", True)
    assert said["revisions"] == [REVISION]
    assert said["package_sha256"] == [package_sha256()]
    assert said["method_sha256"] == [sha256_file(Path(str(photometer.__file__)))]
    assert len(said["files"]) == 4
    found = verify([str(path)])
    assert found.equal
    assert (len(found.cells), found.rows[0].exact, found.rows[0].unknown) == (2, True, 0)
    assert found.numbers == verify([str(results)]).numbers  # nothing that can be checked was left out


def test_the_same_cells_give_the_same_bytes(results: Path) -> None:
    assert pack_row([str(results)]).content == pack_row([str(results)]).content


def test_maps_names_and_paths_stay_at_home(results: Path, tmp_path: Path) -> None:
    stored = CellResult.load(open_place(results / CELL))
    own = replace(stored, scenario="folder:/home/somebody/line 3")
    own.save(open_place(tmp_path / "own").below(own.folder))
    row = pack_row([str(tmp_path / "own")])
    files = unpacked(save(row.content, tmp_path))
    assert not [name for name, content in files.items() if b"somebody" in content or "somebody" in name]
    assert [cell.scenario for cell in row.cells] == ["folder:line 3"]
    assert all(task.names is None and task.history is not None for task in row.cells[0].final)
    found = verify([str(tmp_path / "row.zip")])
    assert found.equal
    assert found.rows[0].unknown == found.rows[0].tasks == 2


@pytest.mark.parametrize("revision", [None, f"{REVISION}+changes"])
def test_a_cell_without_an_exact_commit_needs_the_flag(revision: str | None, results: Path, tmp_path: Path) -> None:
    machine = json.loads((results / CELL / "result.json").read_text())["environments"][0]
    change(results, environments=[machine | {"revision": revision}])
    with pytest.raises(InputError, match=r"photometer on synthetic-tiny, seed 0 was not made by one commit.*--publish"):
        pack_row([str(results)])
    row = pack_row([str(results)], allow_dirty=True)
    assert not row.exact
    found = verify([str(save(row.content, tmp_path))])
    assert found.equal
    assert not found.rows[0].exact


def test_a_row_is_of_one_method(results: Path, tmp_path: Path) -> None:
    more = run_photometer(tmp_path, ("photometer", "photometer:signed"), (0,))
    with pytest.raises(InputError, match="hold: photometer, photometer:signed; choose one with --method"):
        pack_row([str(more)])
    with pytest.raises(InputError, match="no finished cell of 'dinosaur'"):
        pack_row([str(more)], method="dinosaur")
    assert pack_row([str(more)], method="photometer:signed").method == "photometer:signed"


def test_a_row_has_no_holes(results: Path) -> None:
    begun = results / "synthetic" / "photometer" / "seed-0"
    (begun / "partial").mkdir(parents=True)
    (begun / "partial" / "row-000.npz").write_bytes(b"")
    with pytest.raises(InputError, match=r"synthetic/photometer/seed-0' is not finished"):
        pack_row([str(results)])
    shutil.rmtree(begun)
    other = results / "synthetic" / "dinosaur" / "seed-0"  # of another method, which is no matter here
    other.mkdir(parents=True)
    (other / "cell.json").write_text("{}")
    assert len(pack_row([str(results)]).cells) == 2
    FailedCell("photometer", "synthetic", 0, "no").save(open_place(begun))
    with pytest.raises(InputError, match="photometer on synthetic, seed 0, failed"):
        pack_row([str(results)])


def test_numbers_that_do_not_follow_from_the_scores_are_not_packed(results: Path) -> None:
    matrix = json.loads((results / CELL / "result.json").read_text())["auroc"]
    change(results, auroc=[[abs(value - 0.25) for value in row] for row in matrix])
    with pytest.raises(InputError, match="seed 0 does not follow from its own scores"):
        pack_row([str(results)])


def test_results_without_a_version_are_of_the_first_and_newer_ones_are_refused(results: Path) -> None:
    path = results / CELL / "result.json"
    document = json.loads(path.read_text())
    assert document.pop("format") == 1
    path.write_text(json.dumps(document))
    assert CellResult.load(open_place(results / CELL)).seed == 0
    path.write_text(json.dumps(document | {"format": 2}))
    with pytest.raises(InputError, match=r"written in format 2 by another version .*up to 1; use a newer version"):
        CellResult.load(open_place(results / CELL))
    for wrong in ("2", 0, 1.5, True, None):
        path.write_text(json.dumps(document | {"format": wrong}))
        with pytest.raises(InputError, match="damaged"):
            CellResult.load(open_place(results / CELL))
