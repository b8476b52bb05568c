"""DINOSaur: learn a product from normal images, inspect images, update, forget. The product in one file.

    image -> tokens -> route -> patch distances -> score -> verdict

The steps are functions of :mod:`dinosaur_ad.core`. :mod:`dinosaur_ad.images` reads images, :mod:`dinosaur_ad.bank` has
the banks, and :mod:`dinosaur_ad.store` keeps them on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad._text import printable
from dinosaur_ad.bank.bank import task_sensitivity
from dinosaur_ad.bank.bank_files import read_bank, read_tiling
from dinosaur_ad.bank.bank_set import BankSet, nothing_learned
from dinosaur_ad.bank.budget import check_precision, parse_bytes
from dinosaur_ad.bank.changing import Wanted, task_settings
from dinosaur_ad.bank.checking import Check, CheckedImage, Checking, folders_of
from dinosaur_ad.bank.gallery import Defect, GalleryChange, read_gallery, refuse_normal
from dinosaur_ad.bank.image_features import Progress, other_size
from dinosaur_ad.bank.position import AUTO
from dinosaur_ad.bank.settings import Settings
from dinosaur_ad.bank.shifting import ShiftWatch
from dinosaur_ad.bank.task_teacher import TaskTeacher, TeachingPlace
from dinosaur_ad.bank.task_view import tilings_of
from dinosaur_ad.bank.tile_choice import WantedTiles
from dinosaur_ad.bank.verdict import ANOMALOUS, UNKNOWN, Verdicts, check_rate, check_task
from dinosaur_ad.basis import Basis
from dinosaur_ad.core.drift import ShiftNotice
from dinosaur_ad.core.exposure import measure_exposure
from dinosaur_ad.core.tiles import Tiling
from dinosaur_ad.encoders import Encoder
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.images.given_zones import Zones
from dinosaur_ad.images.image_stream import (
    BatchImage,
    ImageBatch,
    Images,
    ImageStream,
    OneImage,
    is_single,
    prepared_batches,
    stream_images,
    timed,
)
from dinosaur_ad.images.loading import digest
from dinosaur_ad.inspection import Changed, Inspection, Learned, Rejected, TaskSettings
from dinosaur_ad.presets import Preset
from dinosaur_ad.store import Store, TaskRecord, TaskStore, check_task_name, copy_tasks
from dinosaur_ad.watch.deciding import adopt_proposal, dismiss_proposal, open_proposals
from dinosaur_ad.watch.watch_event import WatchEvent
from dinosaur_ad.watch.watcher import ADOPTING, GatherLimits, Watcher

# Images read, encoded and scored together by inspect.
INSPECT_AT_ONCE = 16


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
    >>> tiny.learn("noise", list(images)).images
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
        self._basis = Basis(store, encoder, options or EncoderOptions(), preset, seed)
        self.preset, self.seed, self._features = self._basis.preset, self._basis.seed, self._basis.features
        self._verdicts = Verdicts(self.preset, self._features)
        self._banks = BankSet(self.preset, cache_bytes, threads=self._basis.options.threads)
        self.waiting: Callable[[str], None] | None = None
        """Called with a sentence while teaching: another process is waited for, or the task can be used already."""
        self._teacher = TaskTeacher(
            self.preset,
            self.seed,
            self._features,
            self._banks,
            TeachingPlace(
                lambda: self._basis.opened, lambda: self.store, self.info, self._missed_defects, lambda: self.waiting
            ),
            precision=check_precision(bank_precision),
            budget=None if budget is None else parse_bytes(budget),
        )

    # --- settings and tasks ---

    @property
    def encoder(self) -> Encoder:
        """The frozen backbone; loaded when first needed."""
        return self._features.encoder

    def __repr__(self) -> str:
        """Store, number of tasks, encoder and preset; loads no encoder and makes no store."""
        place = "in memory" if self._basis.path is None else printable(self._basis.path)
        try:
            known = f"{len(self)} task{'' if len(self) == 1 else 's'}"
        except DinosaurError:
            known = "tasks that cannot be read"
        return f"<Dinosaur {place}: {known}, encoder {printable(self._basis.encoder_name)}, preset {self.preset.name}>"

    def __len__(self) -> int:
        """The number of tasks that can be used; a damaged one counts until it is found to be damaged."""
        return len(self._usable())

    def __bool__(self) -> bool:
        return True  # otherwise a detector without tasks would be false

    def __contains__(self, name: object) -> bool:
        """Whether there is a task of that name that can be used."""
        return name in self._usable()

    def _usable(self) -> Collection[str]:
        return {record.name for record in self.tasks() if not self._banks.found_damaged(record)}

    def info(self) -> dict[str, Any]:
        """What the results depend on: encoder, provider, precision, preset, seed."""
        return self.encoder.info() | {"preset": self.preset.name, "seed": self.seed}

    @property
    def store(self) -> TaskStore:
        """Where tasks are kept; a folder that is not there yet is made now."""
        return self._basis.store

    def tasks(self) -> list[TaskRecord]:
        """What has been taught and can be read, oldest first; :meth:`damaged` has the others."""
        return list(self._basis.opened.snapshot().records.values()) if self._basis.opened else []

    def damaged(self) -> dict[str, str]:
        """The tasks that cannot be read, each with the reason; inspecting leaves them out.

        A bank is read when it is first needed, so that damage may be found only then.
        """
        return dict(self._banks.view(self._basis.opened).left_out) if self._basis.opened else {}

    def verify(self, name: str) -> None:
        """Compare all files of a task with their hashes and check that they can be used; a StoreError if not."""
        record = self._basis.record(name)
        self.store.verify(name)
        check_task(self.preset, self.store, record)

    def threshold(self, name: str, false_alarms: float | None = None) -> float:
        """The score above which an image of that task is called anomalous, as it is set or at a given rate; needs no
        encoder."""
        rate = None if false_alarms is None else check_rate(false_alarms)
        record = self._basis.record(name)
        scores = read_bank(self.store, record)[0]["scores"]
        return task_sensitivity(self.preset, Settings.of(record), scores, rate).threshold

    def settings(self, name: str) -> TaskSettings:
        """How a task is set; needs no encoder."""
        record = self._basis.record(name)
        return task_settings(record, self.preset, read_bank(self.store, record)[0]["scores"])

    # --- teaching ---

    def learn(
        self,
        name: str,
        images: Images,
        *,
        held_out: Images | None = None,
        doubtful: Sequence[str | Path] | None = None,
        position: str = AUTO,
        tiles: WantedTiles | None = None,
        replace: bool = False,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Learned:
        """Teach a new task from normal images. Nothing else changes, and nothing at all if it fails half way.

        ``held_out`` are more normal images, for the threshold alone; without them some of ``images`` are held out in
        turn. Given ``doubtful`` images of the same product, or an empty list of them, nobody has looked at any: odd
        ones are sooner suspects, a few defects among them hardly raise the threshold, and the doubtful ones count for
        it but are not learned. ``position`` is how parts lie in their photos: "aligned", "moving" or "free"; "auto"
        finds it out (see docs/start/camera.md). ``tiles``, as (columns, rows) or "auto", cuts large photos, so that
        small defects are seen; the task keeps it, and its photos are all of one size and aligned. ``replace`` teaches a
        task of that name anew. ``progress`` is called with the images done and, if known, in all.

        :raises InputError: some images do not belong there (blank, of another task, unlike the others); ``force``
            learns them all the same.
        """
        return self._teacher.learn(
            name,
            images,
            held_out,
            position=position,
            tiles=tiles,
            replace=replace,
            force=force,
            progress=progress,
            doubtful=doubtful,
        )

    def update(
        self,
        name: str,
        images: Images,
        *,
        doubtful: Sequence[str | Path] | None = None,
        kept_out: Sequence[str | Path] = (),
        position: str = AUTO,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Learned:
        """Add normal images to a task, for instance those it wrongly called anomalous, without the old ones.

        Images that the task has learned before are left out. Processes that update one task wait for each other.
        ``position`` stays what it was; another one than the task's is refused. Given ``doubtful``, nobody has looked at
        the images, as :meth:`learn` says, and the threshold follows the newest hundred pictures.
        Then ``kept_out`` are pictures that are never learned: all of them are scored anew, in the place of those given
        before, and with a hundred of them the threshold comes from hardly any others.

        :raises InputError: the images would make the task blind (blank, of another product, a threshold that rises
            far); ``force`` learns them all the same.
        """
        name = self._basis.record(name).name  # in Unicode's form NFC, as the store has it
        return self._teacher.update(
            name, images, position=position, force=force, progress=progress, doubtful=doubtful, kept_out=kept_out
        )

    def recalibrate(
        self,
        name: str,
        images: Images,
        *,
        doubtful: bool = False,
        force: bool = False,
        progress: Progress | None = None,
    ) -> Learned:
        """Take the threshold of a task from new normal images, for instance of today's light; its memory stays.

        What is usual for each reading comes from these images too, at least 5 that the task has not learned. If they
        are ``doubtful``, nobody has looked at them: they are those that :meth:`update` was given as ``kept_out``, and
        newer ones.

        :raises InputError: the images are too few, do not belong there, or would move the threshold far; ``force``
            takes them all the same.
        """
        name = self._basis.record(name).name
        return self._teacher.recalibrate(name, images, force=force, progress=progress, doubtful=doubtful)

    def add_defects(
        self, name: str, images: Images, *, force: bool = False, progress: Progress | None = None
    ) -> GalleryChange:
        """Keep confirmed defects of a task in its gallery: they are inspected again after every change of it.

        At most 50 are kept, the newest. Nothing is learned from them.

        :raises InputError: the task calls some of them normal; ``force`` keeps them all the same.
        """
        name = self._basis.record(name).name
        rejected: list[Rejected] = []
        tiling = read_tiling(self._basis.record(name))
        _, prepared = self._features.prepare(images, rejected, {"read": 0.0}, tiling)
        defects = list(prepared)
        if not defects:
            why = rejected[0].reason.rstrip(".")
            raise InputError(f"None of the defects for '{name}' could be used (first: {why}); give readable ones.")
        if not force:
            passing = self._passing(
                name, [each.large.pixels if each.large else each.pixels for each in defects], progress
            )
            refuse_normal(name, [each.name for each, passes in zip(defects, passing, strict=True) if passes])
        return self._teacher.change_gallery(name, lambda gallery: gallery.with_images(defects), tuple(rejected))

    def remove_defects(self, name: str, images: Collection[str]) -> GalleryChange:
        """Take defects out of the gallery of a task, by the names of their images."""
        name = self._basis.record(name).name
        return self._teacher.change_gallery(name, lambda gallery: (gallery.without(images), ()))

    def defects(self, name: str) -> tuple[Defect, ...]:
        """The confirmed defects that are kept with a task, the oldest first."""
        return read_gallery(self._basis.store_of(name), self._basis.record(name), self.preset.size).defects

    def _missed_defects(self, name: str) -> tuple[str, ...]:
        """The defects of the gallery of a task that would pass now."""
        gallery = read_gallery(self.store, self._basis.record(name), self.preset.size)
        passing = self._passing(name, gallery.pixels())
        return tuple(each.image for each, passes in zip(gallery.defects, passing, strict=True) if passes)

    def _passing(self, name: str, pixels: list[NDArray[np.uint8]], progress: Progress | None = None) -> list[bool]:
        """Whether each of some prepared images would pass as a part of a task; one that cannot be judged might."""
        passing: list[bool] = []
        for result in self.stream(pixels, task=name) if pixels else ():
            passing.append(isinstance(result, Rejected) or result.verdict not in (ANOMALOUS, UNKNOWN))
            if progress:
                progress(len(passing), len(pixels))
        return passing

    def set(
        self,
        name: str,
        *,
        zones: Zones | None = None,
        no_zones: bool = False,
        false_alarms: float | None = None,
        threshold: float | None = None,
        sensitivity: float | None = None,
        preset_sensitivity: bool = False,
        smallest_area: float | None = None,
    ) -> Changed:
        """Change what is inspected of a task and how strictly, without its images; :meth:`undo` takes it back.

        ``zones`` are a mask (white is inspected: a file, or an array of bool or uint8) or polygons in pixels of the
        product's photos: a JSON file or a list like ``[{"inspect": [[x, y], ...]}, {"ignore": [[x, y], ...]}]``.
        ``no_zones`` inspects all again. The sensitivity is a rate of ``false_alarms``, a ``threshold``, or a place
        from 0 (cautious) to 10 (strict), where 5 is the preset's rate; ``preset_sensitivity`` goes back to that.
        Regions below ``smallest_area``, in pixels of the product's photos, are not reported (0: all are).

        :raises InputError: what is asked for makes no sense, for instance zones that leave nothing to inspect.
        """
        wanted = Wanted(zones, no_zones, false_alarms, threshold, sensitivity, preset_sensitivity, smallest_area)
        return self._teacher.set(self._basis.record(name).name, wanted)

    def forget(self, name: str) -> None:
        """Remove a task, a damaged one too; :meth:`undo` brings it back."""
        self._basis.store_of(name).drop(name)

    def undo(self, name: str) -> str:
        """Take back the last learn, update, set or forget of a task, and say which it was."""
        if self._basis.opened is None:
            raise InputError("There is nothing to undo: nothing has been taught yet.")
        return self._basis.opened.undo(name)

    def redo(self, name: str) -> str:
        """Make the change of a task again that the last :meth:`undo` took back, and return which it was."""
        if self._basis.opened is None:
            raise InputError("There is nothing to redo: nothing has been taught yet.")
        return self._basis.opened.redo(name)

    def rename(self, name: str, new: str) -> None:
        """Give a task another name; its history and versions stay with it."""
        self._basis.store_of(name).rename(name, new)

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
        used, without routing. ``false_alarms`` is the share of normal images that may be called anomalous, instead of
        what the task is set to.
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
        false_alarms = None if false_alarms is None else check_rate(false_alarms)
        view = self._banks.view(self._basis.opened) if self._basis.opened else None
        if not view or not (view.records or view.left_out):
            raise nothing_learned()
        if task is not None:
            task = self._basis.record(task).name
        total, stream = stream_images(images)
        at_once = INSPECT_AT_ONCE if total is not None else 1  # a camera's image gets its verdict before the next one
        tilings = tilings_of(view, task)
        for batch, waited in timed(prepared_batches(stream, total, at_once, self.preset.size, tilings)):
            yield from self._inspect_batch(batch, waited, task, false_alarms)

    def _inspect_batch(
        self, batch: ImageBatch, waited: float, task: str | None, false_alarms: float | None
    ) -> Iterator[Inspection | Rejected]:
        """Encode a batch of images, compare them with the banks, and give the verdicts in order."""
        results: Iterator[Inspection | Rejected] = iter(())
        if len(batch.pixels):
            large = [image.large for image in batch.readable]
            compared = self._banks.inspect(self.store, self._features, batch.pixels, task, large)
            ms, left_out = compared.ms, compared.left_out
            exposure_N2 = measure_exposure(batch.pixels)
            readable = zip(batch.readable, compared.patches_NHWC, exposure_N2, compared.scores, strict=True)
            results = (
                self._verdicts.inspection(*each, left_out, false_alarms, batch.ms(n, waited) | ms)
                if each[3]
                else self._fits_no_tiles(each[0], task)
                for n, each in enumerate(readable)
            )
        for image in batch.images:
            yield Rejected(image.label, image.error) if image.error else next(results)

    def watch(self, images: str | Path | Iterable[str | Path], *, adopt: str = "ask") -> Iterator[WatchEvent]:
        """Go through files of any products in order, and find products that are not known yet (docs/streams.md).

        What was processed before is passed over. ``adopt="auto"`` learns proposed products at once, as product-1 and
        so on; with "ask", :meth:`adopt` does.

        :raises InputError: there is no store in a folder, or another watch of it is running.
        """
        return self._watcher(adopt).events(images)

    def proposals(self) -> list[WatchEvent]:
        """The products that :meth:`watch` proposed and that are still open, the oldest first."""
        return open_proposals(self._place())

    def adopt(self, proposal: int, name: str) -> WatchEvent:
        """Learn a product that :meth:`watch` proposed."""
        return adopt_proposal(self, self._place(), proposal, check_task_name(name))

    def dismiss(self, proposal: int) -> None:
        """Leave out a product that :meth:`watch` proposed; pictures like its own are not kept any more."""
        dismiss_proposal(self._place(), proposal)

    def _watcher(self, adopt: str, limits: GatherLimits | None = None) -> Watcher:
        if adopt not in ADOPTING:
            raise InputError(f"A proposed product is adopted by 'ask' or 'auto', got '{printable(adopt)}'.")

        def trial() -> Dinosaur:
            return Dinosaur(encoder=self.encoder, preset=self.preset, seed=self.seed)

        def describe(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
            return self._features.encode(pixels)[1]

        return Watcher(self, self._place(), describe, trial, auto=adopt == "auto", limits=limits)

    def _place(self) -> Path:
        """The folder of the store, which is made if need be."""
        if self._basis.path is None:
            raise InputError("A watch keeps what it has seen in the folder of a store; open the detector with one.")
        _ = self.store
        return self._basis.path

    def _tilings(self, task: str | None) -> list[Tiling]:
        """The tilings of the tasks that images may be compared with."""
        return tilings_of(self._banks.view(self.store), task)

    def _fits_no_tiles(self, image: BatchImage, task: str | None) -> Rejected:
        """The result for an image that was compared with no task, because none has photos of its size."""
        tiling = self._tilings(task)[0]
        return Rejected(image.label, other_size(image.label, (image.shape[0], image.shape[1]), tiling))

    # --- how good it is ---

    def check(
        self,
        name: str,
        good: Images,
        bad: Images,
        *,
        false_alarms: float | None = None,
        progress: Progress | None = None,
    ) -> Check:
        """Inspect images that are known to be good and bad, and say what a task misses and what it flags wrongly.

        Images that the task has learned do not count. ``bad`` may be a folder with one folder for each kind of defect.
        Without ``false_alarms`` the task judges as it is set, as :meth:`inspect` does.

        :raises InputError: an image is among both, or there is none left to check with.
        """
        record = self._basis.record(name)
        rate = None if false_alarms is None else check_rate(false_alarms)
        checking = Checking(self.preset, self._banks.bank(self.store, record), folders_of(bad), progress)
        streams = {"good": stream_images(good), "bad": stream_images(bad)}  # refused before anything is encoded
        for label, (total, stream) in streams.items():
            checking.take(self._checked_images(stream, total, record.name, rate), label)
        return checking.result()

    def _checked_images(
        self, stream: ImageStream, total: int | None, task: str, false_alarms: float | None
    ) -> Iterator[CheckedImage]:
        """The result of each image under a task, with the digest of its pixels."""
        tilings = self._tilings(task)
        for batch in prepared_batches(stream, total, INSPECT_AT_ONCE, self.preset.size, tilings):
            digests = map(digest, batch.pixels)
            results = self._inspect_batch(batch, 0.0, task, false_alarms)
            for image, result in zip(batch.images, results, strict=True):
                yield CheckedImage(result, "" if image.error else next(digests))

    def shift(self, results: Iterable[Inspection | Rejected]) -> dict[str, ShiftNotice]:
        """By task: how its parts, in the order of these results, differ from those it learned; mostly none.

        A sign are parts that pass with higher scores (``passing``), and nearly all images that differ all over, flagged
        or not. Defects, however many, and unknown images are none. If light or camera changed, :meth:`recalibrate`.
        """
        return ShiftWatch(results).notices(self.store)

    # --- saving ---

    def save(self, path: str | Path) -> None:
        """Write everything taught so far to a new store folder."""
        copy_tasks(self.store, Store.create(path, self.store.header))

    @classmethod
    def load(cls, path: str | Path, **options: Any) -> Dinosaur:
        """Open an existing store, with the options of the constructor; changes are written to it at once."""
        return cls(Store.open(path), **options)
