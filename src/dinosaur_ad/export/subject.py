"""What is exported, whatever the format: which weights, for which preset, and of which task in which store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dinosaur_ad.bank.bank_files import open_bank
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.encoders import DEFAULT_ENCODER
from dinosaur_ad.encoders.base import fingerprint
from dinosaur_ad.encoders.registry import token_encoder
from dinosaur_ad.encoders.weights.local import Weights, ensure, from_file
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.export.gate import Floats, Scorer
from dinosaur_ad.presets import Preset, get_preset
from dinosaur_ad.store import Store


@dataclass(frozen=True)
class Subject:
    """What is exported: weights and preset, and where there is a store, perhaps one of its tasks."""

    weights: Weights
    preset: Preset
    store: Store | None
    task: str | None

    @property
    def fingerprint(self) -> str:
        """That of the encoder, as stores know it."""
        return fingerprint(token_encoder(self.weights.spec), self.preset.layers, self.preset.size, self.weights.sha256)

    def scorer(self) -> Scorer | None:
        """Image scores by the stored bank of the task, if one was named."""
        if self.store is None or self.task is None:
            return None
        bank = open_bank(self.store, self.store.record(self.task))

        def score(features_NHWC: Floats) -> Floats:
            scores_N: Floats = pool(bank.distances(features_NHWC, self.preset.radius), self.preset.top)
            return scores_N

        return score


def find_subject(
    store: str | Path | None,
    encoder: str | None,
    preset: str | Preset | None,
    weights: str | Path | None,
    task: str | None,
    with_bank: bool,
) -> Subject:
    """What the options of an export mean; a store has its own encoder and preset."""
    if store is None:
        if with_bank or task:
            raise InputError("A task and its bank are in a store; name it with --store.")
        return Subject(find_weights(encoder or DEFAULT_ENCODER, weights), get_preset(preset or "default"), None, None)
    if encoder is not None or preset is not None:
        raise InputError("A store has its own encoder and preset; leave out --encoder and --preset, or --store.")
    opened = Store.open(store)
    names = opened.names()
    if task is None and len(names) == 1:
        task = names[0]
    if with_bank and task is None:
        raise InputError(
            f"Which bank shall go into the graph? Name its task with --task: {', '.join(names) or 'none yet'}."
        )
    if task is not None:
        opened.record(task)
    header = opened.header
    subject = Subject(
        find_weights(header["encoder"]["encoder"], weights), Preset.from_json(header["preset"]), opened, task
    )
    if subject.fingerprint != header["encoder"]["fingerprint"]:
        raise EncoderError(
            f"The store {store} was made with other weights of '{header['encoder']['encoder']}' than are here; give "
            "those with --weights."
        )
    return subject


def find_weights(name: str, path: str | Path | None) -> Weights:
    """The weights of an encoder, from the cache or from a file."""
    return ensure(name) if path is None else from_file(name, path)
