"""The pages about devices: what they tell people to type is understood, and the paper's figures are the paper's."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

import dinosaur_ad.bench
from dinosaur_ad import cli

PAGES = Path(__file__).parents[2] / "docs" / "devices"
PAPER = Path(dinosaur_ad.bench.__file__).with_name("paper.toml")


def commands() -> list[str]:
    """The arguments of every ``dinosaur`` on the pages, by itself or in a container."""
    found = []
    for page in sorted(PAGES.glob("*.md")):
        text = re.sub(r"\\\n\s*", "", page.read_text())
        found += re.findall(r"^ {4,}dinosaur (.+?)(?:\s{2,}#.*)?$", text, flags=re.M)
        found += re.findall(r"^ {4}docker run .+ dinosaur (.+)$", text, flags=re.M)
    return found


def test_there_are_commands_for_every_step() -> None:
    verbs = {command.split()[0] for command in commands()}
    assert {"weights", "health", "learn", "inspect", "export", "profile"} <= verbs


@pytest.mark.parametrize("command", commands())
def test_a_command_is_understood(command: str) -> None:
    arguments = cli.make_parser().parse_args(shlex.split(command))
    assert callable(arguments.run)


@pytest.mark.parametrize(("page", "device"), [("raspberry-pi-5.md", "pi"), ("jetson-orin.md", "jetson")])
def test_the_only_speed_is_the_papers_and_says_so(page: str, device: str) -> None:
    mean, deviation, rate = tomllib.loads(PAPER.read_text())["efficiency"]["devices"][device]["dinosaur"]
    text = " ".join((PAGES / page).read_text().split())
    assert re.findall(r"(\d[\d.]*(?: ± [\d.]+)? ms)\b", text) == [f"{mean} ± {deviation} ms"]
    assert f"**{mean} ± {deviation} ms** an image, {rate} images a second. These are the paper's figures" in text
    assert "**Not run by us on this device" in text
