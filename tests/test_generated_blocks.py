"""The one check of generated text: every marked block of README and docs is what its command prints."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from dinosaur_ad.methods import list_methods

ROOT = Path(__file__).parents[1]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generated_blocks", ROOT / "scripts" / "generated_blocks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


generated_blocks = _script()
BLOCKS = list(generated_blocks.blocks())


@pytest.mark.parametrize("block", BLOCKS, ids=[block.name for block in BLOCKS])
def test_the_block_is_what_its_command_prints(block: generated_blocks.GeneratedBlock) -> None:  # type: ignore[name-defined]
    hint = "run: python scripts/generated_blocks.py --write"
    assert block.text.strip() == generated_blocks.printed_by(block.command), hint


def test_every_mark_is_part_of_a_block() -> None:
    counted = Counter(block.page for block in BLOCKS)
    for page in generated_blocks.pages():
        lines = page.read_text("utf-8").splitlines()
        begun = sum(line.startswith("<!-- begin:") for line in lines)
        assert begun == sum(line == "<!-- end -->" for line in lines) == counted[page], page


def test_every_method_has_a_page_with_its_table() -> None:
    pages = {page.stem: page.read_text("utf-8") for page in (ROOT / "docs" / "methods").glob("*.md")}
    assert pages.keys() >= set(list_methods())
    for name in list_methods():
        assert f"begin: python -m dinosaur_ad.cli bench describe {name} " in pages[name]


def test_an_outdated_block_is_replaced_and_the_rest_of_the_page_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "README.md"
    page.write_text("Before.\n<!-- begin: python -c 'print(6 * 7)' -->\n41\n<!-- end -->\nAfter.\n")
    monkeypatch.setattr(generated_blocks, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["generated_blocks.py"])
    assert generated_blocks.main() == 2
    assert "41" in page.read_text()
    monkeypatch.setattr(sys, "argv", ["generated_blocks.py", "--write"])
    assert generated_blocks.main() == 0
    assert page.read_text() == "Before.\n<!-- begin: python -c 'print(6 * 7)' -->\n42\n<!-- end -->\nAfter.\n"
    assert capsys.readouterr().out.splitlines() == [
        "out of date: README.md: python -c 'print(6 * 7)'",
        "written: README.md: python -c 'print(6 * 7)'",
    ]
