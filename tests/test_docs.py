"""Every example in a docstring runs, and importing the package costs nothing."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import dinosaur_ad

HEAVY = {"torch", "transformers", "onnxruntime", "onnx", "numpy", "PIL"}
NEEDS_TORCH = {"dinosaur_ad.encoders.backends.torch_backend"}
# Alembic runs it inside a migration; it cannot be imported.
RUN_BY_ALEMBIC = "dinosaur_ad.station.history.migrations.env"


def modules() -> list[str]:
    found = pkgutil.walk_packages(dinosaur_ad.__path__, "dinosaur_ad.")
    return [
        "dinosaur_ad",
        *(info.name for info in found if not info.name.endswith("__main__") and info.name != RUN_BY_ALEMBIC),
    ]


@pytest.mark.parametrize("name", modules())
def test_the_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in NEEDS_TORCH:
        pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
        pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")
    if name.startswith("dinosaur_ad.station"):
        for package in ("aiomqtt", "argon2", "fastapi", "sqlalchemy"):
            pytest.importorskip(package, reason=f"{package} is not installed (it comes with the extra 'station')")
    monkeypatch.setenv("DINOSAUR_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    outcome = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert outcome.failed == 0


def loaded_after(statement: str) -> set[str]:
    """The top-level modules a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(run.stdout)}


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not HEAVY & loaded_after("import dinosaur_ad")


def test_the_detector_comes_without_torch_and_before_any_model() -> None:
    loaded = loaded_after("from dinosaur_ad import Dinosaur, load_encoder")
    assert "numpy" in loaded
    assert not {"torch", "transformers", "onnxruntime"} & loaded
