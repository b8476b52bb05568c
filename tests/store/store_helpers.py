"""A store with tiny banks, and what a user can get out of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dinosaur_ad.presets import DEFAULT
from dinosaur_ad.store import Store, TaskStore
from dinosaur_ad.store.codec import seal, unseal

HEADER: dict[str, Any] = {
    "encoder": {"encoder": "tiny-dinov2", "fingerprint": "7375cbc137a12318"},
    "preset": DEFAULT.to_json(),
    "seed": 0,
}


def bank(value: float) -> dict[str, dict[str, np.ndarray]]:
    return {"bank": {"patches": np.full((2, 6), value, np.float32), "count": np.array(3, np.int32)}}


def teach(target: TaskStore, name: str, value: float, action: str = "learn") -> None:
    target.put(name, bank(value), manifest(value), action=action, note={"images": 5})


def reseal(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a document as somebody would who knows how its hash is made."""
    document, _ = unseal(path.read_bytes())
    change(document)
    path.write_bytes(seal(document))


def manifest(value: float) -> dict[str, Any]:
    return {"value": value, "images": ["1.png"], "members": 2}


def value_of(target: TaskStore, name: str) -> float:
    """The value a task was taught, after checking that its manifest, arrays and hashes agree on it."""
    record = target.record(name)
    target.verify(name)
    patches = target.arrays(record, "bank")["patches"]
    assert np.all(patches == record.manifest["value"])
    return float(patches[0, 0])


def contents(target: TaskStore) -> dict[str, float]:
    return {name: value_of(target, name) for name in target.names()}


def undo_steps(target: TaskStore) -> dict[str, list[int]]:
    """The versions that each task has or can get back, those of forgotten tasks included; 0 is "forgotten"."""
    steps = {}
    for name, pointer in target._pointers().items():
        assert pointer is not None, f"the pointer of {name} is damaged"
        steps[name] = [state.version for state in pointer.states]
    return steps


def redo_steps(target: TaskStore) -> dict[str, list[int]]:
    """The versions that redo can go to, of every task; 0 is "forgotten"."""
    return {name: [state.version for state in pointer.redo] for name, pointer in target._pointers().items() if pointer}


def expected_files(target: Store) -> set[str]:
    """Every file that a pointer of the store leads to; anything else would be rubbish."""
    files = set()
    for name, versions in undo_steps(target).items():
        folders = {f"{name}/v{version:04d}" for version in (*versions, *redo_steps(target)[name]) if version}
        set_aside = not (target.path / "tasks" / name / "task.json").exists()
        files |= {f"{name}/{'forgotten.json' if set_aside else 'task.json'}"}
        files |= {f"{folder}/{file}" for folder in folders for file in ("manifest.json", "bank.safetensors")}
    return files


def actual_files(target: Store) -> set[str]:
    root = target.path / "tasks"
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()}
