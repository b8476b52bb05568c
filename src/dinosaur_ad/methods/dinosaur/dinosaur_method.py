"""DINOSaur as the benchmark sees it: the banks, the routing and the thresholds of the detector that ships.

What it is: a frozen ViT; at every place of its patch grid a greedy coreset of the normal patches seen there, one bank a
task; an image is sent to the banks whose prototypes are near, its patches are compared with what was seen around their
place, and the bank with the lowest score decides.

| | paper | ours, ``dinosaur`` | ours, ``dinosaur:paper`` |
|---|---|---|---|
| encoder | DINOv3 ViT-S/16 | any registered one; the result says which | the same |
| features | final LayerNorm, plain | blocks 4-8, length one, averaged | final LayerNorm, plain |
| image | 224 px | 336 px, its brightness matched to the product's | 224 px |
| memory | max(20, 10 %) a place, float32 | max(20, 40 %), moved copies too, int8, 8 MB | max(20, 10 %), float32 |
| neighbourhood | radius 3 | radius 1 | radius 3 |
| image score | the largest patch distance | two readings, fused (places; windows of 3 x 3) | the largest |
| routing | nearest CLS prototype | up to 5 near prototypes, banks decide | nearest CLS prototype |
| threshold of its own | 97.5 % of its own training scores | 97.5 % of scores of unseen normals | as the paper |

Every difference of the default has its measurement in docs/presets.md. Nothing is trained and nothing replayed.
Scores under a bank are cached, because later tasks cannot change them; only new banks are compared with again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from dinosaur_ad.bank.bank_set import (
    BankSet,
    TaskScore,
    TaskScores,
    most_normal,
    to_compare_exactly,
)
from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bank.learning_block import Copies
from dinosaur_ad.bank.task_view import TaskView
from dinosaur_ad.bank.teaching import copy_plan, learn_at_once
from dinosaur_ad.core.exposure import Exposure, usual_exposure
from dinosaur_ad.encoders import DEFAULT_ENCODER, Encoder, load_encoder
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.methods.contract import Config, Floats, Lesson, Method, Parameters, Photo, Scores, Workbench
from dinosaur_ad.methods.dinosaur.photo_features import PhotoFeatures
from dinosaur_ad.methods.method_registry import register
from dinosaur_ad.presets import Preset, preset_for
from dinosaur_ad.store import MemoryStore, Store, copy_tasks

# Images whose features are held at a time while scoring: 50 MB on a CPU; a GPU is faster with more at once.
SCORE_AT_ONCE, SCORE_AT_ONCE_GPU = 128, 1024
BANK_CACHE_BYTES = 4 * 2**30


@dataclass(frozen=True)
class DinosaurConfig(Config):
    """The preset, and what is to differ from it (``none``: nothing)."""

    preset: str = "default"
    encoder: str = DEFAULT_ENCODER
    weights: str = field(default="", metadata={"place": True})
    layers: tuple[int | Literal["final"], ...] | None = None
    size: int | None = None
    ratio: float | None = None
    minimum: int | None = None
    radius: int | None = None
    top: float | None = None
    limit: int | None = None
    margin: float | None = None
    copies: int | None = None
    budget: int | None = None
    exposure: bool | None = None
    readings: tuple[str, ...] | None = None
    map_softness: float | None = None
    map_closing: float | None = None
    map_relative: float | None = None
    folds: int | None = None
    provider: str = field(default="", metadata={"place": True})
    precision: str = field(default="", metadata={"place": True})

    def __post_init__(self) -> None:
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise InputError(f"DINOSaur's ratio must be above 0 and at most 1, got {self.ratio}.")
        if self.top is not None and not 0 <= self.top <= 1:
            raise InputError(f"DINOSaur's top must lie between 0 and 1, got {self.top}.")
        for name in ("map_closing", "map_relative"):
            if not 0 <= (getattr(self, name) or 0) <= 1:
                raise InputError(f"DINOSaur's {name} must lie between 0 and 1, got {getattr(self, name)}.")
        least_of = {"size": 1, "minimum": 1, "radius": 0, "limit": 1, "margin": 1, "map_softness": 1, "folds": 0}
        for name, least in least_of.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"DINOSaur's {name} must be at least {least}, got {value}.")

    def to_preset(self) -> Preset:
        """The settings of the detector; without the reserve, which only a later update would read."""
        own = {entry.name for entry in fields(self)} & {entry.name for entry in fields(Preset)}
        changes = {name: value for name in own if (value := getattr(self, name)) is not None}
        changes.pop("precision", None)  # here it is the encoder's, there the bank's
        return preset_for(self.preset, self.encoder, {"reserve": 0.0} | changes)


# docs/methods/dinosaur.md says how: nine sets, and `fast` by looking at the same test images.
_CHOSEN_ON = ("mvtec-ad", "mvtec-ad-bottle", "mvtec-loco", "mtd-color", "mtd-blur", "mtd-geo")


@register(
    "dinosaur",
    variants={
        "default": DinosaurConfig(),
        "fast": DinosaurConfig(preset="fast"),
        "best": DinosaurConfig(preset="best"),
        "paper": DinosaurConfig(preset="paper"),
    },
    summary="frozen ViT, one spatial coreset memory a task, routing by prototypes; nothing is trained",
    tiny={"encoder": "tiny-dinov2", "layers": (0, 1), "size": 70},
    chosen_on={
        "default": _CHOSEN_ON,
        "best": _CHOSEN_ON,
        "fast": ("mvtec-ad", "mvtec-ad-bottle", "mtd-color", "mtd-blur", "mtd-geo", "mtd-geo-literal"),
    },
)
class DinosaurMethod(Method):
    """The detector's banks, learned and scored through the benchmark's contract."""

    routes = True

    def __init__(self, config: DinosaurConfig, workbench: Workbench) -> None:
        super().__init__(config, workbench)
        self.preset = config.to_preset()
        self.encoder = _load(config, self.preset, workbench.device)
        self._restart()

    def _restart(self) -> None:
        header: dict[str, Any] = {"encoder": self.encoder.info(), "preset": self.preset.to_json()}
        self._store = MemoryStore(header)
        self._features = PhotoFeatures(self.preset, self.encoder, self.workbench)
        self._banks = BankSet(self.preset, BANK_CACHE_BYTES, self._features.put)
        self._scores: dict[tuple[str, str, Exposure | None], TaskScore] = {}

    def learn(self, lesson: Lesson) -> None:
        """Make the task's bank, prototype and threshold, as ``Dinosaur.learn`` does."""
        if len(lesson.train) < 2:
            raise InputError(
                f"Learning '{lesson.task}' needs at least 2 normal images, because the threshold comes from normals "
                f"that the memory has not seen, but there is {len(lesson.train)}."
            )
        held_out = lesson.held_out if self.preset.calibration == "unseen" else ()
        builder = BankBuilder(self.preset, self.workbench.seed, "held-out" if held_out else self.preset.calibration)
        if self.preset.exposure:
            builder.exposure = usual_exposure(self._features.exposures(lesson.train))
        for block in batched(lesson.train, learn_at_once(self.encoder, self.preset)):
            self._add(builder, block)
        if held_out:
            builder.calibrate(self._features.put(self._features.of(held_out, builder.exposure)[1]))
        files = {name: builder.files()[name] for name in ("bank", "prototype")}
        self._store.put(lesson.task, files, builder.manifest(), action="learn", note={"images": len(lesson.train)})

    def _add(self, builder: BankBuilder, photos: Sequence[Photo]) -> None:
        """Learn from a block of photos and moved copies of them."""
        cls_NC, patches_NHWC = self._features.of(photos, builder.exposure)
        features = self._features.for_builder(photos, cls_NC, patches_NHWC)
        plan = copy_plan(len(photos), self.preset, builder.copies)
        copies = None
        if plan:
            turns = [[n for turn, n in plan if turn == wanted] for wanted in range(plan[-1][0] + 1)]
            moved = [
                self._features.of([photos[n] for n in of], builder.exposure, turn)[1] for turn, of in enumerate(turns)
            ]
            copies = Copies(self._features.put(np.concatenate(moved)), np.asarray([n for of in turns for n in of]))
        builder.add(features._replace(patches_NHWC=self._features.put(patches_NHWC)), copies)

    def score(self, photos: Sequence[Photo], task: str | None = None) -> Scores:
        """Compare with the banks that routing chooses, or with the one of ``task``."""
        scores: list[TaskScores] = []
        for group in batched(photos, SCORE_AT_ONCE if self.workbench.device == "cpu" else SCORE_AT_ONCE_GPU):
            routed = self._told(group, task) if task else self._route(group)
            scores += self._compared(group, routed)
        routes = tuple(map(most_normal, scores))
        chosen = [each[name] for each, name in zip(scores, routes, strict=True)]
        banks = {name: each.bank for name, each in zip(routes, chosen, strict=True)}
        limits = {name: bank.threshold(self.preset, self.preset.false_alarms) for name, bank in banks.items()}
        return Scores(
            image=np.asarray([each.score for each in chosen], np.float32),
            maps=np.stack([each.map_HW for each in chosen]),
            routes=routes,
            thresholds=np.asarray([limits[name] for name in routes], np.float32),
        )

    def _told(self, photos: Sequence[Photo], task: str) -> _Routed:
        """All photos to be compared with one task."""
        view = self._view()
        return _Routed([[task]] * len(photos), [view.exposures[view.names.index(task)]] * len(photos), None)

    def _route(self, photos: Sequence[Photo]) -> _Routed:
        """The tasks to compare each photo with, as ``Dinosaur.inspect`` finds them."""
        view = self._view()
        exposures: list[Exposure | None] = [None] * len(photos)
        if self.preset.exposure:
            exposures = self._banks.exposures(view, self._features.thumbnails(photos))
        patches_NHWC, descriptor_NC = self._features.described(photos, exposures)
        if len(set(view.exposures)) > 1:
            better = self._banks.nearest_exposures(view, descriptor_NC)
            if better != exposures:
                exposures = better
                patches_NHWC, descriptor_NC = self._features.described(photos, exposures)
        return _Routed(self._banks.route(view, descriptor_NC), exposures, patches_NHWC)

    def _compared(self, photos: Sequence[Photo], routed: _Routed) -> list[TaskScores]:
        """The scores of every photo under its candidate tasks: first at the exposure that routing saw it at, and of the
        tasks that may change the verdict, at their own."""
        view = self._view()
        own = dict(zip(view.names, view.exposures, strict=True))
        scores: list[TaskScores] = [{} for _ in photos]
        exact: list[set[str]] = [set() for _ in photos]
        wanted, rough = routed.candidates, True
        while any(wanted):
            seen_at = [
                {name: routed.exposures[n] if rough else own[name] for name in names} for n, names in enumerate(wanted)
            ]
            self._fill_scores(photos, routed, seen_at)
            for n, exposures in enumerate(seen_at):
                scores[n] |= {name: self._scores[photos[n].key, name, at] for name, at in exposures.items()}
                exact[n] |= {name for name, at in exposures.items() if at == own[name]}
            wanted = [to_compare_exactly(*each, self.preset) for each in zip(scores, exact, strict=True)]
            rough = False
        return scores

    def _fill_scores(
        self, photos: Sequence[Photo], routed: _Routed, wanted: Sequence[Mapping[str, Exposure | None]]
    ) -> None:
        """Fill the cache with the scores of each photo under some tasks, at an exposure each."""
        view = self._view()
        missing = [
            {name: at for name, at in exposures.items() if (photo.key, name, at) not in self._scores}
            for photo, exposures in zip(photos, wanted, strict=True)
        ]
        for exposure in dict.fromkeys(at for exposures in missing for at in exposures.values()):
            own = [[name for name, at in exposures.items() if at == exposure] for exposures in missing]
            rows = [n for n, names in enumerate(own) if names]
            known = {}  # what routing has just computed at this exposure is not computed again
            if routed.patches_NHWC is not None:
                known = {k: routed.patches_NHWC[n] for k, n in enumerate(rows) if routed.exposures[n] == exposure}
            patches_NHWC = self._features.on_device(exposure, [photos[n] for n in rows], known)
            found = self._banks.score(self._store, view, patches_NHWC, [own[n] for n in rows])
            for n, scores in zip(rows, found, strict=True):
                self._scores |= {(photos[n].key, name, exposure): score for name, score in scores.items()}

    def _view(self) -> TaskView:
        """All tasks; it stays the same until the next lesson, because only this object changes the store."""
        return self._banks.view(self._store)

    # --- keeping ---

    def save(self, folder: Path) -> None:
        """Write a store, as the detector keeps it."""
        copy_tasks(self._store, Store.create(folder / "store", self._store.header))

    def load(self, folder: Path) -> None:
        """Read such a store into memory."""
        self._restart()
        copy_tasks(Store.open(folder / "store"), self._store)

    def storage_bytes(self) -> int:
        """What inspecting reads: banks with their thresholds, and prototypes."""
        records = map(self._store.record, self._store.names())
        return sum(info.bytes for record in records for info in record.files.values())

    def parameters(self) -> Parameters:
        """Those of the encoder; none of them ever changes."""
        return Parameters(total=self.encoder.spec.parameters, trainable=0)

    def info(self) -> dict[str, Any]:
        """The encoder's info without its threads, which change no result, and the preset in full."""
        encoder = {key: value for key, value in self.encoder.info().items() if key != "threads"}
        return encoder | {"preset": self.preset.to_json(), "scoring": f"float32 on {self.workbench.device}"}


class _Routed(NamedTuple):
    """Photos with the tasks to compare each with, the exposure each is encoded with, and their patches if at hand."""

    candidates: list[list[str]]
    exposures: Sequence[Exposure | None]
    patches_NHWC: Floats | None


def _load(config: DinosaurConfig, preset: Preset, device: str) -> Encoder:
    encoder = load_encoder(
        config.encoder,
        layers=preset.layers,
        size=preset.size,
        provider=(config.provider or None) if device == "cpu" else "torch",
        precision=config.precision or None,
        strict=True,
        device=device,
        weights=config.weights or None,
    )
    if device != "cpu":
        encoder.batch_size = 64
    return encoder
