"""The file of ``dinosaur bench tune``: everything that was measured, and what was chosen from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dinosaur_ad.bench.cell import OtherConfigurationError
from dinosaur_ad.bench.foreign_results import LARGEST_DOCUMENT, listed, number, read_document, record, text
from dinosaur_ad.bench.places import Place, open_place
from dinosaur_ad.bench.tune_search import VARIED, Measured, ProductChoice, TuneSettings
from dinosaur_ad.encoders import EncoderSpec
from dinosaur_ad.errors import InputError
from dinosaur_ad.presets import DEFAULT

FORMAT, KIND = 1, "tune"


class TuneFile(NamedTuple):
    """Where the measurements are kept."""

    place: Place
    name: str

    @classmethod
    def at(cls, address: str) -> TuneFile:
        """The file at a path or an fsspec address.

        >>> str(TuneFile.at("runs/tune.json"))
        'runs/tune.json'
        """
        if "://" in address:
            folder, _, name = address.rpartition("/")
            return cls(open_place(folder), name)
        return cls(open_place(Path(address).parent), Path(address).name)

    def __str__(self) -> str:
        return f"{self.place}/{self.name}"


@dataclass
class TuneRecord:
    """What was measured so far, by settings and name of the task (``SCENARIO/TASK``); saved after every task.

    ``made_with`` is what must be the same when the command goes on: encoder, data, seed, start and space.
    """

    file: TuneFile
    made_with: dict[str, Any]
    environment: dict[str, Any]
    measured: dict[TuneSettings, dict[str, Measured]] = field(default_factory=dict)

    @classmethod
    def open(cls, file: TuneFile, made_with: Mapping[str, Any], environment: dict[str, Any]) -> TuneRecord:
        """The record in the file, or a new one.

        :raises OtherConfigurationError: the file was made otherwise.
        """
        wanted = json.loads(json.dumps(made_with))  # as it reads back
        if not file.place.has(file.name):
            return cls(file, wanted, environment)
        try:
            document = read_document(file.place.read(file.name, LARGEST_DOCUMENT))
            if (document["format"], document["kind"]) != (FORMAT, KIND):
                raise ValueError("it is none of: dinosaur bench tune")
            found = record(document["made_with"])
            measured = dict(map(_read_entry, listed(document["measured"], record)))
            environment = record(document["environment"])
        except (KeyError, TypeError, ValueError, OSError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise InputError(f"'{file}' cannot be continued ({what}); remove it, or choose another --out.") from error
        different = sorted(key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key))
        if different:
            raise OtherConfigurationError(
                f"'{file}' was made with another configuration (different: {', '.join(different)}); choose another "
                "--out, or remove that file."
            )
        return cls(file, wanted, environment, measured)

    def add(self, settings: TuneSettings, task: str, found: Measured) -> None:
        """Write one more measurement."""
        self.measured.setdefault(settings, {})[task] = found
        self.save()

    def save(self, chosen: Mapping[str, Any] | None = None) -> None:
        """Write the file, whole or not at all; ``chosen`` is what follows from the measurements."""
        document = {"format": FORMAT, "kind": KIND, "made_with": self.made_with, "environment": self.environment}
        entries = [
            {"settings": settings.to_json(), "tasks": {task: list(found) for task, found in tasks.items()}}
            for settings, tasks in self.measured.items()
        ]
        document |= {"measured": entries} | dict(chosen or {})
        self.file.place.write(self.file.name, (json.dumps(document, indent=1) + "\n").encode())


def _read_entry(entry: Mapping[str, Any]) -> tuple[TuneSettings, dict[str, Measured]]:
    settings = TuneSettings.from_json(record(entry["settings"]))
    hash(settings)  # a TypeError for what no setting is
    return settings, {
        text(task): Measured(*listed(found, number, len(Measured._fields)))
        for task, found in record(entry["tasks"]).items()
    }


@dataclass(frozen=True)
class TuneResult:
    """What was chosen: for each product without it, and over all products."""

    encoder: EncoderSpec
    start: TuneSettings
    products: tuple[ProductChoice, ...]
    settings: TuneSettings

    @property
    def means(self) -> tuple[Measured, Measured, Measured]:
        """Means over the products: of the settings chosen without each, of the start, of the best by hindsight."""
        kinds = ([each.chosen for each in self.products], [each.start for each in self.products])
        chosen, start, best = (
            Measured(*np.mean(np.asarray(kind), axis=0).tolist())
            for kind in (*kinds, [each.best for each in self.products])
        )
        return chosen, start, best

    @property
    def carries_over(self) -> bool:
        """Whether what was chosen without a product is in the mean no worse on it than what the search started from."""
        chosen, start, _ = self.means
        return chosen.auroc >= start.auroc

    @property
    def advised(self) -> TuneSettings:
        """The settings chosen over all products if such a choice carries over, and those of the start otherwise."""
        return self.settings if self.carries_over else self.start

    def overrides(self) -> dict[str, Any]:
        """The settings that are advised, as far as the preset ``default`` differs from them."""
        usual, chosen = DEFAULT.to_json(), self.advised.to_json()
        changed = {name: chosen[name] for name in VARIED if chosen[name] != usual[name]}
        return {name: value for name, value in self.encoder.preset.items() if name not in VARIED} | changed

    def toml(self) -> str:
        """:meth:`overrides` as the table that the encoder's entry in ``registry.toml`` takes."""
        lines = (f"{name} = {json.dumps(value)}" for name, value in self.overrides().items())
        return "\n".join((f"[{self.encoder.name}.preset]", *lines))

    def to_json(self) -> dict[str, Any]:
        """What the file says beside the measurements."""
        return {
            "products": [
                {
                    "product": each.product,
                    "settings": each.settings.to_json(),
                    "chosen": each.chosen._asdict(),
                    "start": each.start._asdict(),
                    "best_settings": each.best_settings.to_json(),
                    "best": each.best._asdict(),
                }
                for each in self.products
            ],
            "mean": dict(zip(("chosen", "start", "best"), (mean._asdict() for mean in self.means), strict=True)),
            "settings": self.settings.to_json(),
            "preset": self.overrides(),
        }
