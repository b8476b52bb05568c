"""What the tests of the benchmark's commands share: runs of seconds, a method in a file, a dataset in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from dinosaur_ad.cli import main

# The suite without its second method, which wants torch.
QUICK = ("bench", "run", "--suite", "tiny", "--methods", "dinosaur")
CELL = Path("synthetic-tiny", "dinosaur", "seed-0")

PLUGIN = """
from dataclasses import dataclass
import numpy as np
from dinosaur_ad.methods import Config, Method, Parameters, Scores, register

@dataclass(frozen=True)
class GuessConfig(Config):
    patience: int = 9

@register("guess", variants={"default": GuessConfig()}, summary="says the same of every image")
class Guess(Method):
    has_maps = False
    tasks = 0

    def learn(self, lesson):
        self.tasks += 1
        if self.tasks > self.config.patience:
            raise RuntimeError("one task too many")

    def score(self, photos, task=None):
        return Scores(np.zeros(len(photos), np.float32))

    def save(self, folder):
        (folder / "tasks").write_text(str(self.tasks))

    def load(self, folder):
        self.tasks = int((folder / "tasks").read_text())

    def storage_bytes(self):
        return 1

    def parameters(self):
        return Parameters(0, 0)

    def info(self):
        return {"description": "a guess"}
"""


def run_quick(out: Path, *more: str) -> int:
    """Run the one cell of :data:`QUICK`, or what ``more`` makes of it."""
    return main([*QUICK, "--out", str(out), "--cache", str(out.parent / "cache"), *more])


def make_mvtec(data: Path) -> Path:
    """A data folder with two of the fifteen categories of MVTec-AD, a few noisy images each; returns the dataset."""
    rng = np.random.default_rng(0)
    dataset = data / "mvtec_ad"
    for category in ("bottle", "cable"):
        files = [f"train/good/{n}.png" for n in range(6)] + [f"test/good/{n}.png" for n in range(3)]
        files += [f"test/crack/{n}.png" for n in range(3)] + [f"ground_truth/crack/{n}_mask.png" for n in range(3)]
        for file in files:
            path = dataset / category / file
            path.parent.mkdir(parents=True, exist_ok=True)
            shape = (40, 40) if "mask" in file else (40, 40, 3)
            Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(path)
    return dataset
