"""The detectors of docs/guides/adapters.md are methods: they run from the command line and keep the contract."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dinosaur_ad._atomic import sha256_file

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "adapters.md"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    code, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    path = tmp_path_factory.mktemp("mine") / "detectors.py"
    path.write_text(code)
    return path


def test_the_commands_of_the_page_run(example: Path) -> None:
    commands = re.findall(r"^    (dinosaur bench .*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(commands) == 2
    tiny = ["--set", "encoder=tiny-dinov2", "--set", "layers=0+1", "--set", "size=70"]
    for command in commands:
        words = command.replace("--scenarios synthetic", "--scenarios synthetic-tiny").split()[1:]
        words += tiny if "run" in words else []
        done = subprocess.run(
            [sys.executable, "-m", "dinosaur_ad.cli", *words], cwd=example.parent, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    result = json.loads(
        (example.parent / "runs" / "mine" / "synthetic-tiny" / "lof" / "seed-0" / "result.json").read_text()
    )
    assert "n_neighbors=5, novelty=True" in result["settings"]["detector"]
    assert result["environments"][0]["method_sha256"] == sha256_file(example)  # the file that was loaded


def test_they_keep_the_contract(example: Path) -> None:
    load = "from pathlib import Path\nfrom dinosaur_ad.bench.runner import load_plugins\n"
    (example.parent / "conftest.py").write_text(f"{load}load_plugins([Path({str(example)!r})])\n")
    for name in ("test_contract.py", "method_helpers.py"):
        (example.parent / name).write_text((ROOT / "tests" / "methods" / name).read_text("utf-8"))
    choice = ["-k", "forest or lof", "test_contract.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *choice]
    done = subprocess.run(command, cwd=example.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b2\d passed", done.stdout), done.stdout
