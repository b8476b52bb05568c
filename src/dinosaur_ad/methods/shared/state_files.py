"""The learned state of a method as two files: safetensors for its tensors, JSON for everything else."""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._atomic import make_folder, move_atomic, temporary_name, write_atomic
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Method
from dinosaur_ad.methods.shared.torch_tools import import_torch

if TYPE_CHECKING:
    import torch

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class StateFiles:
    """The files of the method called ``title``, each written completely or not at all.

    >>> import tempfile
    >>> files, folder = StateFiles("DNE"), Path(tempfile.mkdtemp())
    >>> files.write(folder, {"mean": np.zeros(3)}, {"made_with": {"size": 224}})
    >>> sorted(path.name for path in folder.iterdir())
    ['dne.json', 'dne.safetensors']
    """

    title: str

    def tensors_path(self, folder: Path) -> Path:
        """The file of the tensors."""
        return folder / f"{self.title.lower()}.safetensors"

    def facts_path(self, folder: Path) -> Path:
        """The file of everything else."""
        return folder / f"{self.title.lower()}.json"

    def write(self, folder: Path, tensors: Arrays, facts: Mapping[str, Any]) -> None:
        """Write the tensors straight to the disk, without a second copy in memory, and then the JSON."""
        from safetensors.numpy import save_file

        make_folder(folder)
        temporary = temporary_name(folder)
        try:
            # asarray and not ascontiguousarray, which makes a vector of a single number.
            save_file({name: np.asarray(value, order="C") for name, value in tensors.items()}, temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            move_atomic(temporary, self.tensors_path(folder))
        finally:
            with suppress(OSError):
                temporary.unlink()
        write_atomic(self.facts_path(folder), json.dumps(facts, indent=2).encode())

    def read(self, folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """The tensors and the JSON."""
        from safetensors.numpy import load_file

        facts: dict[str, Any] = json.loads(self.facts_path(folder).read_text())
        return load_file(self.tensors_path(folder)), facts

    @contextmanager
    def reading(self, folder: Path) -> Iterator[None]:
        """Turn the errors of missing, damaged or foreign files into one sentence."""
        from safetensors import SafetensorError

        try:
            yield
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise InputError(f"There is no readable {self.title} in {folder} ({error}); learn it again.") from error


class StatefulMethod(Method):
    """A method whose learned state is kept in :class:`StateFiles`."""

    title: ClassVar[str]
    """The name of the method in messages and, in lower case, of its files."""

    @abstractmethod
    def _has_learned(self) -> bool:
        """Whether any task was learned."""

    @abstractmethod
    def _made_with(self) -> dict[str, Any]:
        """What a stored state must have in common with this method to be loaded, as JSON."""

    @abstractmethod
    def _state(self) -> tuple[Arrays, dict[str, Any]]:
        """The tensors, and everything else as JSON."""

    @abstractmethod
    def _restore(self, tensors: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Take over what :meth:`_state` returned."""

    def save(self, folder: Path) -> None:
        """Write the learned state."""
        if not self._has_learned():
            raise InputError(f"{self.title} has learned no task yet; there is nothing to save.")
        tensors, facts = self._state()
        StateFiles(self.title).write(folder, tensors, facts | {"made_with": self._made_with()})

    def load(self, folder: Path) -> None:
        """Read what :meth:`save` wrote; a state that was made with other settings or weights is refused."""
        files = StateFiles(self.title)
        with files.reading(folder):
            tensors, facts = files.read(folder)
            stored = dict(facts["made_with"])
        own = self._made_with()  # loads networks, whose errors are not those of the state
        if stored != own:
            raise InputError(
                f"The {self.title} in {folder} was made with {stored}, not with {own}; "
                "load it with those settings or learn again."
            )
        with files.reading(folder):
            self._restore(tensors, facts)

    def _require_learned(self, task: str | None = None, known: Collection[str] = ()) -> None:
        """Raise an error if nothing was learned, or if ``task`` is not among the ``known`` ones."""
        if not self._has_learned():
            raise InputError(f"{self.title} has learned no task yet; call learn first.")
        if task is not None and task not in known:
            raise InputError(f"{self.title} has not learned the task '{task}'; choose from: {', '.join(known)}.")

    def _on_device(self, tensors: Arrays) -> dict[str, torch.Tensor]:
        torch = import_torch()
        return {name: torch.from_numpy(value).to(self.workbench.device) for name, value in tensors.items()}
