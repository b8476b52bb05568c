"""The two files in which a method keeps what it learned: safetensors for its tensors, JSON for everything else.

Both are written whole or not at all. What a missing, damaged or foreign file raises while it is read becomes one
sentence, and so does a state that was made with other settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.errors import InputError


@dataclass(frozen=True)
class StateFiles:
    """The files of ``method``, which is its name as sentences have it.

    >>> import tempfile
    >>> files, folder = StateFiles("DNE"), Path(tempfile.mkdtemp())
    >>> files.write(folder, {"mean": np.zeros(3)}, {"made_with": {"size": 224}})
    >>> sorted(path.name for path in folder.iterdir())
    ['dne.json', 'dne.safetensors']
    >>> with files.reading(folder):
    ...     facts = files.facts(folder)
    >>> files.refuse_other(folder, facts["made_with"], {"size": 224})
    """

    method: str

    def tensors_path(self, folder: Path) -> Path:
        """Where the tensors are."""
        return folder / f"{self.method.lower()}.safetensors"

    def facts_path(self, folder: Path) -> Path:
        """Where everything else is."""
        return folder / f"{self.method.lower()}.json"

    # --- writing ---

    def write(self, folder: Path, tensors: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Write both files."""
        from safetensors.numpy import save

        # asarray and not ascontiguousarray, which makes a vector of a single number.
        content = save({name: np.asarray(value, order="C") for name, value in tensors.items()})
        write_atomic(self.tensors_path(folder), content)
        self.write_facts(folder, facts)

    def write_facts(self, folder: Path, facts: Mapping[str, Any]) -> None:
        """Write the JSON alone; after the tensors, whose presence it vouches for."""
        write_atomic(self.facts_path(folder), json.dumps(facts, indent=2).encode())

    def nothing_to_save(self) -> InputError:
        """What to raise when there is nothing to write yet."""
        return InputError(f"{self.method} has learned no task yet; there is nothing to save.")

    # --- reading ---

    @contextmanager
    def reading(self, folder: Path) -> Iterator[None]:
        """Everything that takes the files apart belongs inside; nothing that builds a network does."""
        from safetensors import SafetensorError

        try:
            yield
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise InputError(f"There is no readable {self.method} in {folder} ({error}); learn it again.") from error

    def facts(self, folder: Path) -> dict[str, Any]:
        """Read the JSON."""
        facts: dict[str, Any] = json.loads(self.facts_path(folder).read_text())
        return facts

    def refuse_other(self, folder: Path, stored: object, own: object) -> None:
        """Raise unless what a state was made with is what this method is made with."""
        if stored != own:
            raise InputError(
                f"The {self.method} in {folder} was made with {stored}, not with {own}; "
                "load it with those settings or learn again."
            )
