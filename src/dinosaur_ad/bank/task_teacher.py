"""How a task is changed: its images are checked and learned, and a whole new version of it is written, or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dinosaur_ad.bank.bank import task_sensitivity
from dinosaur_ad.bank.bank_files import Arrays, read_tiling
from dinosaur_ad.bank.bank_set import BankSet
from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bank.changing import Wanted, change_task
from dinosaur_ad.bank.checking import promised
from dinosaur_ad.bank.gallery import Gallery, GalleryChange, read_gallery
from dinosaur_ad.bank.guard import TeachingGuard
from dinosaur_ad.bank.image_features import FeatureExtractor, Progress
from dinosaur_ad.bank.position import AUTO, Position, check_position, refuse_another, refuse_in_tiles
from dinosaur_ad.bank.recalibrating import CalibrationImages
from dinosaur_ad.bank.teaching import EARLY_COPIES, TrainingImages
from dinosaur_ad.bank.tile_choice import WantedTiles
from dinosaur_ad.bank.verdict import why_not_ready
from dinosaur_ad.errors import DinosaurError, InputError, StoreError
from dinosaur_ad.images.image_stream import Images
from dinosaur_ad.inspection import Changed, Learned, Rejected, Suspect
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import TaskRecord, TaskStore, check_task_name

# What a task's manifest records of the encoder.
MADE_BY = ("encoder", "fingerprint", "provider", "precision", "fallback")

Begin = Callable[[], tuple[BankBuilder, TaskRecord | None]]
"""Returns a builder, and the version of the task that it continues, if any."""


@dataclass(frozen=True)
class TeachingPlace:
    """What teaching needs of a detector that may have no store yet.

    ``opened`` is the store if there is one, ``made`` the store, which is made if need be. ``info`` describes the
    encoder, ``missed`` names the defects in the gallery of a task that would pass now, and ``waiting`` is what is told
    while another process is waited for, if anything.
    """

    opened: Callable[[], TaskStore | None]
    made: Callable[[], TaskStore]
    info: Callable[[], Mapping[str, Any]]
    missed: Callable[[str], tuple[str, ...]]
    waiting: Callable[[], Callable[[str], None] | None]


class TaskTeacher:
    """Changes tasks: learn, update, recalibrate, set, and the gallery. Names are as the store has them."""

    def __init__(
        self,
        preset: Preset,
        seed: int,
        features: FeatureExtractor,
        banks: BankSet,
        place: TeachingPlace,
        precision: str | None,
        budget: int | None,
    ) -> None:
        self._preset = preset
        self._seed = seed
        self._features = features
        self._banks = banks
        self._place = place
        self._precision = precision
        self._budget = budget

    def learn(
        self,
        name: str,
        images: Images,
        held_out: Images | None,
        *,
        position: str,
        tiles: WantedTiles | None,
        replace: bool,
        force: bool,
        progress: Progress | None,
        doubtful: Sequence[str | Path] | None = None,
    ) -> Learned:
        """Learn a new task, or with ``replace`` one of that name anew."""
        name, position = check_task_name(name), check_position(position, self._preset)
        if tiles is not None:
            refuse_in_tiles(position)
        if self._place.opened():
            self._refuse_conflict(name, replace)

        def begin() -> tuple[BankBuilder, TaskRecord | None]:
            kind = self._preset.calibration if held_out is None else "held-out"
            return BankBuilder(self._preset, self._seed, kind, precision=self._precision, budget=self._budget), None

        return self._teach(
            name,
            images,
            begin,
            "learn",
            progress,
            replaces=replace,
            force=force,
            held_out=held_out,
            position=position,
            tiles=tiles,
            doubtful=doubtful,
        )

    def update(
        self,
        name: str,
        images: Images,
        *,
        position: str,
        force: bool,
        progress: Progress | None,
        doubtful: Sequence[str | Path] | None = None,
        kept_out: Sequence[str | Path] = (),
    ) -> Learned:
        """Add images to a task."""
        check_position(position, self._preset)

        def begin() -> tuple[BankBuilder, TaskRecord | None]:
            record = self._store.record(name)
            refuse_another(name, position, Position.of(record))
            return self._reopened(record), record

        return self._teach(
            name,
            images,
            begin,
            "update",
            progress,
            replaces=True,
            force=force,
            doubtful=doubtful,
            kept_out=kept_out,
        )

    def recalibrate(
        self, name: str, images: Images, *, force: bool, progress: Progress | None, doubtful: bool = False
    ) -> Learned:
        """Take the threshold of a task from new images; ``doubtful``, nobody has looked at them."""
        store = self._store
        tiling = read_tiling(store.record(name))
        calibration = CalibrationImages(name, self._features, images, progress, tiling, doubtful=doubtful)
        with store.teaching(name, self._place.waiting()):
            record = store.record(name)
            builder = self._reopened(record)
            guard = self._guard(name, record)
            started = time.perf_counter()
            used = calibration.give_to(builder, guard)
            suspects: tuple[Suspect, ...] = ()
            if guard:
                suspects = guard.check(builder, force=force) if doubtful else guard.check_recalibration(force=force)
            self._write(name, builder, record.id, "recalibrate", used, replaces=True)
            seconds = calibration.seconds | {"calibrate": time.perf_counter() - started - calibration.seconds["encode"]}
            missed = self._place.missed(name)
        learned = self._learned(store.record(name), builder, calibration, used, seconds, guard, suspects, missed)
        return replace(learned, threshold_ratio=guard.threshold_ratio if guard and not doubtful else None)

    def set(self, name: str, wanted: Wanted) -> Changed:
        """Change zones, sensitivity or the smallest area of a task."""
        store = self._store
        with store.teaching(name, self._place.waiting()):
            record = store.record(name)
            task = change_task(store, record, self._preset, self._features, wanted)
            self._put(name, task.files, task.manifest, record.id, "set", {})
            missed = self._place.missed(name)
        return replace(task.changed, gallery_missed=missed)

    def change_gallery(
        self,
        name: str,
        change: Callable[[Gallery], tuple[Gallery, tuple[str, ...]]],
        rejected: tuple[Rejected, ...] = (),
    ) -> GalleryChange:
        """Write a version of a task that differs in its gallery alone."""
        store = self._store
        with store.teaching(name, self._place.waiting()), store.writer():
            record = store.record(name)
            before = read_gallery(store, record, self._preset.size)
            after, dropped = change(before)
            if after != before:
                files: dict[str, Arrays] = {file: dict(store.arrays(record, file)) for file in record.files}
                files.pop("gallery", None)
                manifest = {key: value for key, value in record.manifest.items() if key != "gallery"}
                note = {"defects": len(after)}
                store.put(name, files | after.files(), manifest | after.manifest(), action="defect", note=note)
        return GalleryChange(name, after.defects, len(set(after.defects) - set(before.defects)), dropped, rejected)

    @property
    def _store(self) -> TaskStore:
        return self._place.made()

    def _reopened(self, record: TaskRecord) -> BankBuilder:
        return BankBuilder.reopened(self._preset, self._seed, self._store, record, self._budget)

    def _teach(
        self,
        name: str,
        images: Images,
        begin: Begin,
        action: str,
        progress: Progress | None,
        replaces: bool,
        force: bool,
        held_out: Images | None = None,
        position: str = AUTO,
        tiles: WantedTiles | None = None,
        doubtful: Sequence[str | Path] | None = None,
        kept_out: Sequence[str | Path] = (),
    ) -> Learned:
        """Learn or update."""
        base_builder, _ = begin()  # raises what is wrong before anything is encoded
        training = TrainingImages(
            name, self._preset, self._features, base_builder, images, progress, position, tiles, self._place.waiting()
        )
        opened = self._place.opened()
        with opened.teaching(name, self._place.waiting()) if opened else nullcontext():
            builder, base = begin()
            guard = self._guard(name, base)
            early = base is None and held_out is None and training.copies >= EARLY_COPIES
            added = training.add_to(
                builder, held_out, guard, with_copies=not early, doubtful=doubtful, kept_out=kept_out
            )
            suspects = guard.check(builder, force=force) if guard else ()
            started = time.perf_counter()
            if added:
                self._write(name, builder, base.id if base else None, action, added, replaces)
            record, stored_in = self._store.record(name), time.perf_counter() - started
            seconds = dict(builder.seconds)
            if early:
                builder, record = self._with_copies(record, training, begin, doubtful)
                seconds = {step: spent + builder.seconds[step] for step, spent in seconds.items()}
            missed = self._place.missed(name) if added else ()
        seconds |= training.seconds | {"store": stored_in}
        return self._learned(record, builder, training, added, seconds, guard, suspects, missed)

    def _with_copies(
        self, record: TaskRecord, training: TrainingImages, begin: Begin, doubtful: Sequence[str | Path] | None
    ) -> tuple[BankBuilder, TaskRecord]:
        """Learn moved copies of the images of a task that was just learned without them."""
        if waiting := self._place.waiting():
            waiting(
                f"'{record.name}' can be used already; {training.copies} moved copies of its images are learned now, "
                "which make it sharper and allow for small movement."
            )
        builder, _ = begin()
        training.add_to(builder, None, doubtful=doubtful)
        self._write(record.name, builder, record.id, "copies", training.copies, replaces=True)
        return builder, self._store.record(record.name)

    def _learned(
        self,
        record: TaskRecord,
        builder: BankBuilder,
        images: TrainingImages | CalibrationImages,
        added: int,
        seconds: dict[str, float],
        guard: TeachingGuard | None,
        suspects: tuple[Suspect, ...],
        missed: tuple[str, ...],
    ) -> Learned:
        """What there is to say of a task that was just changed."""
        scores = builder.calibration.scores
        threshold, rate = task_sensitivity(self._preset, builder.settings, scores)
        promise = promised(self._preset, scores, threshold, rate)
        return Learned(
            task=record.name,
            images=added,
            total_images=len(builder.images),
            members=builder.members,
            bytes=sum(info.bytes for info in record.files.values()),
            rejected=tuple(images.rejected),
            seconds=seconds,
            duplicates=tuple(images.duplicates),
            not_ready=why_not_ready(
                record.name,
                threshold,
                builder.control_scores,
                builder.headroom,
                by_hand=builder.settings.threshold is not None,
            ),
            threshold=threshold,
            threshold_before=guard.threshold_before if guard else None,
            suspects=suspects,
            calibrated=promise.calibrated,
            promised_rate=promise.rate,
            images_needed=promise.images_needed,
            smallest_defect=1 / (builder.tiling.grid if builder.tiling else self._features.encoder.grid)[0],
            smallest_width=1 / (builder.tiling.grid if builder.tiling else self._features.encoder.grid)[1],
            photo_size=images.photo_size,
            gallery_missed=missed,
            position=str(builder.position or ""),
            near_duplicates=tuple(guard.near_duplicates) if guard else (),
        )

    def _guard(self, name: str, record: TaskRecord | None) -> TeachingGuard | None:
        """The checks of new images; None with in-sample calibration, the procedure of the paper."""
        if self._preset.calibration == "in-sample":
            return None
        return TeachingGuard(self._preset, self._features, self._banks, self._place.opened(), name, record)

    def _write(
        self, name: str, builder: BankBuilder, base: str | None, action: str, added: int, replaces: bool
    ) -> None:
        """Store a task; ``base`` is the version that it continues, None for a new one."""
        manifest = builder.manifest() | {"encoder": {key: self._place.info()[key] for key in MADE_BY}}
        with self._store.writer():  # no other process may change the store between the checks and the writing
            self._refuse_conflict(name, replaces)
            now = self._current(name)
            gallery = read_gallery(self._store, now, self._preset.size) if now else Gallery()
            files = builder.files() | gallery.files()
            self._put(name, files, manifest | gallery.manifest(), base, action, {"images": added})

    def _put(
        self,
        name: str,
        files: Mapping[str, Arrays],
        manifest: Mapping[str, Any],
        base: str | None,
        action: str,
        note: Mapping[str, int],
    ) -> None:
        """Write a version of a task, unless the version ``base`` that it continues is no longer the current one."""
        with self._store.writer():
            now = self._current(name)
            if base is not None and (now is None or now.id != base):
                raise StoreError(
                    f"The task '{name}' was forgotten, undone or learned anew in the meantime; nothing was written, "
                    "try again."
                )
            self._store.put(name, files, manifest, action=action, note=note)

    def _current(self, name: str) -> TaskRecord | None:
        """The version of a task that is there now; None if there is none or it cannot be read."""
        try:
            return self._store.record(name)
        except DinosaurError:
            return None

    def _refuse_conflict(self, name: str, replaces: bool) -> None:
        """Refuse to write a new task over one that must not be replaced."""
        if not replaces and name in self._store:
            raise InputError(
                f"There is a task '{name}' already; add images to it with update, learn it anew with replace "
                "(--replace), or choose another name."
            )
