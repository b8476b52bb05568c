"""``tasks export`` and ``tasks import``: a task moves as one file, and everything ``tasks`` did before still works."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from cli_helpers import assert_refused, tree_hash

from dinosaur_ad import Dinosaur
from dinosaur_ad.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def bundle(store: Path, tmp_path: Path, capsys: Capture) -> Path:
    path = tmp_path / "screw.zip"
    assert main(["tasks", "export", "screw", "--out", str(path), "--store", str(store)]) == 0
    capsys.readouterr()
    return path


def test_a_task_moves_to_a_new_box(store: Path, defect: Path, tmp_path: Path, capsys: Capture) -> None:
    path, there = tmp_path / "screw.zip", tmp_path / "there"
    assert main(["tasks", "export", "screw", "--out", str(path), "--store", str(store)]) == 0
    out, err = capsys.readouterr()
    assert re.search(r"exported 'screw' to .*screw\.zip: \d+\.\d MB, sha256 ([0-9a-f]{64})", out)
    assert hashlib.sha256(path.read_bytes()).hexdigest() in out
    assert err == ""
    assert main(["tasks", "import", str(path), "--store", str(there)]) == 0
    assert "imported 'screw'" in capsys.readouterr().out
    verdicts = []
    for place in (store, there):
        main(["inspect", str(defect), "--store", str(place), "--json"])
        result = json.loads(capsys.readouterr().out)
        verdicts.append({key: result[key] for key in ("score", "threshold", "p_value", "verdict", "task")})
    assert verdicts[0] == verdicts[1]
    assert verdicts[0]["verdict"] == "anomalous"
    assert main(["undo", "screw", "--store", str(there)]) == 0
    assert Dinosaur.load(there).tasks() == []


def test_a_name_that_is_taken(store: Path, bundle: Path, capsys: Capture) -> None:
    argv = ["tasks", "import", str(bundle), "--store", str(store)]
    assert_refused(capsys, argv, "There is a task 'screw' already; import it under another name (--name)", store)
    assert main([*argv, "--name", "screw 2"]) == 0
    assert main([*argv, "--replace"]) == 0
    assert Dinosaur.load(store).store.names() == ["screw", "washer", "screw 2"]
    capsys.readouterr()
    assert main(["undo", "screw", "--store", str(store)]) == 0
    assert "import" in "".join(capsys.readouterr())


def test_a_damaged_file_is_one_sentence(store: Path, bundle: Path, tmp_path: Path, capsys: Capture) -> None:
    content = bytearray(bundle.read_bytes())
    content[len(content) // 2] ^= 1
    bundle.write_bytes(content)
    argv = ["tasks", "import", str(bundle), "--store", str(store), "--replace"]
    assert_refused(capsys, argv, "cannot be used (", store)
    assert main(["tasks", "import", str(bundle), "--store", str(tmp_path / "new")]) == 2
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_there_stays(store: Path, bundle: Path, capsys: Capture) -> None:
    before = bundle.read_bytes()
    argv = ["tasks", "export", "washer", "--out", str(bundle), "--store", str(store)]
    assert_refused(capsys, argv, "already; choose another name, or remove it first", store)
    assert bundle.read_bytes() == before


def test_folders_stay_at_home_if_asked(store: Path, normals: Path, tmp_path: Path) -> None:
    argv = ["tasks", "export", "screw", "--store", str(store), "--out"]
    assert main([*argv, str(tmp_path / "all.zip")]) == 0
    assert main([*argv, str(tmp_path / "less.zip"), "--without-paths"]) == 0
    assert str(normals).encode() in (tmp_path / "all.zip").read_bytes()
    assert str(normals.parent).encode() not in (tmp_path / "less.zip").read_bytes()


def test_the_store_may_come_from_the_environment(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DINOSAUR_STORE", str(store))
    assert main(["tasks", "export", "screw", "--out", str(tmp_path / "screw.zip")]) == 0
    assert main(["tasks", "import", str(tmp_path / "screw.zip"), "--name", "copy"]) == 0
    assert "copy" in Dinosaur.load(store)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["tasks", "export"], "dinosaur tasks export: the following arguments are required: NAME, --out"),
        (
            ["tasks", "export", "screw", "--ot", "x"],
            "dinosaur tasks export: there is no option --ot, did you mean --out?",
        ),
        (["tasks", "import"], "dinosaur tasks import: the following arguments are required: FILE"),
        (["tasks", "import", "a.zip", "--verbose"], "dinosaur tasks import: there is no option --verbose"),
        (["tasks", "screw", "--replace"], "dinosaur tasks: there is no option --replace"),
    ],
)
def test_wrong_usage_is_one_line(capsys: Capture, argv: list[str], sentence: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(argv)
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert sentence in err


def test_listing_works_as_before_even_for_tasks_with_these_names(store: Path, bundle: Path, capsys: Capture) -> None:
    where = ["--store", str(store)]
    for name in ("export", "import"):
        assert main(["tasks", "import", str(bundle), "--name", name, *where]) == 0
    capsys.readouterr()
    before = tree_hash(store)
    for argv in (["tasks", *where], ["tasks", *where, "screw"], ["tasks", "screw", "washer", *where, "--json"]):
        assert main(argv) == 0
        assert "screw" in capsys.readouterr().out
    assert main(["tasks", *where, "export", "import"]) == 0  # after an option the words are names
    out = capsys.readouterr().out
    assert "export: threshold" in out
    assert "import: threshold" in out
    assert tree_hash(store) == before


def test_the_shell_completes_both(capsys: Capture) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert '"tasks") verbs="export import"' in script
    assert "--without-paths" in script
    assert '"tasks export export") names=yes' in script
