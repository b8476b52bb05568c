"""What a detector stands on: a store, an encoder, a preset and a seed, which must belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.encoders import DEFAULT_ENCODER, Encoder, load_encoder
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.errors import InputError, StoreError
from dinosaur_ad.presets import Preset, as_shipped, preset_for
from dinosaur_ad.store import MemoryStore, Store, TaskRecord, TaskStore


class Basis:
    """The store at ``path`` (None: in memory) with its encoder and preset; what is not named comes from the store.

    The encoder is loaded when first needed, and the store is made when first needed (:attr:`store`). ``opened`` is the
    store if there is one by now.

    :raises StoreError: the store was made with another encoder or preset.
    :raises InputError: the encoder does not fit the preset.
    """

    def __init__(
        self,
        store: str | Path | Store | None,
        encoder: str | Encoder | None,
        options: EncoderOptions,
        preset: str | Preset | None,
        seed: int,
    ) -> None:
        self.opened: TaskStore | None = store if isinstance(store, Store) or store is None else Store.find(store)
        self.path = store.path if isinstance(store, Store) else None if store is None else Path(store)
        self.options = options
        header = self.opened.header if self.opened else {}
        stored_name = header["encoder"]["encoder"] if header else None
        asked_name = encoder.name if isinstance(encoder, Encoder) else encoder
        self.encoder_name: str = asked_name or stored_name or DEFAULT_ENCODER
        if header:
            self.preset = Preset.from_json(header["preset"])
        elif isinstance(encoder, Encoder):  # whether it fits is checked with its own blocks and size
            self.preset = as_shipped(preset or "default", self.encoder_name)
        else:
            self.preset = preset_for(preset or "default", self.encoder_name)
        if header and preset is not None and (asked := as_shipped(preset, stored_name or "")) != self.preset:
            raise StoreError(
                f"The store {self.path} was made with the preset '{self.preset.name}', not with "
                f"'{asked.name}'; leave the preset out, or start a new store."
            )
        if stored_name and asked_name and asked_name != stored_name:
            raise StoreError(
                f"The store {self.path} was made with the encoder '{stored_name}' and cannot be used with "
                f"'{asked_name}'; leave the encoder out, or start a new store."
            )
        self.seed = int(header.get("seed", seed))
        self.features = FeatureExtractor(self.preset, self._load_encoder)
        self._given = self._checked(encoder) if isinstance(encoder, Encoder) else None

    @property
    def store(self) -> TaskStore:
        """Where tasks are kept; a folder that is not there yet is made now."""
        if self.opened is None:
            info = self.features.encoder.info()
            header: dict[str, Any] = {"encoder": info, "preset": self.preset.to_json(), "seed": self.seed}
            if self.path is None:
                self.opened = MemoryStore(header)
            else:
                self.opened = Store.create(self.path, header, exist_ok=True)
                if _settings(self.opened.header) != _settings(MemoryStore(header).header):  # as it reads back from JSON
                    raise StoreError(
                        f"Another process just made the store {self.path} with other settings; open it again."
                    )
        return self.opened

    def store_of(self, name: str) -> TaskStore:
        """The store, in which there may be a task of that name."""
        if self.opened is None:
            raise InputError(f"There is no task '{name}': nothing has been taught yet; start with learn.")
        return self.opened

    def record(self, name: str) -> TaskRecord:
        """The record of a task; an error if there is none of that name."""
        return self.store_of(name).record(name)

    def _load_encoder(self) -> Encoder:
        if self._given is not None:
            return self._given
        preset, options = self.preset, asdict(self.options)
        return self._same_weights(load_encoder(self.encoder_name, layers=preset.layers, size=preset.size, **options))

    def _checked(self, encoder: Encoder) -> Encoder:
        """An encoder that was given, if its tokens fit the preset and the store's banks; an error otherwise."""
        if encoder.layers != self.preset.layers or encoder.size != self.preset.size:
            raise InputError(
                f"The encoder gives layers {encoder.layers} at {encoder.size} px, but the preset '{self.preset.name}' "
                f"wants {self.preset.layers} at {self.preset.size} px; load it with those."
            )
        return self._same_weights(encoder)

    def _same_weights(self, encoder: Encoder) -> Encoder:
        stored = self.opened.header["encoder"]["fingerprint"] if self.opened else encoder.fingerprint
        if encoder.fingerprint != stored:
            raise StoreError(
                f"The store {self.path} was made with other weights of '{encoder.name}' (fingerprint {stored}, here "
                f"{encoder.fingerprint}); use those weights, or start a new store."
            )
        return encoder


def _settings(header: Mapping[str, Any]) -> tuple[Any, ...]:
    """The settings in a store's header that must be equal for two processes that create it; not how encoders run."""
    return header["encoder"]["encoder"], header["encoder"]["fingerprint"], header["preset"], header["seed"]
