"""DINOSaur: learn a product from normal images, inspect images, update, forget. The product in one file.

    image -> tokens -> route -> patch distances -> score -> verdict

The steps are functions of :mod:`dinosaur_ad.core`. :mod:`dinosaur_ad.images` reads images, :mod:`dinosaur_ad.bank` has
the banks, and :mod:`dinosaur_ad.store` keeps them on disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad._text import printable
from dinosaur_ad.bank.bank_files import read_bank
from dinosaur_ad.bank.bank_set import BankSet, nothing_learned
from dinosaur_ad.bank.budget import check_precision, parse_bytes
from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bank.guard import TeachingGuard
from dinosaur_ad.bank.image_features import FeatureExtractor, Progress
from dinosaur_ad.bank.teaching import TrainingImages
from dinosaur_ad.bank.verdict import Verdicts, alarm_threshold, check_rate, check_task, why_not_ready
from dinosaur_ad.encoders import DEFAULT_ENCODER, Encoder, load_encoder
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.errors import DinosaurError, InputError, StoreError
from dinosaur_ad.images.stream import ImageBatch, Images, OneImage, is_single, prepared_batches, stream_images, timed
from dinosaur_ad.inspection import Inspection, Learned, Rejected
from dinosaur_ad.presets import Preset, get_preset
from dinosaur_ad.store import MemoryStore, Store, TaskRecord, TaskStore, check_task_name, copy_tasks

# Images read, encoded and scored together by inspect.
INSPECT_AT_ONCE = 16
# What a task's manifest records of the encoder.
MADE_BY = ("encoder", "fingerprint", "provider", "precision", "fallback")


class Dinosaur:
    """A training-free continual anomaly detector.

    With ``store`` (a folder, made by the first learn) everything taught is kept there at once; without it, in
    memory until :meth:`save`. A store remembers its encoder and preset, so both need to be named only once. How the
    encoder runs (``options``: provider, precision, threads and so on) is not stored: a store taught on one provider can
    be used on another.

    ``bank_precision`` (float32, float16 or int8) is how tasks taught from now on are stored, and ``budget`` (bytes, or
    text like "2MB") the most that each of them may take (see docs/banks.md). Banks in memory take at most
    ``cache_bytes``.

    >>> from dataclasses import replace
    >>> from dinosaur_ad.presets import DEFAULT
    >>> images = np.random.default_rng(0).integers(0, 255, (12, 64, 64, 3), np.uint8)
    >>> tiny = Dinosaur(encoder="tiny-dinov2", preset=replace(DEFAULT, layers=(0, 1), size=70))
    >>> tiny.learn("noise", list(images)).members
    12
    >>> tiny.inspect(images[0]).task
    'noise'
    >>> len(tiny.inspect(images[:3]))
    3
    """

    def __init__(
        self,
        store: str | Path | Store | None = None,
        *,
        encoder: str | Encoder | None = None,
        options: EncoderOptions | None = None,
        preset: str | Preset | None = None,
        seed: int = 0,
        cache_bytes: int = 2**30,
        bank_precision: str | None = None,
        budget: int | str | None = None,
    ) -> None:
        opened = store if isinstance(store, Store) or store is None else Store.find(store)
        self._path = store.path if isinstance(store, Store) else None if store is None else Path(store)
        self._store: TaskStore | None = opened
        header = self._store.header if self._store else {}
        self.preset = Preset.from_json(header["preset"]) if header else get_preset(preset or "default")
        if header and preset is not None and get_preset(preset) != self.preset:
            raise StoreError(
                f"The store {self._path} was made with the preset '{self.preset.name}', not with "
                f"'{get_preset(preset).name}'; leave the preset out, or start a new store."
            )
        stored_name = header["encoder"]["encoder"] if header else None
        asked_name = encoder.name if isinstance(encoder, Encoder) else encoder
        if stored_name and asked_name and asked_name != stored_name:
            raise StoreError(
                f"The store {self._path} was made with the encoder '{stored_name}' and cannot be used with "
                f"'{asked_name}'; leave the encoder out, or start a new store."
            )
        self._encoder_name = asked_name or stored_name or DEFAULT_ENCODER
        self._options = options or EncoderOptions()
        self._features = FeatureExtractor(self.preset, self._load_encoder)
        self._verdicts = Verdicts(self.preset, self._features)
        self.seed = int(header.get("seed", seed))
        self._banks = BankSet(self.preset, cache_bytes, threads=self._options.threads)
        self._bank_precision = check_precision(bank_precision)
        self._budget = None if budget is None else parse_bytes(budget)
        self.waiting: Callable[[str], None] | None = None
        """Called with a sentence when teaching has to wait because another process teaches the same task."""
        self._given = self._checked(encoder) if isinstance(encoder, Encoder) else None

    # --- settings and tasks ---

    @property
    def encoder(self) -> Encoder:
        """The frozen backbone; loaded when first needed."""
        return self._features.encoder

    def _load_encoder(self) -> Encoder:
        if self._given is not None:
            return self._given
        preset, options = self.preset, asdict(self._options)
        return self._same_weights(load_encoder(self._encoder_name, layers=preset.layers, size=preset.size, **options))

    def _checked(self, encoder: Encoder) -> Encoder:
        """An encoder that was given, if its tokens fit the preset and the store's banks; an error otherwise."""
        if encoder.layers != self.preset.layers or encoder.size != self.preset.size:
            raise InputError(
                f"The encoder gives layers {encoder.layers} at {encoder.size} px, but the preset '{self.preset.name}' "
                f"wants {self.preset.layers} at {self.preset.size} px; load it with those."
            )
        return self._same_weights(encoder)

    def _same_weights(self, encoder: Encoder) -> Encoder:
        stored = self._store.header["encoder"]["fingerprint"] if self._store else encoder.fingerprint
        if encoder.fingerprint != stored:
            raise StoreError(
                f"The store {self._path} was made with other weights of '{encoder.name}' (fingerprint {stored}, here "
                f"{encoder.fingerprint}); use those weights, or start a new store."
            )
        return encoder

    def __repr__(self) -> str:
        """Store, number of tasks, encoder and preset; loads no encoder and makes no store."""
        place = "in memory" if self._path is None else printable(self._path)
        try:
            known = f"{len(self)} task{'' if len(self) == 1 else 's'}"
        except DinosaurError:
            known = "tasks that cannot be read"
        return f"<Dinosaur {place}: {known}, encoder {printable(self._encoder_name)}, preset {self.preset.name}>"

    def __len__(self) -> int:
        """The number of tasks that can be used; a damaged one counts until it is found to be damaged."""
        return len(self._usable())

    def __bool__(self) -> bool:
        return True  # otherwise a detector without tasks would be false

    def __contains__(self, name: object) -> bool:
        """Whether there is a task of that name that can be used."""
        return name in self._usable()

    def _usable(self) -> set[str]:
        return {record.name for record in self.tasks() if not self._banks.found_damaged(record)}

    def info(self) -> dict[str, Any]:
        """What the results depend on: encoder, provider, precision, preset, seed."""
        return self.encoder.info() | {"preset": self.preset.name, "seed": self.seed}

    @property
    def store(self) -> TaskStore:
        """Where tasks are kept; a folder that is not there yet is made now."""
        if self._store is None:
            info = self.encoder.info()
            header: dict[str, Any] = {"encoder": info, "preset": self.preset.to_json(), "seed": self.seed}
            if self._path is None:
                self._store = MemoryStore(header)
            else:
                self._store = Store.create(self._path, header, exist_ok=True)
                if _settings(self._store.header) != _settings(MemoryStore(header).header):  # as it reads back from JSON
                    raise StoreError(
                        f"Another process just made the store {self._path} with other settings; open it again."
                    )
        return self._store

    def tasks(self) -> list[TaskRecord]:
        """What has been taught and can be read, oldest first; :meth:`damaged` has the others."""
        return list(self._store.snapshot().records.values()) if self._store else []

    def damaged(self) -> dict[str, str]:
        """The tasks that cannot be read, each with the reason; inspecting leaves them out.

        A bank is read when it is first needed, so that damage may be found only then.
        """
        return dict(self._banks.view(self._store).left_out) if self._store else {}

    def verify(self, name: str) -> None:
        """Compare all files of a task with their hashes and check that they can be used; a StoreError if not."""
        record = self._existing(name)
        self.store.verify(name)
        check_task(self.preset, self.store, record)

    def threshold(self, name: str, false_alarms: float | None = None) -> float:
        """The score above which an image of that task is called anomalous; needs no encoder."""
        rate = check_rate(self.preset.false_alarms if false_alarms is None else false_alarms)
        record = self._existing(name)
        return alarm_threshold(self.preset, read_bank(self.store, record)[0]["scores"], rate)

    # --- teaching ---

    def learn(
        self,
        name: str,
        images: Images,
        *,
        held_out: Images | None = None,
        replace: bool = False,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Learned:
        """Teach a new task from normal images. Nothing else changes, and nothing at all if it fails half way.

        ``held_out`` are more normal images, for the threshold alone; without them some of ``images`` are held out in
        turn. ``replace`` teaches a task of that name anew. ``progress`` is called with the images done and, if known,
        in all.

        :raises InputError: some images do not belong there (blank, of another task, unlike the others); ``force``
            learns them all the same.
        """
        name = check_task_name(name)
        if self._store:
            self._refuse_conflict(name, replace)

        def begin() -> tuple[BankBuilder, TaskRecord | None]:
            kind = self.preset.calibration if held_out is None else "held-out"
            return BankBuilder(self.preset, self.seed, kind, precision=self._bank_precision, budget=self._budget), None

        return self._teach(name, images, begin, "learn", progress, replaces=replace, force=force, held_out=held_out)

    def update(self, name: str, images: Images, *, force: bool = False, progress: Progress | None = None) -> Learned:
        """Add normal images to a task, for instance those it wrongly called anomalous, without the old ones.

        Images that the task has learned before are left out. Processes that update one task wait for each other.

        :raises InputError: the images would make the task blind (blank, of another product, a threshold that rises
            far); ``force`` learns them all the same.
        """
        name = self._existing(name).name  # in Unicode's form NFC, as the store has it

        def begin() -> tuple[BankBuilder, TaskRecord | None]:
            record = self._existing(name)
            return BankBuilder.reopened(self.preset, self.seed, self.store, record, self._budget), record

        return self._teach(name, images, begin, "update", progress, replaces=True, force=force)

    def forget(self, name: str) -> None:
        """Remove a task, a damaged one too; :meth:`undo` brings it back."""
        self._with(name).drop(name)

    def undo(self, name: str) -> str:
        """Take back the last learn, update or forget of a task, and say which it was."""
        if self._store is None:
            raise InputError("There is nothing to undo: nothing has been taught yet.")
        return self._store.undo(name)

    def redo(self, name: str) -> str:
        """Make the change of a task again that the last :meth:`undo` took back, and return which it was."""
        if self._store is None:
            raise InputError("There is nothing to redo: nothing has been taught yet.")
        return self._store.redo(name)

    def rename(self, name: str, new: str) -> None:
        """Give a task another name; its history and versions stay with it."""
        if self._store is None:
            raise InputError(f"There is no task '{name}': nothing has been taught yet; start with learn.")
        self._store.rename(name, new)

    def _refuse_conflict(self, name: str, replaces: bool) -> None:
        """Refuse to write a new task over one that must not be replaced."""
        if not replaces and name in self.store:
            raise InputError(
                f"There is a task '{name}' already; add images to it with update, learn it anew with replace "
                "(--replace), or choose another name."
            )

    def _existing(self, name: str) -> TaskRecord:
        return self._with(name).record(name)

    def _with(self, name: str) -> TaskStore:
        """The store, in which there may be a task of that name."""
        if self._store is None:
            raise InputError(f"There is no task '{name}': nothing has been taught yet; start with learn.")
        return self._store

    def _teach(
        self,
        name: str,
        images: Images,
        begin: Callable[[], tuple[BankBuilder, TaskRecord | None]],
        action: str,
        progress: Progress | None,
        replaces: bool,
        force: bool,
        held_out: Images | None = None,
    ) -> Learned:
        """Learn or update; ``begin`` returns a builder and the version of the task that it continues, if any."""
        begin()  # raises what is wrong before anything is encoded
        training = TrainingImages(name, self._features, images, progress)
        with self._store.teaching(name, self.waiting) if self._store else nullcontext():
            builder, base = begin()
            guard = self._guard(name, base)
            added = training.add_to(builder, held_out, guard)
            suspects = guard.check(builder, force=force) if guard else ()
            started = time.perf_counter()
            if added:
                self._write(name, builder, base.id if base else None, action, added, replaces)
            record = self.store.record(name)
        threshold = alarm_threshold(self.preset, np.asarray(builder.scores, np.float32), self.preset.false_alarms)
        return Learned(
            task=name,
            images=added,
            total_images=len(builder.images),
            members=builder.members,
            bytes=sum(info.bytes for info in record.files.values()),
            rejected=tuple(training.rejected),
            seconds=training.seconds | builder.seconds | {"store": time.perf_counter() - started},
            duplicates=tuple(training.duplicates),
            not_ready=why_not_ready(name, threshold, builder.control_scores),
            threshold=threshold,
            threshold_before=guard.threshold_before if guard else None,
            suspects=suspects,
        )

    def _guard(self, name: str, record: TaskRecord | None) -> TeachingGuard | None:
        """The checks of new images; None with in-sample calibration, the procedure of the paper."""
        if self.preset.calibration == "in-sample":
            return None
        return TeachingGuard(self.preset, self._features, self._banks, self._store, name, record)

    def _write(
        self, name: str, builder: BankBuilder, base: str | None, action: str, added: int, replaces: bool
    ) -> None:
        """Store a task; ``base`` is the version that it continues, None for a new one."""
        manifest = builder.manifest() | {"encoder": {key: self.info()[key] for key in MADE_BY}}
        with self.store.writer():  # no other process may change the store between the checks and the writing
            self._refuse_conflict(name, replaces)
            if base is not None and self._version(name) != base:
                raise StoreError(
                    f"The task '{name}' was forgotten, undone or learned anew in the meantime; nothing was written, "
                    "try again."
                )
            self.store.put(name, builder.files(), manifest, action=action, note={"images": added})

    def _version(self, name: str) -> str | None:
        """The id of the version of a task that is there now; None if there is none or it cannot be read."""
        try:
            return self._existing(name).id
        except DinosaurError:
            return None

    # --- inspecting ---

    @overload
    def inspect(
        self, images: Image.Image, *, task: str | None = None, false_alarms: float | None = None
    ) -> Inspection: ...

    @overload
    def inspect(
        self, images: str | Path | NDArray[Any], *, task: str | None = None, false_alarms: float | None = None
    ) -> Any: ...

    @overload
    def inspect(
        self, images: Iterable[OneImage], *, task: str | None = None, false_alarms: float | None = None
    ) -> list[Inspection]: ...

    def inspect(
        self, images: Images, *, task: str | None = None, false_alarms: float | None = None
    ) -> Inspection | list[Inspection]:
        """Inspect images of any task taught so far: one :class:`Inspection` for one image, a list for several.

        One image is the path of a file, an array ``(H, W)`` or ``(H, W, C)``, or a PIL image. Several are a folder, a
        glob, a list or any other iterable, even of one image, or an array ``(N, H, W, C)``. For a type checker, which
        cannot tell a file from a folder or the shapes of arrays apart, the result of a path and of an array is ``Any``.

        An unreadable image raises; :meth:`stream` continues with the others. With ``task`` only that task's bank is
        used, without routing. ``false_alarms`` is the share of normal images that may be called anomalous.
        """
        results = []
        for result in self.stream(images, task=task, false_alarms=false_alarms):
            if isinstance(result, Rejected):
                raise InputError(result.reason)
            results.append(result)
        return results[0] if is_single(images) else results

    def stream(
        self, images: Images, *, task: str | None = None, false_alarms: float | None = None
    ) -> Iterator[Inspection | Rejected]:
        """Inspect any number of images in order, a few at a time; for an unreadable one there is a ``Rejected``."""
        false_alarms = check_rate(self.preset.false_alarms if false_alarms is None else false_alarms)
        if self._store is None or not self._store.names():
            raise nothing_learned()
        if task is not None:
            task = self._existing(task).name
        total, stream = stream_images(images)
        at_once = INSPECT_AT_ONCE if total is not None else 1  # a camera's image gets its verdict before the next one
        for batch, waited in timed(prepared_batches(stream, total, at_once, self.preset.size)):
            yield from self._inspect_batch(batch, waited, task, false_alarms)

    def _inspect_batch(
        self, batch: ImageBatch, waited: float, task: str | None, false_alarms: float
    ) -> Iterator[Inspection | Rejected]:
        """Encode a batch of images, compare them with the banks, and give the verdicts in order."""
        results: Iterator[Inspection | Rejected] = iter(())
        if len(batch.pixels):
            count, _ = len(batch.pixels), self.encoder  # loaded before the time is taken
            started = time.perf_counter()
            patches_NHWC, descriptor_NC = self._features.encode(batch.pixels)
            encode_ms = (time.perf_counter() - started) * 1e3 / count
            compared = self._banks.compare(self.store, patches_NHWC, descriptor_NC, task)
            ms, left_out = {"encode": encode_ms} | compared.ms, compared.left_out
            readable = zip(batch.readable, patches_NHWC, compared.scores, strict=True)
            results = (
                self._verdicts.inspection(image, patches_HWC, scores, left_out, false_alarms, batch.ms(n, waited) | ms)
                for n, (image, patches_HWC, scores) in enumerate(readable)
            )
        for image in batch.images:
            yield Rejected(image.label, image.error) if image.error else next(results)

    # --- saving ---

    def save(self, path: str | Path) -> None:
        """Write everything taught so far to a new store folder."""
        copy_tasks(self.store, Store.create(path, self.store.header))

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Dinosaur:
        """Open an existing store, with the options of the constructor; changes are written to it at once."""
        return cls(Store.open(path), **options)


def _settings(header: Mapping[str, Any]) -> tuple[Any, ...]:
    """The settings in a store's header that must be equal for two processes that create it; not how encoders run."""
    return header["encoder"]["encoder"], header["encoder"]["fingerprint"], header["preset"], header["seed"]
