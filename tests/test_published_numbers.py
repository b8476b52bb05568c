"""Every figure in the docs comes out of a stored result, and every stored figure out of stored scores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.methods import list_methods
from dinosaur_ad.profile.document import read_profile

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "real_images.json"
SPEED = "python -m benchmarks --show benchmarks/results/amd-epyc-2-cores.json"
PROFILE = "python -m dinosaur_ad.cli profile compare results/edge/profile-amd-epyc-2-cores"


def block(page: Path, command: str) -> str:
    """What stands on a page between the marks of a command."""
    _, found, rest = page.read_text().partition(f"<!-- begin: {command} -->\n")
    assert found, f"{page.name} has no block of '{command}'"
    return rest.partition("\n<!-- end -->")[0].strip()


@pytest.mark.parametrize(
    ("page", "command"),
    [
        ("docs/presets.md", "python -m benchmarks.real_images table results/real_images.json"),
        ("docs/speed.md", f"{SPEED} --only coreset --only scoring --only learning --only store"),
        ("docs/speed.md", f"{SPEED} --only evaluation"),
        ("docs/speed.md", f"{SPEED} --only runtime"),
        ("docs/speed.md", f"{SPEED} --only methods"),
        ("README.md", f"{PROFILE}.json --print efficiency"),
        ("docs/profile.md", f"{PROFILE}.json --print latency"),
        ("docs/profile.md", f"{PROFILE}.json --print resources"),
        ("docs/profile.md", f"{PROFILE}.json --print learning"),
        ("docs/profile.md", f"{PROFILE}-443.json --print learning"),
        ("README.md", "python -m dinosaur_ad.cli bench report results --print overview"),
        ("docs/benchmark.md", "python -m dinosaur_ad.cli bench report results --print overview"),
        ("docs/benchmark.md", "python -m dinosaur_ad.cli bench report results --print missing"),
        ("docs/benchmark.md", "python -m dinosaur_ad.cli bench report results --print discrete,continuous"),
        ("docs/benchmark.md", "python -m dinosaur_ad.cli bench report results --print shortcuts"),
    ],
)
def test_tables_are_what_the_command_prints(page: str, command: str) -> None:
    printed = subprocess.run(
        [sys.executable, *command.split()[1:]], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert block(ROOT / page, command) == printed.strip()


def test_stored_figures_follow_from_the_stored_scores() -> None:
    scores = np.load(RESULTS.with_suffix(".npz"))
    cells = json.loads(RESULTS.read_text())["cells"]
    assert len(cells) >= 12
    for cell in cells:
        for row in cell["tasks"]:
            key = f"{cell['scenario']}|{row['task']}"
            labels = scores[f"{key}|labels"]
            assert row["auroc"] == pytest.approx(auroc(scores[f"{key}|{cell['step']}"], labels), abs=2e-4)
            assert (row["normals"], row["anomalies"]) == (int((labels == 0).sum()), int(labels.sum()))


def mean(scenario: str, step: str, key: str) -> float:
    cell = next(c for c in json.loads(RESULTS.read_text())["cells"] if (c["scenario"], c["step"]) == (scenario, step))
    return float(np.mean([row[key] for row in cell["tasks"]]))


@pytest.mark.parametrize(
    ("scenario", "least"), [("mtd-color", 0.915), ("mtd-blur", 0.92), ("mtd-geo", 0.945), ("mvtec-ad", 0.955)]
)
def test_the_default_preset_keeps_what_it_promised(scenario: str, least: float) -> None:
    assert mean(scenario, "default", "auroc") >= least
    assert mean(scenario, "default", "false_alarms") <= 0.05


def test_geometric_drift_as_printed_is_near_chance_and_as_meant_is_not() -> None:
    assert mean("mtd-geo-literal", "paper", "auroc") < 0.62
    assert mean("mtd-geo", "paper", "auroc") > 0.7


def test_the_stored_profiles_hold_all_methods_and_what_is_claimed_of_them() -> None:
    edge = ROOT / "results" / "edge"
    every, alone = (
        {method["name"]: method for method in read_profile(edge / f"profile-amd-epyc-2-cores{suffix}.json")["methods"]}
        for suffix in ("", "-443")
    )
    assert every.keys() == {name for name, spec in list_methods().items() if not spec.control} | {"dinosaur:paper"}
    assert {method["status"] for method in every.values()} == {"measured"}
    assert every["dinosaur"]["latency_ms"]["mean"] < every["patchcore"]["latency_ms"]["mean"]
    assert alone["dinosaur"]["learning"]["images"] == 443
    assert alone["dinosaur"]["learning"]["coreset_share"] < 0.02
