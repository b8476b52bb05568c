"""What a profile measures: the detector that ships, and any method of the benchmark, behind the same few calls.

A subject is made in a process of its own (:mod:`dinosaur_ad.profile.child`). It learns one task and keeps it in
``folder``; another process loads it from there and inspects. What the detector does not need is not imported for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dinosaur_ad.errors import InputError
from dinosaur_ad.profile.machine import available_bytes
from dinosaur_ad.profile.stages import StageCache, encoder_flops, upsampled, with_the_rest

if TYPE_CHECKING:
    from dinosaur_ad.detector import Dinosaur
    from dinosaur_ad.encoders.options import EncoderOptions
    from dinosaur_ad.inspection import Inspection
    from dinosaur_ad.methods.contract import Photo

Say = Callable[[str], None]

TASK = "profiled"
# Weights, their gradients and Adam's two moments, float32.
BYTES_A_TRAINED_PARAMETER = 16


@dataclass(frozen=True)
class SubjectJob:
    """What to measure, as plain values that travel to another process.

    ``method`` is a name of the benchmark's registry with its ``config``, or empty for the detector, which has an
    ``encoder``, a ``preset`` and ``options`` of its own. ``store`` is one to inspect with instead of what is learned.
    """

    folder: str
    method: str = ""
    config: Mapping[str, Any] | None = None
    encoder: str | None = None
    preset: Mapping[str, Any] | None = None
    options: Mapping[str, Any] | None = None
    store: str | None = None
    device: str = "cpu"
    seed: int = 0


class Subject(Protocol):
    """Anything that can be profiled."""

    def learn(self, images: Sequence[Path]) -> dict[str, Any]:
        """Learn a task and keep it; returns seconds, and their parts where they are known."""
        ...

    def load(self) -> None:
        """Get ready to inspect with what was kept."""
        ...

    def inspect(self, image: Path, height: int, width: int) -> dict[str, float]:
        """Inspect one file; returns the milliseconds of every stage, the map at the image's size included."""
        ...

    def inspect_many(self, images: Sequence[Path]) -> None:
        """Inspect files in one call, without maps."""
        ...

    def facts(self) -> dict[str, Any]:
        """Parameters, storage, what it was made with, and the operations of its encoder where they are known."""
        ...


def make_subject(job: SubjectJob, say: Say) -> Subject:
    """The subject that a job describes."""
    return ContractSubject(job, say) if job.method else DetectorSubject(job, say)


class DetectorSubject:
    """:class:`~dinosaur_ad.detector.Dinosaur` itself, with a store on disk."""

    def __init__(self, job: SubjectJob, say: Say) -> None:
        self._job, self._say = job, say
        self._detector: Dinosaur | None = None

    def _options(self) -> EncoderOptions:
        from dinosaur_ad.encoders.options import EncoderOptions

        return EncoderOptions(**self._job.options or {})

    def learn(self, images: Sequence[Path]) -> dict[str, Any]:
        """Into a new store; with the encoder loaded and warm before the clock starts."""
        import numpy as np

        from dinosaur_ad.detector import Dinosaur
        from dinosaur_ad.presets import Preset

        preset = None if self._job.preset is None else Preset.from_json(self._job.preset)
        detector = Dinosaur(
            Path(self._job.folder, "store"),
            encoder=self._job.encoder,
            preset=preset,
            seed=self._job.seed,
            options=self._options(),
        )
        blank = np.zeros((detector.encoder.batch_size, detector.encoder.size, detector.encoder.size, 3), np.uint8)
        detector.encoder.encode(blank)
        started = time.perf_counter()
        learned = detector.learn(TASK, list(images), progress=self._tell)
        seconds = time.perf_counter() - started
        self._detector = detector
        return {
            "images": learned.images,
            "epochs": None,
            "seconds": seconds,
            "parts": with_the_rest(seconds, learned.seconds),
            "members": learned.members,
        }

    def _tell(self, done: int, total: int | None) -> None:
        self._say(f"learned {done} of {total} images")

    def load(self) -> None:
        """The store, and its encoder."""
        from dinosaur_ad.detector import Dinosaur

        self._detector = Dinosaur.load(self._job.store or Path(self._job.folder, "store"), options=self._options())
        _ = self._detector.encoder

    @property
    def detector(self) -> Dinosaur:
        """The detector, once it has learned or was loaded."""
        assert self._detector is not None
        return self._detector

    def inspect(self, image: Path, height: int, width: int) -> dict[str, float]:
        """The detector names its stages itself; the map is brought to the size of the image as an overlay would."""
        started = time.perf_counter()
        inspection: Inspection = self.detector.inspect(image)
        inspected = time.perf_counter()
        upsampled(inspection.map, height, width)
        ended = time.perf_counter()
        stages = {stage: each for stage, each in inspection.ms.items() if stage != "total"}
        return with_the_rest((ended - started) * 1e3, stages | {"map": (ended - inspected) * 1e3})

    def inspect_many(self, images: Sequence[Path]) -> None:
        """As ``dinosaur inspect`` does with many files."""
        self.detector.inspect(list(images))

    def facts(self) -> dict[str, Any]:
        """Of the tasks in its store the average one."""
        detector, encoder = self.detector, self.detector.encoder
        records = detector.tasks()
        kept = {
            name: round(sum(record.files[name].bytes for record in records) / len(records)) for name in records[0].files
        }
        read = sum(size for name, size in kept.items() if name != "reserve")
        on_disk = f"; with the reserve for later updates {sum(kept.values()) / 2**20:.1f} MiB"
        whole = on_disk if detector.preset.reserve else ""
        calibration = ", and the calibration, which updating reads" if "calibration" in kept else ""
        return {
            "parameters": {"total": encoder.spec.parameters, "trainable": 0},
            "storage": {
                "task_bytes": read,
                "words": f"bank and prototype, which inspecting reads{calibration}{whole}",
                "files": kept,
                "tasks": len(records),
            },
            "made_with": detector.info(),
            "encoder_flops": encoder_flops(encoder.spec, encoder.size, encoder.layers),
        }


