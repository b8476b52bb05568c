from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dinosaur_ad.bench import environment


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "src").mkdir()
    module = tmp_path / "src" / "environment.py"
    module.write_text("one")
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
    (repository / "src" / "environment.py").write_text("two")
    assert environment.git_revision() == f"{head(repository)}+changes"


def test_a_worktree_has_a_revision_too(
    repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tree = tmp_path_factory.mktemp("tree") / "here"
    subprocess.run(["git", "worktree", "add", "-q", "-b", "other", str(tree)], cwd=repository, check=True)
    monkeypatch.setattr(environment, "__file__", str(tree / "src" / "environment.py"))
    assert environment.git_revision() == head(repository)


def test_no_repository_no_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "environment.py"))
    assert environment.git_revision() is None


def test_what_a_result_says_of_its_machine() -> None:
    facts = environment.environment("cpu")
    assert facts["packages"]["numpy"]
    assert facts["cores"] >= 1
    assert facts["device"] == "cpu"
    peak = environment.peak_memory_bytes()
    assert peak is None or peak > 10**7
    assert environment.peak_device_bytes("cpu") is None
