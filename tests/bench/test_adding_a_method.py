"""The example of docs/adding-a-method.md is a method: it runs from the command line and keeps the contract."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-a-method.md"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 1
    path = tmp_path_factory.mktemp("mine") / "brightness.py"
    path.write_text(blocks[0])
    return path


def test_the_commands_of_the_page_run(example: Path, tmp_path: Path) -> None:
    commands = re.findall(r"^    (dinosaur bench .*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(commands) == 3
    for command in commands:  # the page's own, with a smaller scenario and without the encoder's minutes
        words = command.replace("brightness,dinosaur", "brightness,brightness:fine")
        words = words.replace("--scenarios synthetic", "--scenarios synthetic-tiny").split()[1:]
        done = subprocess.run(
            [sys.executable, "-m", "dinosaur_ad.cli", *words], cwd=example.parent, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    page = (example.parent / "runs/mine/report").glob("*.html")
    assert "brightness:fine" in next(page).read_text("utf-8")


def test_it_keeps_the_contract(example: Path) -> None:
    load = "from pathlib import Path\nfrom dinosaur_ad.bench.runner import load_plugins\n"
    (example.parent / "conftest.py").write_text(f"{load}load_plugins([Path({str(example)!r})])\n")
    contract = (ROOT / "tests" / "methods" / "test_contract.py").read_text("utf-8")
    (example.parent / "method_helpers.py").write_text((ROOT / "tests/methods/method_helpers.py").read_text("utf-8"))
    (example.parent / "test_contract.py").write_text(contract)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "brightness", "test_contract.py"]
    done = subprocess.run(command, cwd=example.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b2\d passed", done.stdout), done.stdout
