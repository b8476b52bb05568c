"""What only a process of its own can show: signals, pipes, neighbours, what is imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import NEW_STORE_ELSEWHERE, tree_hash

from dinosaur_ad.store import Store

COMMAND = (sys.executable, "-m", "dinosaur_ad.cli")
LIMIT = 60


def start(*argv: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, *argv], stdout=stdout, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.name == "nt", reason="Windows sends Ctrl-C in another way")
def test_ctrl_c_while_learning_leaves_the_store_as_it_was(tmp_path: Path, normals: Path, store: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for index in range(4000):  # enough to be interrupted, and only names on disk
        os.link(normals / "000.png", many / f"{index}.png")
    before = tree_hash(store)
    process = start("learn", "nut", str(many), "--store", str(store))
    assert process.stderr is not None
    assert process.stderr.readline().startswith("tiny-dinov2 on ")  # said once the first images are encoded
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, err) == (130, "dinosaur: interrupted; the store is unchanged\n")
    assert tree_hash(store) == before
    assert Store.open(store).names() == ["screw", "washer"]


def test_two_processes_learn_into_one_new_store_at_once(tmp_path: Path, normals: Path, others: Path) -> None:
    store = tmp_path / "new"
    processes = [
        start("learn", name, str(folder), "--store", str(store), "--threads", "1", *NEW_STORE_ELSEWHERE)
        for name, folder in (("screw", normals), ("washer", others))
    ]
    outcomes = [(process.communicate(timeout=LIMIT)[1], process.returncode) for process in processes]
    assert [code for _, code in outcomes] == [0, 0], outcomes
    opened = Store.open(store)
    assert sorted(opened.names()) == ["screw", "washer"]
    for name in opened.names():
        opened.verify(name)


def test_a_reader_that_leaves_early_is_not_an_error(store: Path, normals: Path) -> None:
    process = start("inspect", str(normals), "--store", str(store), "--json", "--threads", "1")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    assert process.wait(LIMIT) == 141
    assert err.count("\n") == 1  # the encoder's line, and neither a traceback nor a complaint at exit


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_an_output_that_is_full_gets_a_sentence(store: Path) -> None:
    with Path("/dev/full").open("w") as full:
        process = start("tasks", "--store", str(store), stdout=full.fileno())
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 2
    assert err == (
        "dinosaur: A file or the output could not be read or written (No space left on device); "
        "free some space and try again.\n"
    )


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from dinosaur_ad.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'PIL', 'torch', 'transformers', 'tqdm', 'safetensors'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or None)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of sh in which $DINOSAUR is the command."""
    command = " ".join(COMMAND)
    everything = os.environ | {"DINOSAUR": command} | environment
    return subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=LIMIT, check=False, env=everything
    )


def assert_no_traceback(text: str) -> None:
    assert "Traceback" not in text
    assert "Exception ignored" not in text


@pytest.mark.skipif(os.name == "nt", reason="Windows has another shell")
class TestClosedAndFullStreams:
    def test_a_closed_output_is_refused_before_anything_is_done(self, store: Path, defect: Path) -> None:
        done = shell(f"$DINOSAUR inspect '{defect}' --store '{store}' >&-")
        assert done.returncode == 2
        assert done.stderr == (
            "dinosaur: Standard output is closed, and results go there; redirect it to a file or to /dev/null.\n"
        )

    def test_without_stderr_the_results_are_the_same(self, store: Path, defect: Path) -> None:
        usual = shell(f"$DINOSAUR inspect '{defect}' --store '{store}' --exit-code")
        for where in ("2>&-", "2>/dev/full"):
            done = shell(f"$DINOSAUR inspect '{defect}' --store '{store}' --exit-code {where}")
            assert (done.returncode, done.stdout) == (1, usual.stdout)

    def test_a_refusal_that_nobody_can_read_keeps_its_code(self, store: Path) -> None:
        for where in ("2>&-", "2>/dev/full", "<&- 2>&-"):
            assert shell(f"$DINOSAUR forget nut --store '{store}' {where}").returncode == 2

    @pytest.mark.parametrize("buffered", ["", "1"])
    @pytest.mark.parametrize("verb", ["--help", "--version", "weights list"])
    def test_a_full_output_is_a_sentence(self, verb: str, buffered: str) -> None:
        done = shell(f"$DINOSAUR {verb} >/dev/full", PYTHONUNBUFFERED=buffered)
        assert done.returncode == 2
        assert_no_traceback(done.stderr)
        assert done.stderr.count("\n") == 1
        assert "No space left on device" in done.stderr

    def test_a_full_output_while_inspecting_is_not_the_code_of_a_finding(self, store: Path, defect: Path) -> None:
        done = shell(f"$DINOSAUR inspect '{defect}' --store '{store}' --exit-code --json >/dev/full")
        assert done.returncode == 2
        assert_no_traceback(done.stderr)


NO_HOME = """
import pwd, sys
def nobody(*_): raise KeyError("no entry")
pwd.getpwuid = nobody
from dinosaur_ad.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["weights", "list"], "There is no home folder to keep weights"),
        (["learn", "nut", "IMAGES", "--store", "new"], "set DINOSAUR_HOME to a folder"),
        (["health"], "There is no home folder to keep weights"),
        (["bench", "list", "--data", "~/data"], "This user has no home folder; set HOME, or write the path without"),
    ],
)
def test_a_user_without_a_home_gets_a_sentence(tmp_path: Path, normals: Path, argv: list[str], sentence: str) -> None:
    unset = ("HOME", "DINOSAUR_HOME", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    words = [str(normals) if word == "IMAGES" else word for word in argv]
    command = [sys.executable, "-c", NO_HOME, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("dinosaur: ")
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr


@pytest.mark.parametrize("threads", ["9" * 5000, "99999999999999999999", "1000000", "-1", "many"])
def test_a_number_of_threads_that_cannot_be_meant_is_ignored(store: Path, defect: Path, threads: str) -> None:
    command = [*COMMAND, "inspect", str(defect), "--store", str(store)]
    environment = os.environ | {"OMP_NUM_THREADS": threads}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("anomalous")
