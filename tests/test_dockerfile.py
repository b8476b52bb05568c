"""The image, as far as it can be checked without Docker: what is copied, who runs it, and what it runs.

The steps that build it run in tests/test_without_torch.py, in an environment of their own.
"""

from __future__ import annotations

import json
import re
import shlex
from fnmatch import fnmatch
from pathlib import Path

import pytest

from dinosaur_ad.cli import main
from dinosaur_ad.encoders.weights.weight_folder import cache_home

ROOT = Path(__file__).parents[1]


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as pairs of a word and its argument, comments and line ends removed."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines() if line.strip()]


def last_stage() -> list[tuple[str, str]]:
    all_ = instructions()
    start = max(index for index, (word, _) in enumerate(all_) if word == "FROM")
    return all_[start:]


def values(word: str, among: list[tuple[str, str]]) -> list[str]:
    return [argument for each, argument in among if each == word]


def copied() -> list[str]:
    """What is taken out of the repository."""
    arguments = [shlex.split(line) for line in values("COPY", instructions()) if not line.startswith("--from=")]
    return [source for argument in arguments for source in argument[:-1]]


def test_both_stages_stand_on_a_small_python_of_a_named_version() -> None:
    (default,) = re.findall(r"^ARG PYTHON=(.+)$", (ROOT / "Dockerfile").read_text(), flags=re.M)
    assert default == "3.12"
    assert [line.split()[0] for line in values("FROM", instructions())] == ["python:${PYTHON}-slim"] * 2


def test_what_runs_is_not_root_and_owns_what_it_writes() -> None:
    stage = last_stage()
    (user,) = values("USER", stage)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)  # by number: a cluster can then see that it is not root
    (prepared,) = values("RUN", stage)
    (volumes,) = values("VOLUME", stage)
    for volume in json.loads(volumes):
        assert re.search(rf"chown {user} .*{volume}\b", prepared)
    words = [word for word, _ in stage]
    assert words.index("USER") > max(index for index, word in enumerate(words) if word in ("RUN", "COPY"))


def test_the_health_check_is_a_command_of_ours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (check,) = values("HEALTHCHECK", last_stage())
    program, *argv = json.loads(check.partition("CMD ")[2])
    assert (program, argv[0]) == ("dinosaur", "health")
    assert "--verify" not in argv  # hashing every bank each minute would outlast its limit
    assert set(argv[2:]) <= set(json.loads(values("VOLUME", last_stage())[0]))
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path / "weights"))
    (tmp_path / "store").mkdir()
    # A new container: an empty store, and no weights yet, which is what it complains about.
    assert main([str(tmp_path / "store") if each == "/store" else each for each in argv]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "dinosaur: The weights of 'dinov2s-focus' are not here; run: dinosaur weights fetch dinov2s-focus."
    ]


def test_the_entry_point_is_the_command_and_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    (entry,), (default,) = values("ENTRYPOINT", last_stage()), values("CMD", last_stage())
    assert json.loads(entry) == ["dinosaur"]
    with pytest.raises(SystemExit) as exit_:
        main(json.loads(default))
    assert exit_.value.code == 0
    assert "usage: dinosaur" in capsys.readouterr().out


def test_weights_lie_in_a_volume(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = dict(pair.split("=", 1) for line in values("ENV", last_stage()) for pair in shlex.split(line))
    monkeypatch.setenv("DINOSAUR_HOME", environment["DINOSAUR_HOME"])
    assert str(cache_home()) in json.loads(values("VOLUME", last_stage())[0])


def test_it_brings_no_torch_and_no_secret() -> None:
    text = " ".join(f"{word} {argument}" for word, argument in instructions()).lower()
    for unwanted in ("torch", "transformers", "[bench", "token", "password", "secret", "curl", "--privileged"):
        assert unwanted not in text
    installs = [line for line in values("RUN", instructions()) if "pip install" in line]
    assert installs
    for line in installs:  # by hash out of the checked list, or from what was just built
        assert "--require-hashes" in line or "--no-index" in line


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    kept = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    assert sorted(kept) == sorted(copied())
    for source in copied():
        assert (ROOT / source).exists(), source
    assert any(fnmatch("src/dinosaur_ad/__pycache__", rule.replace("**/", "*")) for rule in rules[1:])
