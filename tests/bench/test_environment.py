from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from dinosaur_ad._memory import peak_memory_bytes
from dinosaur_ad.bench import environment
from dinosaur_ad.errors import InputError

MODULE = Path("src", "dinosaur_ad", "bench", "environment.py")


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.REVISION_VARIABLE, raising=False)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = tmp_path / MODULE
    module.parent.mkdir(parents=True)
    module.write_text("one")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "dinosaur-ad"\n')
    for command in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(environment, "__file__", str(module))
    return tmp_path


def head(repository: Path) -> str:
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout.strip()[:12]


def test_the_revision_is_that_of_the_source(repository: Path) -> None:
    assert environment.git_revision() == head(repository)
    subprocess.run(["git", "pack-refs", "--all"], cwd=repository, check=True)
    assert environment.git_revision() == head(repository)
    subprocess.run(["git", "checkout", "-q", "--detach"], cwd=repository, check=True)
    assert environment.git_revision() == head(repository)


def test_changed_source_is_not_passed_off_as_the_commit(repository: Path) -> None:
    (repository / MODULE).write_text("two")
    assert environment.git_revision() == f"{head(repository)}+changes"


def test_a_worktree_has_a_revision_too(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tree = tmp_path_factory.mktemp("tree") / "here"
    subprocess.run(["git", "worktree", "add", "-q", "-b", "other", str(tree)], cwd=repository, check=True)
    monkeypatch.setattr(environment, "__file__", str(tree / MODULE))
    assert environment.git_revision() == head(repository)


def test_no_repository_no_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "environment.py"))
    assert environment.git_revision() is None


@pytest.mark.parametrize(
    "place",
    [
        ".venv/lib/python3.11/site-packages/dinosaur_ad/bench/environment.py",
        "src/other/bench/environment.py",
        "vendor/src/dinosaur_ad/bench/environment.py",
    ],
)
def test_the_commit_of_another_project_is_not_ours(
    place: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even of our own repository: what is installed into an environment within it is not its source."""
    (repository / place).parent.mkdir(parents=True)
    (repository / place).write_text("installed")
    monkeypatch.setattr(environment, "__file__", str(repository / place))
    assert environment.git_revision() is None


@pytest.mark.parametrize("project", ['[project]\nname = "other"\n', "not toml", "[project", "project = 1\n", None])
def test_a_repository_that_does_not_say_that_it_is_ours_is_not(project: str | None, repository: Path) -> None:
    file = repository / "pyproject.toml"
    file.unlink() if project is None else file.write_text(project)
    assert environment.git_revision() is None


def test_a_copy_without_a_repository_can_be_told_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "__file__", str(tmp_path / MODULE))
    monkeypatch.setenv(environment.REVISION_VARIABLE, "bf0b1bc")
    assert environment.git_revision() == "bf0b1bc"
    for wrong in ("main", "bf0b1b", "BF0B1BC0", "a" * 41, "bf0b1bc; rm"):
        monkeypatch.setenv(environment.REVISION_VARIABLE, wrong)
        with pytest.raises(InputError, match=r"DINOSAUR_REVISION.*7 to 40 hexadecimal"):
            environment.git_revision()


def test_what_is_given_does_not_overrule_the_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.REVISION_VARIABLE, "abcdef1")
    assert environment.git_revision() == head(repository)


def test_what_a_result_says_of_its_machine() -> None:
    facts = environment.environment("cpu")
    assert facts["packages"]["numpy"]
    assert facts["cores"] >= 1
    assert facts["device"] == "cpu"
    peak = peak_memory_bytes()
    assert peak is None or peak > 10**7
    assert environment.peak_device_bytes("cpu") is None


def test_an_exact_revision_is_a_commit_without_changes(repository: Path) -> None:
    assert environment.exact_revision() == head(repository)
    (repository / MODULE).write_text("two")
    with pytest.raises(InputError, match=f"changed or added since {head(repository)}; commit or undo"):
        environment.exact_revision()


def test_a_new_source_file_is_not_part_of_the_commit(repository: Path) -> None:
    (repository / "notes.txt").write_text("not source")
    assert environment.exact_revision() == head(repository)
    (repository / MODULE.with_name("new.py")).write_text("new")
    assert environment.git_revision() == head(repository)
    with pytest.raises(InputError, match="changed or added"):
        environment.exact_revision()


def test_without_git_nothing_is_taken_for_clean(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = head(repository)
    monkeypatch.setenv("PATH", str(repository))
    assert environment.git_revision() == revision
    with pytest.raises(InputError, match=f"git cannot say whether it is still that of {revision}; install git"):
        environment.exact_revision()


def test_a_copy_that_was_told_its_revision_is_exact_unless_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "__file__", str(tmp_path / MODULE))
    with pytest.raises(InputError, match="set DINOSAUR_REVISION to that commit"):
        environment.exact_revision()
    monkeypatch.setenv(environment.REVISION_VARIABLE, "bf0b1bc")
    assert environment.exact_revision() == "bf0b1bc"
    monkeypatch.setenv(environment.REVISION_VARIABLE, "bf0b1bc+changes")
    with pytest.raises(InputError, match="changed or added since bf0b1bc;"):
        environment.exact_revision()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux passes a parent's peak on")
def test_the_peak_of_the_process_that_started_it_is_not_counted() -> None:
    held = bytearray(4 * 10**8)
    held[:: mmap.PAGESIZE] = b"\1" * len(range(0, len(held), mmap.PAGESIZE))  # touched, so that it is really held
    code = "from dinosaur_ad._memory import peak_memory_bytes; print(peak_memory_bytes())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(child.stdout) < len(held) // 2
