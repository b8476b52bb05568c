"""What children do: run the command line, teach the products, say what a store holds. Only the public API is used."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from detector_helpers import product, spoil
from dinosaur_ad import Dinosaur, EncoderOptions
from dinosaur_ad.encoders import Encoder
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.presets import DEFAULT

# Small enough to be fast, and with all the files that a task can have: windows, distances of calibration images, and a
# reserve, which a bank without a budget has.
PRESET = replace(
    DEFAULT, name="attack", layers=(0, 1), size=70, minimum=6, budget=None, reserve=2.0, precision="float16"
)
ENCODER = "tiny-dinov2"
JUDGED = ("task", "score", "p_value", "threshold", "verdict", "normal_level", "false_alarms", "worst")
"""What two inspections of one image by one version of a task must agree on."""


def cli(argv: list[str]) -> int:
    """The command line."""
    from dinosaur_ad.cli import main

    return main(argv)


def careless(argv: list[str]) -> int:
    """The command line of a product that replaces files by writing over them: what the attack must notice."""

    def overwrite(source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        reading = os.open(source, os.O_RDONLY, dir_fd=src_dir_fd)
        writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, dir_fd=dst_dir_fd)
        os.write(writing, os.read(reading, 10**6))
        os.close(reading)
        os.close(writing)
        os.unlink(source, dir_fd=src_dir_fd)

    for name in ("replace", "rename"):
        setattr(os, name, overwrite)
    return cli(argv)


def prepare(root: str) -> str:
    """Draw the images and teach the stores."""
    base = Path(root)
    for kind, name in enumerate("abc"):
        save(base / "images" / name, product(kind, 14, seed=1))
        save(base / "more" / name, product(kind, 5, seed=2))
        save(base / "new" / name, product(kind, 5, seed=4))
        normal = product(kind, 1, seed=3)[0]
        save(base / "fixed", [normal, spoil(normal)], stem=f"{name}-")
    store, images = base / "store", base / "images"
    options: dict[str, Any] = {"encoder": ENCODER, "preset": PRESET, "options": EncoderOptions(threads=1)}
    plain = Dinosaur(store, **options)
    plain.learn("a", images / "a")
    Dinosaur(store, bank_precision="int8", options=EncoderOptions(threads=1)).learn("b", images / "b")
    Dinosaur(store, budget="7KB", options=EncoderOptions(threads=1)).learn("c", images / "c")
    plain.learn("gone", images / "c")
    plain.forget("gone")
    plain.update("a", base / "more" / "a")
    plain.update("c", base / "more" / "c")
    plain.undo("c")
    small = Dinosaur(base / "small", budget="1MB", **options)  # all its banks are int8 codes along a basis
    for name in "ab":
        small.learn(name, images / name)
    return "ready"


def save(folder: Path, images: Sequence[Any], stem: str = "") -> None:
    """Images as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, pixels in enumerate(images):
        Image.fromarray(pixels).save(folder / f"{stem}{number:03d}.png")


def pixels(folder: Path) -> list[Any]:
    """The images of a folder as arrays, in the order of their names."""
    return [np.asarray(Image.open(path).convert("RGB")) for path in sorted(folder.iterdir())]


def opinion(inspection: Any) -> dict[str, Any]:
    """What an inspection says, without times and maps."""
    said = inspection.to_json()
    return {key: said[key] for key in JUDGED} | {"left_out": sorted(getattr(inspection, "left_out", ()))}


def portrait(store: str, fixed: str, names: Sequence[str], encoder: Encoder | None = None) -> dict[str, Any]:
    """All that a user can get out of a store: tasks, contents, results, and where undo leads from here.

    The store is not changed: undo is tried on a copy.
    """
    path = Path(store)
    detector = Dinosaur(path, encoder=encoder, options=EncoderOptions(threads=1))
    images = pixels(Path(fixed))
    said: dict[str, Any] = {"tasks": {record.name: contents(record) for record in detector.tasks()}}
    said["routed"] = [opinion(each) for each in detector.inspect(images)]
    said["asked"] = {
        name: [opinion(each) for each in detector.inspect(images, task=name)] for name in sorted(said["tasks"])
    }
    copy = path.with_name(f"{path.name}-undone")
    shutil.copytree(path, copy)
    said["undo"] = {name: _undone(copy, name) for name in names}
    shutil.rmtree(copy)
    return said


def contents(record: Any) -> dict[str, Any]:
    """What a version of a task holds, whenever it was written."""
    return {
        "files": {file: info.sha256 for file, info in record.files.items()},
        "images": len(record.manifest["images"]),
    }


def _undone(store: Path, name: str) -> list[Any]:
    """What a task becomes with each undo, until there is none left."""
    steps: list[Any] = []
    detector = Dinosaur(store)
    for _ in range(6):
        try:
            detector.undo(name)
        except DinosaurError:
            break
        steps.append(next((contents(record) for record in detector.tasks() if record.name == name), None))
    return steps


def aftermath(store: str, fixed: str, names: Sequence[str], images: str) -> dict[str, Any]:
    """What a store holds after something went wrong; then the next write and a check of every byte must work."""
    encoder = Dinosaur(store, options=EncoderOptions(threads=1)).encoder
    said = portrait(store, fixed, names, encoder)
    detector = Dinosaur(store, encoder=encoder)
    detector.learn("next", images)
    for name in detector.store.names():
        detector.store.verify(name)
    others = {record.name: contents(record) for record in Dinosaur(store).tasks() if record.name != "next"}
    return {"state": said, "others": others == said["tasks"]}
