"""A user's program is type-checked against the package: what is public has types, and a mistake is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dinosaur_ad

pytest.importorskip("mypy", reason="mypy is not installed (it comes with the extra 'dev')")

PACKAGE = Path(dinosaur_ad.__file__).parent

RIGHT = """
from typing import assert_type

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad import (
    PRESETS, Changed, Dinosaur, DinosaurError, EncoderError, EncoderOptions, InputError, Inspection, Learned, Preset,
    Region, Rejected, StoreError, Suspect, TaskSettings, WorstPatch, __version__, from_bgr, load_encoder, overlay,
    to_pandas,
)

version: str = __version__
preset: Preset = PRESETS["default"]
detector = Dinosaur("line-3", preset=preset, options=EncoderOptions(threads=2))
learned: Learned = detector.learn("screw", "photos/screw")
rejected: tuple[Rejected, ...] = learned.rejected
suspects: tuple[Suspect, ...] = learned.suspects
changed: Changed = detector.set("screw", sensitivity=6)
settings: TaskSettings = changed.after
assert_type(len(detector), int)
assert_type("screw" in detector, bool)

frame: NDArray[np.uint8] = from_bgr(np.zeros((480, 640, 3), np.uint8))
results = detector.inspect([frame, "photos/one.png"])
assert_type(results, list[Inspection])
assert_type(detector.inspect(Image.fromarray(frame)), Inspection)
result: Inspection = detector.inspect(frame)
worst: WorstPatch = result.worst
assert_type(result.regions, tuple[Region, ...])
assert_type(worst.box, tuple[int, int, int, int])
assert_type(result.mask((480, 640)), NDArray[np.bool_])
assert_type(result.overlay(), NDArray[np.uint8])
assert_type(result.overlay(frame), NDArray[np.uint8])
assert_type(overlay(frame, result), NDArray[np.uint8])
document: dict[str, object] = result.to_dict()
table = to_pandas(detector.stream("photos/today"))
detections = result.to_supervision()
encoder = load_encoder("tiny-dinov2")

try:
    detector.forget("screw")
except (InputError, StoreError, EncoderError) as error:
    known: DinosaurError = error
"""

# Each of these lines is a mistake, and says which.
WRONG = """
import dinosaur_ad
from dinosaur_ad import Dinosaur, EncoderOptions, from_bgr

dinosaur_ad.Dinosaurr  # attr-defined
detector = Dinosaur(stroe="line-3")  # call-arg
EncoderOptions(thread=2)  # call-arg
detector.inspect(["photos"])[0].mask(480)  # arg-type
detector.inspect(["photos"])[0].verdct  # attr-defined
from_bgr("part.png")  # arg-type
for task in detector:  # attr-defined
    pass
"""


def checked(source: str, folder: Path, config: pytest.Config) -> tuple[int, list[str]]:
    """What mypy, as strict as it can be, says about a file outside of this repository."""
    (folder / "user.py").write_text(source)
    assert config.cache is not None
    cache = config.cache.mkdir("user-types")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--show-error-codes"]
    run = subprocess.run(
        [*command, "--config-file=", "--follow-imports=silent", f"--cache-dir={cache}", "user.py"],
        cwd=folder,
        env=os.environ | {"MYPYPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
    )
    assert not run.stderr, run.stderr
    return run.returncode, run.stdout.splitlines()


def test_the_package_says_that_it_has_types() -> None:
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.slow
def test_a_program_that_uses_everything_has_types(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    assert checked(RIGHT, tmp_path, pytestconfig) == (0, [])
    for name in dinosaur_ad.__all__:
        assert name in RIGHT


@pytest.mark.slow
def test_mistakes_are_found_where_they_are(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    _, found = checked(WRONG, tmp_path, pytestconfig)
    expected = {
        (str(number), line.rpartition("# ")[2])
        for number, line in enumerate(WRONG.splitlines(), start=1)
        if "  # " in line
    }
    errors = [line for line in found if ": error: " in line]
    assert {(line.split(":")[1], line.rpartition("[")[2].rstrip("]")) for line in errors} == expected, found
