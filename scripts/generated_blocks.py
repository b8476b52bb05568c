"""The generated blocks of README.md and docs/: is each of them what its command prints?

    python scripts/generated_blocks.py            # name the blocks that are out of date; exit code 2 if there are any
    python scripts/generated_blocks.py --write    # replace them

A block stands between ``<!-- begin: COMMAND -->`` and ``<!-- end -->``. COMMAND is a Python command such as
``python -m dinosaur_ad.cli bench report results --print overview``, run in the folder of the repository.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"<!-- begin: (?P<command>python [^\n]+) -->\n(?P<text>.*?)\n?<!-- end -->", re.DOTALL)


class GeneratedBlock(NamedTuple):
    """One block of a page: where it is, the command that prints it, and its present text."""

    page: Path
    command: str
    text: str

    @property
    def name(self) -> str:
        """The page and the command, for messages."""
        return f"{self.page.relative_to(ROOT)}: {self.command}"


def pages() -> list[Path]:
    """All pages that may hold generated blocks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks() -> Iterator[GeneratedBlock]:
    """Every block of every page, in the order of the files."""
    for page in pages():
        for found in BLOCK.finditer(page.read_text("utf-8")):
            yield GeneratedBlock(page, found["command"], found["text"])


@cache
def printed_by(command: str) -> str:
    """What a command prints, without blank lines at its ends; a command of several blocks runs once."""
    arguments = [sys.executable, *shlex.split(command)[1:]]
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def replace(block: GeneratedBlock, text: str) -> None:
    """Write ``text`` into the block's place on its page."""

    def new(found: re.Match[str]) -> str:
        same = found["command"] == block.command
        return f"<!-- begin: {block.command} -->\n{text}\n<!-- end -->" if same else found[0]

    block.page.write_text(BLOCK.sub(new, block.page.read_text("utf-8")), "utf-8")


def main() -> int:
    """Check all blocks; with ``--write``, replace those that are out of date."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the blocks that are out of date")
    write = parser.parse_args().write
    outdated = 0
    for block in blocks():
        text = printed_by(block.command)
        if text != block.text.strip():
            outdated += 1
            print(f"{'written' if write else 'out of date'}: {block.name}")
            if write:
                replace(block, text)
    return 2 if outdated and not write else 0


if __name__ == "__main__":
    sys.exit(main())