class ContractSubject:
    """A method of the benchmark, timed through the cache it reads its images from."""

    def __init__(self, job: SubjectJob, say: Say) -> None:
        from dinosaur_ad.methods import Workbench, get_method

        settings = {
            name: tuple(value) if isinstance(value, list) else value for name, value in (job.config or {}).items()
        }
        self._cache = StageCache()
        self._folder = Path(job.folder, "learned")
        workbench = Workbench(seed=job.seed, device=job.device, cache=self._cache, say=say)
        self.method = get_method(job.method).with_settings(settings).build(workbench)

    def learn(self, images: Sequence[Path]) -> dict[str, Any]:
        """One task; training methods for the epochs of their settings, which the result names."""
        from dinosaur_ad.methods import Lesson

        self.method.info()  # loads the network where there is one to load, before the clock starts
        epochs = getattr(self.method.config, "epochs", None)
        too_large = None if epochs is None else self._too_large()
        self._folder.mkdir(parents=True, exist_ok=True)
        if too_large:
            if not self.method.skip_training(TASK):
                raise InputError(f"It cannot be profiled here: {too_large}.")
            self.method.save(self._folder)
            return {"images": 0, "epochs": None, "seconds": None, "parts": {}, "skipped": too_large}
        self._cache.taken()
        started = time.perf_counter()
        self.method.learn(Lesson(TASK, tuple(map(_photo, images))))
        seconds, stages = time.perf_counter() - started, self._cache.taken()
        self.method.save(self._folder)
        # Training reads ahead in the background: only without it do the stages follow each other.
        parts = with_the_rest(seconds, stages) if epochs is None and "encode" in stages else {}
        return {"images": len(images), "epochs": epochs, "seconds": seconds, "parts": parts}

    def _too_large(self) -> str | None:
        """Why there is not enough memory to train, or None."""
        needed = self.method.parameters().trainable * BYTES_A_TRAINED_PARAMETER + 2**30
        available = available_bytes()
        if self.method.workbench.device != "cpu" or available is None or needed <= available:
            return None
        return f"learning needs about {needed / 2**30:.1f} GiB of memory and {available / 2**30:.1f} GiB are available"

    def load(self) -> None:
        """What :meth:`learn` kept."""
        self.method.load(self._folder)

    def inspect(self, image: Path, height: int, width: int) -> dict[str, float]:
        """Reading, resizing and, where it is told apart, encoding; the rest of scoring is ``score`` or ``model``."""
        photo = _photo(image)
        self._cache.taken()
        started = time.perf_counter()
        scores = self.method.score([photo])
        scored = time.perf_counter()
        if scores.maps is not None:
            upsampled(scores.maps[0], height, width)
        ended = time.perf_counter()
        stages = {stage: each * 1e3 for stage, each in self._cache.taken().items()}
        stages = with_the_rest((scored - started) * 1e3, stages, "score" if "encode" in stages else "model")
        return stages if scores.maps is None else stages | {"map": (ended - scored) * 1e3}

    def inspect_many(self, images: Sequence[Path]) -> None:
        """All in one call of ``score``."""
        self.method.score([_photo(image) for image in images])

    def facts(self) -> dict[str, Any]:
        """In the method's own words."""
        parameters, info = self.method.parameters(), self.method.info()
        words = info.get("storage", "all that has to be kept for what was learned, beyond the pretrained weights")
        shown = ("encoder", "description", "backend", "provider", "precision", "weights_source", "scoring", "regions")
        return {
            "parameters": {"total": parameters.total, "trainable": parameters.trainable},
            "storage": {"task_bytes": self.method.storage_bytes(), "words": str(words), "files": {}, "tasks": 1},
            "made_with": {key: info[key] for key in shown if key in info},
            "encoder_flops": None,
        }


def _photo(path: Path) -> Photo:
    from dinosaur_ad.datasets.keys import make_key
    from dinosaur_ad.images.loading import read_image
    from dinosaur_ad.methods import Photo

    return Photo(make_key("profile", str(path)), partial(read_image, path))
