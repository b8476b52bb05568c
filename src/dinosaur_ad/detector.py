"""DINOSaur: teach a product from normal images, inspect anything, correct, forget. The product in one file.

    image -> tokens -> route -> patch distances -> score -> verdict

Every step is a function of :mod:`dinosaur_ad.core`; what is kept between calls lies in :mod:`dinosaur_ad.store`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad._text import printable
from dinosaur_ad.bank.bank import Bank, Draft, check_task
from dinosaur_ad.bank.bank_files import read_bank
from dinosaur_ad.bank.banks import Answers, AskAgainError, Banks, most_normal
from dinosaur_ad.bank.budget import check_precision
from dinosaur_ad.bank.image_features import ImageFeatures, Progress, new_ones
from dinosaur_ad.bank.shrink import Budgets, shrink
from dinosaur_ad.bank.verdict import NOT_READY, alarm_threshold, check_rate, judge, why_not_ready
from dinosaur_ad.core.calibration import p_values
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.encoders import DEFAULT_ENCODER, Encoder, load_encoder
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.errors import DinosaurError, InputError, StoreError
from dinosaur_ad.images.batches import Group, Seen, prepared_groups
from dinosaur_ad.images.stream import Images, OneImage, batched, is_single, stream_images, timed
from dinosaur_ad.inspection import Inspection, Learned, Rejected, WorstPatch
from dinosaur_ad.presets import Preset, get_preset
from dinosaur_ad.store import MemoryStore, Store, TaskRecord, TaskStore, check_task_name, copy_tasks

Floats = NDArray[np.float32]

# Images encoded before their patches enter the memory: bounds what learning holds, whatever the number of images.
LEARN_AT_ONCE = 1024
# Images read, encoded and scored together by inspect.
INSPECT_AT_ONCE = 16
# What a task's manifest says of the encoder that taught it.
MADE_BY = ("encoder", "fingerprint", "provider", "precision", "fallback")


class Dinosaur:
    """A training-free continual anomaly detector.

    With ``store`` (a folder, made by the first learn) everything taught is kept there at once; without it, in
    memory until :meth:`save`. A store remembers its encoder and preset, so both need to be named only once. How the
    encoder runs (``options``: provider, precision, threads and so on) is not stored: a store taught on one provider can
    be used on another.

    ``bank_precision`` (float32, float16 or int8) is how tasks taught from now on are kept, and ``budget`` (bytes, or
    words like "2MB") the most that each of them may take; ``store_budget`` is the most that all tasks together may
    take, and is remembered (see docs/banks.md).

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
        store: str | Path | None = None,
        *,
        encoder: str | Encoder | None = None,
        options: EncoderOptions | None = None,
        preset: str | Preset | None = None,
        seed: int = 0,
        cache_bytes: int = 2**30,
        bank_precision: str | None = None,
        budget: int | str | None = None,
        store_budget: int | str | None = None,
    ) -> None:
        self._path = None if store is None else Path(store)
        self._store: TaskStore | None = None if self._path is None else Store.find(self._path)
        header = self._store.header if self._store else {}
        self.preset = Preset.from_json(header["preset"]) if header else get_preset(preset or "default")
        if header and preset is not None and get_preset(preset) != self.preset:
            raise StoreError(
                f"The store {store} was made with the preset '{self.preset.name}', not with "
                f"'{get_preset(preset).name}'; leave the preset out, or start a new store."
            )
        stored_name = header["encoder"]["encoder"] if header else None
        asked_name = encoder.name if isinstance(encoder, Encoder) else encoder
        if stored_name and asked_name and asked_name != stored_name:
            raise StoreError(
                f"The store {store} was made with the encoder '{stored_name}' and cannot be used with "
                f"'{asked_name}'; leave the encoder out, or start a new store."
            )
        self._encoder_name = asked_name or stored_name or DEFAULT_ENCODER
        self._options = options or EncoderOptions()
        self._features = ImageFeatures(self.preset, self._load_encoder)
        self._foreign_scores: dict[str, Floats] = {}
        self.seed = int(header.get("seed", seed))
        self._banks = Banks(self.preset, cache_bytes, threads=self._options.threads)
        self._bank_precision = check_precision(bank_precision)
        self._budgets = Budgets(budget, store_budget)
        self.waiting: Callable[[str], None] | None = None
        """Called with a sentence when teaching has to wait for somebody else who teaches the same task."""
        self._given = self._checked(encoder) if isinstance(encoder, Encoder) else None

    # --- what it is ---

    @property
    def encoder(self) -> Encoder:
        """The frozen backbone; loaded when first needed."""
        return self._features.encoder

    def _load_encoder(self) -> Encoder:
        if self._given is not None:
            return self._given
        preset, options = self.preset, asdict(self._options)
        return self._checked(load_encoder(self._encoder_name, layers=preset.layers, size=preset.size, **options))

    def _checked(self, encoder: Encoder) -> Encoder:
        """Refuse an encoder whose tokens would not fit the store's banks, whatever its name says."""
        if encoder.layers != self.preset.layers or encoder.size != self.preset.size:
            raise InputError(
                f"The encoder gives layers {encoder.layers} at {encoder.size} px, but the preset '{self.preset.name}' "
                f"wants {self.preset.layers} at {self.preset.size} px; load it with those."
            )
        stored = self._store.header["encoder"]["fingerprint"] if self._store else encoder.fingerprint
        if encoder.fingerprint != stored:
            raise StoreError(
                f"The store {self._path} was made with other weights of '{encoder.name}' (fingerprint {stored}, here "
                f"{encoder.fingerprint}); use those weights, or start a new store."
            )
        return encoder

    def __repr__(self) -> str:
        """Where it keeps what, in one line; loads no encoder and makes no store."""
        place = "in memory" if self._path is None else printable(self._path)
        try:
            known = f"{len(self)} task{'' if len(self) == 1 else 's'}"
        except DinosaurError:
            known = "tasks that cannot be read"
        return f"<Dinosaur {place}: {known}, encoder {printable(self._encoder_name)}, preset {self.preset.name}>"

    def __len__(self) -> int:
        """How many tasks can be asked; a damaged one counts until it is found to be damaged."""
        return len(self._askable())

    def __bool__(self) -> bool:
        return True  # without this, one that has learned nothing yet would count as false

    def __contains__(self, name: object) -> bool:
        """Whether there is a task of that name that can be asked."""
        return name in self._askable()

    def _askable(self) -> set[str]:
        return {record.name for record in self.tasks() if not self._banks.found_damaged(record)}

    def info(self) -> dict[str, Any]:
        """What makes the results: encoder, provider, precision, preset, seed."""
        return self.encoder.info() | {"preset": self.preset.name, "seed": self.seed}

    @property
    def store(self) -> TaskStore:
        """Where tasks are kept; a folder that is not there yet is made now."""
        if self._store is None:
            header: dict[str, Any] = {
                "encoder": self.encoder.info(),
                "preset": self.preset.to_json(),
                "seed": self.seed,
            }
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
        """The tasks that cannot be read, each with a sentence that says why; they are left out of inspecting.

        A bank is read when an image first asks for it, so one may turn out to be damaged only then.
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
        progress: Progress | None = None,
    ) -> Learned:
        """Teach a new task from normal images. Nothing else changes, and nothing at all if it fails half way.

        ``held_out`` are more normal images, for the threshold alone; without them some of ``images`` are held out in
        turn. ``replace`` teaches a task of that name anew. ``progress`` is called with the images done and, if known,
        in all.
        """
        check_task_name(name)
        if self._store:
            self._refuse_conflict(name, replace)

        def begin() -> tuple[Draft, None]:
            limits = self._budgets.limits(self._store, name)
            kind = self.preset.calibration if held_out is None else "held-out"
            return Draft(self.preset, self.seed, kind, precision=self._bank_precision, **limits), None

        return self._teach(name, images, begin, "learn", progress, replaces=replace, held_out=held_out)

    def update(self, name: str, images: Images, *, progress: Progress | None = None) -> Learned:
        """Add normal images to a task, for instance those it wrongly called anomalous, without the old ones.

        Images that the task knows already are left out. Several who update one task at once wait for each other.
        """

        def begin() -> tuple[Draft, str]:
            record = self._existing(name)
            limits = self._budgets.limits(self.store, name, record)
            return Draft.reopened(self.preset, self.seed, self.store, record, **limits), record.id

        return self._teach(name, images, begin, "update", progress, replaces=True)

    def forget(self, name: str) -> None:
        """Remove a task, a damaged one too; :meth:`undo` brings it back."""
        if self._store is None:
            raise InputError(f"There is no task '{name}': nothing has been taught yet; start with learn.")
        self._store.drop(name)

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
        if self._store is None:
            raise InputError(f"There is no task '{name}': nothing has been taught yet; start with learn.")
        return self._store.record(name)

    def _teach(
        self,
        name: str,
        images: Images,
        begin: Callable[[], tuple[Draft, str | None]],
        action: str,
        progress: Progress | None,
        replaces: bool,
        held_out: Images | None = None,
    ) -> Learned:
        begin()  # what is refused is refused before anything is encoded
        encoding: dict[str, float] = {"read": 0.0, "encode": 0.0}
        rejected: list[Rejected] = []
        blocks = batched(self._features.read(images, rejected, encoding, progress), LEARN_AT_ONCE)
        # The first block, usually the only one, is encoded before the task is locked against others who teach it.
        first = next(blocks, None)
        if first is None:
            raise InputError(
                f"None of the images for '{name}' could be used"
                + (f" (first: {rejected[0].reason})" if rejected else "")
                + "; give at least 2 readable images of normal products."
            )
        with self._store.teaching(name, self.waiting) if self._store else nullcontext():
            draft, base = begin()
            before, duplicates = len(draft.images), list[str]()
            for block in chain([first], blocks):
                new = new_ones(block, set(draft.digests), duplicates)
                if new:
                    names, patches, descriptors, digests = zip(*new, strict=True)
                    draft.grow(list(names), np.stack(patches), np.stack(descriptors), list(digests))
            added = len(draft.images) - before
            if held_out is not None:
                known = set(draft.digests)
                seen = list(self._features.read(held_out, rejected, encoding, None))
                unseen = [patches for _, patches, _, _ in new_ones(seen, known, duplicates)]
                if not unseen:
                    raise InputError(
                        f"None of the held-out images for '{name}' could be used; give readable normals that are not "
                        "among the images to learn from."
                    )
                draft.calibrate(np.stack(unseen))
            elif len(draft.images) < 2:
                raise InputError(
                    f"Learning '{name}' needs at least 2 normal images that differ, because the threshold comes from "
                    f"normals that the memory has not seen, but there is {len(draft.images)}; 20 or more are "
                    "recommended."
                )
            started = time.perf_counter()
            if added:
                draft.show_foreign(self._features.foreign())
            draft.seconds["calibrate"] += time.perf_counter() - started
            started = time.perf_counter()
            shrunk = self._write(name, draft, base, action, added, replaces) if added else ()
            record = self.store.record(name)
        threshold = alarm_threshold(self.preset, np.asarray(draft.scores, np.float32), self.preset.false_alarms)
        return Learned(
            task=name,
            images=added,
            total_images=len(draft.images),
            members=draft.members,
            bytes=sum(info.bytes for info in record.files.values()),
            rejected=tuple(rejected),
            seconds=encoding | draft.seconds | {"store": time.perf_counter() - started},
            shrunk=shrunk,
            duplicates=tuple(duplicates),
            not_ready=why_not_ready(name, threshold, draft.foreign),
        )

    def _write(
        self, name: str, draft: Draft, base: str | None, action: str, added: int, replaces: bool
    ) -> tuple[str, ...]:
        """Store a task as it was taught, and return the tasks that were cut to make room for it.

        ``base`` is the version that it was taught from; None for a new one.
        """
        manifest = draft.manifest() | {"encoder": {key: self.info()[key] for key in MADE_BY}}
        with self.store.writer():  # from the last look at what is there to the writing, no one may change it
            self._refuse_conflict(name, replaces)
            if base is not None and self._version(name) != base:
                raise StoreError(
                    f"The task '{name}' was forgotten, undone or learned anew in the meantime; nothing was written, "
                    "try again."
                )
            cuts = self._budgets.cuts(self.store, name, draft)
            self.store.put(name, draft.files(), manifest, action=action, note={"images": added})
            for other, cut in cuts.items():
                shrink(self.store, other, cut)
        return tuple(cuts)

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
        """Inspect any number of images in order, a few at a time; unreadable ones are reported and skipped."""
        false_alarms = check_rate(self.preset.false_alarms if false_alarms is None else false_alarms)
        if self._store is None or not self._store.names():
            raise InputError("There is nothing to compare with: no task has been taught yet; start with learn.")
        if task is not None:
            self._existing(task)
        total, stream = stream_images(images)
        at_once = INSPECT_AT_ONCE if total is not None else 1  # a camera's image gets its verdict before the next one
        for group, waited in timed(prepared_groups(stream, total, at_once, self.preset.size)):
            yield from self._inspect_group(group, waited, task, false_alarms)

    def _inspect_group(
        self, group: Group, waited: float, task: str | None, false_alarms: float
    ) -> Iterator[Inspection | Rejected]:
        results: Iterator[Inspection | Rejected] = iter(())
        if len(group.pixels):
            count, _ = len(group.pixels), self.encoder  # loaded before the clock starts
            started = time.perf_counter()
            patches_NHWC, descriptor_NC = self._features.encode(group.pixels)
            encode_ms = (time.perf_counter() - started) * 1e3 / count
            asked, left_out, ms = self._ask(patches_NHWC, descriptor_NC, task)
            ms = {"encode": encode_ms} | ms
            results = (
                self._judge(each, patches_NHWC[n], asked[n], left_out, false_alarms, group.ms(n, waited) | ms)
                for n, each in enumerate(group.readable)
            )
        for each in group.images:
            yield Rejected(each.label, each.error) if each.error else next(results)

    def _ask(
        self, patches_NHWC: Floats, descriptor_NC: Floats, task: str | None
    ) -> tuple[list[Answers], tuple[str, ...], dict[str, float]]:
        """What the banks answer about each image, the damaged tasks that were left out, and the milliseconds an image.

        All answers come from one view of the store, whoever changes it meanwhile. A bank that turns out to be damaged,
        or whose version is gone, means another view.
        """
        while True:
            clock = [time.perf_counter()]
            view = self._banks.view(self.store, descriptor_NC.shape[1])
            if task is not None and task not in view.records:
                raise StoreError(view.left_out[task]) if task in view.left_out else self._nothing_there(task)
            if not view.records:
                raise StoreError(next(iter(view.left_out.values()))) if view.left_out else self._nothing_there()
            candidates = [[task]] * len(patches_NHWC) if task else self._banks.route(view, descriptor_NC)
            clock.append(time.perf_counter())
            try:
                asked = self._banks.ask(self.store, view, patches_NHWC, candidates)
            except AskAgainError:
                continue
            clock.append(time.perf_counter())
            ms = dict(zip(("route", "score"), (np.diff(clock) * 1e3 / len(patches_NHWC)).tolist(), strict=True))
            return asked, tuple(view.left_out), ms

    def _nothing_there(self, task: str | None = None) -> InputError:
        if task is not None:
            return InputError(f"There is no task '{task}' any more; it was forgotten while its images were inspected.")
        return InputError("There is nothing to compare with: no task has been taught yet; start with learn.")

    def _judge(
        self,
        image: Seen,
        patches_HWC: Floats,
        asked: Answers,
        left_out: tuple[str, ...],
        false_alarms: float,
        ms: dict[str, float],
    ) -> Inspection | Rejected:
        """The verdict of the bank that found the image most normal."""
        task = most_normal(asked)
        score, distance_HW, bank = asked[task]
        if not math.isfinite(score):
            return self._features.no_numbers(image.label)
        threshold = alarm_threshold(self.preset, bank.scores, false_alarms)
        reason = why_not_ready(task, threshold, self._foreign_of(bank))
        return Inspection(
            path=image.label,
            task=task,
            score=score,
            p_value=float(p_values(np.asarray([score]), bank.scores)[0]),
            verdict=NOT_READY if reason else judge(score, threshold),
            threshold=threshold,
            false_alarms=false_alarms,
            normal_level=bank.level,
            worst=_worst_patch(patches_HWC, distance_HW, bank, self.preset.radius, image.shape),
            asked={name: answer.score for name, answer in asked.items()},
            encoder=self.encoder.name,
            ms={key: round(value, 3) for key, value in (ms | {"total": sum(ms.values())}).items()},
            map=distance_HW,
            image_size=(image.shape[0], image.shape[1]),
            provider=self.encoder.provider,
            precision=self.encoder.precision,
            fallback=self.encoder.fallback,
            reason=reason,
            left_out=left_out,
        )

    def _foreign_of(self, bank: Bank) -> Floats:
        """What pictures that show no product score under a bank; measured now for tasks of older versions."""
        if bank.foreign.size:
            return bank.foreign
        known = self._foreign_scores.get(bank.record.id)
        if known is None:
            distance_NHW = bank.distances(self._features.foreign(), self.preset.radius)
            known = self._foreign_scores[bank.record.id] = pool(distance_NHW, self.preset.top)
        return known

    # --- keeping ---

    def save(self, path: str | Path) -> None:
        """Write everything taught so far to a new store folder."""
        copy_tasks(self.store, Store.create(path, self.store.header))

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Dinosaur:
        """Open an existing store, with the options of the constructor; changes are written to it at once."""
        detector = cls(path, **options)
        if detector._store is None:
            Store.open(path)  # raises an error that says what is wrong
        return detector


def _settings(header: Mapping[str, Any]) -> tuple[Any, ...]:
    """What two who make the same store must agree on; what runs their encoders is not part of it."""
    return header["encoder"]["encoder"], header["encoder"]["fingerprint"], header["preset"], header["seed"]


def _worst_patch(
    patches_HWC: Floats, distance_HW: Floats, bank: Bank, radius: int, shape: tuple[int, ...]
) -> WorstPatch:
    rows, columns = distance_HW.shape
    row, column = divmod(int(np.argmax(distance_HW)), columns)
    nearest = bank.nearest(patches_HWC[row, column], row, column, radius)
    source = int(bank.source_HWM[nearest.row, nearest.column, nearest.member])
    height, width = shape[:2]
    return WorstPatch(
        row=row,
        column=column,
        box=(
            column * width // columns,
            row * height // rows,
            (column + 1) * width // columns,
            (row + 1) * height // rows,
        ),
        distance=nearest.distance,
        like_image=bank.images[source],
        like_row=nearest.row,
        like_column=nearest.column,
        like_digest=bank.digests[source],
    )
