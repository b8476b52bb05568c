"""Batch inspection of very large image sets through Ray Data.

Paths go out in parts, results come back in the order of the paths, and only a few parts are under way at a time: what
is held does not grow with the number of images, beyond their names.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad import __version__
from dinosaur_ad.cluster.connection import connected, first_line, machines, refuse_other_version, worker_environment
from dinosaur_ad.cluster.listing import as_file, is_address
from dinosaur_ad.detector import INSPECT_AT_ONCE, Dinosaur
from dinosaur_ad.encoders.options import EncoderOptions
from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.images.finding import Found
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.inspection import Inspection, Rejected
from dinosaur_ad.store import TaskStore

# The most images that travel together; a multiple of INSPECT_AT_ONCE.
_LARGEST_PART = 16 * INSPECT_AT_ONCE
# Parts for each worker, where there are images enough: the slower one gets fewer.
_PARTS_PER_WORKER = 4
# Images fetched and decoded at a time in one worker: more than its cores, because object stores respond slowly.
_FETCH_THREADS = 8
# Seconds for the machines to remove what was unpacked on them.
_REMOVAL_SECONDS = 20.0


class Fleet:
    """The detector of a store on every machine of a Ray cluster: the stream and the results of :class:`Dinosaur`.

    ``detector`` has the store; ``weights``, ``provider`` and ``threads`` (one, unless said otherwise) are those of each
    worker. Paths must lead to the same files on all machines; addresses (``s3://...``) do so anyway.
    """

    def __init__(
        self,
        detector: Dinosaur,
        *,
        weights: str | Path | None = None,
        provider: str | None = None,
        threads: int | None = None,
        address: str | None = None,
    ) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"The number of threads must be at least 1, got {threads}.")
        self._detector = detector
        self._address = address
        self._threads = threads or 1
        place = None if weights is None else str(Path(weights).absolute())
        self._options = EncoderOptions(weights=place, provider=provider, threads=self._threads)
        self._info: dict[str, Any] = {}

    @property
    def store(self) -> TaskStore:
        """Where tasks are kept, on this machine."""
        return self._detector.store

    def info(self) -> dict[str, Any]:
        """What makes the results, from a worker; empty before the first image was inspected."""
        return self._info

    def stream(
        self, images: Sequence[Path | str], *, task: str | None = None, false_alarms: float | None = None
    ) -> Iterator[Inspection | Rejected]:
        """Inspect any number of images; the results come in their order, unreadable ones are reported and skipped."""
        self._refuse_early(task, false_alarms)
        with connected(self._address) as ray:
            store_files = _PackedStore(f"dinosaur-store-{uuid.uuid4().hex}", ray.put(_pack(self._detector)))
            order = _WorkOrder(store_files, self._options, task, false_alarms, __version__)
            try:
                for result in self._part_results(ray, order, images):
                    if isinstance(result, DinosaurError):
                        raise result
                    self._info = result.info or self._info
                    yield from result.results
            except ray.exceptions.RayError as error:
                raise InputError(
                    f"Ray could not finish ({first_line(error)}); see its logs, and whether every machine has the "
                    "same dinosaur-ad."
                ) from error
            finally:
                with suppress(Exception):  # a folder left on a machine that is gone must not hide what went wrong
                    _remove_everywhere(ray, store_files)

    def _refuse_early(self, task: str | None, false_alarms: float | None) -> None:
        """Refuse here and at once what every worker would refuse later."""
        with suppress(_AcceptedError):  # stream checks these before it takes the first image
            next(self._detector.stream(map(_no_image, [""]), task=task, false_alarms=false_alarms))

    def _part_results(
        self, ray: Any, order: _WorkOrder, images: Sequence[Path | str]
    ) -> Iterator[_PartResult | DinosaurError]:
        import ray.data as data

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        places = sum(int(machine.get("CPU", 0) // self._threads) for machine in machines(ray))
        if not places:
            raise InputError(
                f"No machine of the Ray cluster has {self._threads} cores for a worker; use fewer --threads."
            )
        parts = list(_parts(images, places))
        names = data.from_items(parts, override_num_blocks=len(parts))  # a part is a unit of work
        names.context.execution_options.preserve_order = True
        names.context.enable_progress_bars = False
        names.context.print_on_execution_start = False
        rows = names.map(
            _Inspector,
            fn_constructor_args=(order,),
            compute=data.ActorPoolStrategy(size=min(places, len(parts))),
            num_cpus=self._threads,
            runtime_env=worker_environment(self._threads),
        )
        for row in rows.iter_rows():
            yield row["result"]


class _AcceptedError(Exception):
    """The arguments were accepted: the first image was taken."""


def _no_image(name: str) -> Path:
    raise _AcceptedError


def _parts(images: Sequence[Path | str], places: int) -> Iterator[dict[str, list[str]]]:
    """What each image is called and where it is, a few groups at a time."""
    groups = -(-len(images) // (INSPECT_AT_ONCE * places * _PARTS_PER_WORKER))
    for part in batched(images, min(_LARGEST_PART, groups * INSPECT_AT_ONCE)):
        address = [str(image if is_address(image) else Path(image).absolute()) for image in part]
        yield {"label": [str(image) for image in part], "address": address}


# --- the store, on every machine once ---


@dataclass(frozen=True)
class _PackedStore:
    """The store as it goes to the workers: where it is unpacked on a machine, and a reference to its files."""

    folder: str
    files: Any

    def unpack(self, ray: Any) -> Path:
        """The folder on this machine, made by the first worker that needs it."""
        folder = Path(tempfile.gettempdir(), self.folder)
        if not folder.exists():
            new = Path(tempfile.mkdtemp(prefix=f"{self.folder}-"))
            for name, content in ray.get(self.files).items():
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                content.tofile(new / name)
            try:
                new.rename(folder)
            except OSError:  # another worker was faster
                shutil.rmtree(new)
        return folder


_FOR_UPDATES = ("reserve.safetensors", "calibration.safetensors")
"""What only an update reads; the reserve is the larger half of a task that has one."""


def _pack(detector: Dinosaur) -> dict[str, NDArray[np.uint8]]:
    """The files of the store as they are now; as arrays, which all workers of a machine share."""
    with tempfile.TemporaryDirectory(prefix="dinosaur-store-") as folder:
        detector.save(Path(folder) / "store")
        paths = [path for path in (Path(folder) / "store").rglob("*") if path.is_file()]
        wanted = [path for path in paths if path.name not in _FOR_UPDATES and not path.name.startswith(".")]
        return {
            path.relative_to(Path(folder) / "store").as_posix(): np.fromfile(path, dtype=np.uint8) for path in wanted
        }


def _remove_everywhere(ray: Any, store_files: _PackedStore) -> None:
    """Remove what was unpacked, on every machine that can still be reached."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remove = ray.remote(num_cpus=0, max_retries=0)(_remove)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    calls = [
        remove.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(store_files.folder)
        for node in nodes
    ]
    ray.wait(calls, num_returns=len(calls), timeout=_REMOVAL_SECONDS)


def _remove(folder: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{folder}*"):
        shutil.rmtree(path, ignore_errors=True)


# --- inspecting ---


@dataclass(frozen=True)
class _WorkOrder:
    """What every worker needs."""

    store_files: _PackedStore
    options: EncoderOptions
    task: str | None
    false_alarms: float | None
    version: str


@dataclass(frozen=True)
class _PartResult:
    """The results of one part of the images, and what made them."""

    info: dict[str, Any]
    results: list[Inspection | Rejected]


class _Inspector:
    """The detector in a worker process; Ray Data keeps one for each place in its pool."""

    def __init__(self, order: _WorkOrder) -> None:
        self._order = order
        self._detector: Dinosaur | None = None

    def __call__(self, part: Mapping[str, Any]) -> dict[str, _PartResult | DinosaurError]:
        """Inspect the images of one part; a refusal travels as a result, because as an error it would be retried."""
        try:
            return {"result": self._inspect_part(list(part["address"]), list(part["label"]))}
        except DinosaurError as error:
            return {"result": error}

    def _inspect_part(self, addresses: Sequence[str], labels: Sequence[str]) -> _PartResult:
        if self._detector is None:
            import ray

            refuse_other_version(self._order.version)
            self._detector = Dinosaur.load(self._order.store_files.unpack(ray), options=self._order.options)
        results: list[Inspection | Rejected] = []
        with ThreadPoolExecutor(_FETCH_THREADS, thread_name_prefix="fetch-image") as pool:
            # The same groups as in Dinosaur.stream, so that the encoder gets the same batches and gives the same bits.
            for group in batched(zip(addresses, labels, strict=True), INSPECT_AT_ONCE):
                with tempfile.TemporaryDirectory(prefix="dinosaur-images-") as folder:
                    started = time.perf_counter()
                    places = [Path(folder, str(number)) for number in range(len(group))]
                    files = list(pool.map(as_file, (address for address, _ in group), places))
                    ms = (time.perf_counter() - started) * 1e3 / len(group)
                    results += self._inspect(self._detector, group, files, ms)
        # An encoder that nothing was given to is not loaded for its name.
        inspected = any(isinstance(result, Inspection) for result in results)
        return _PartResult(self._detector.info() if inspected else {}, results)

    def _inspect(
        self,
        detector: Dinosaur,
        group: Sequence[tuple[str, str]],
        files: Sequence[Path | InputError],
        fetch_ms: float,
    ) -> Iterator[Inspection | Rejected]:
        """The results of some images, each called by its label."""
        found = Found(file for file in files if not isinstance(file, InputError))
        task, false_alarms = self._order.task, self._order.false_alarms
        results = iter(detector.stream(found, task=task, false_alarms=false_alarms) if found else ())
        for (address, label), file in zip(group, files, strict=True):
            if isinstance(file, InputError):
                yield Rejected(label, str(file).replace(address, label))
            elif isinstance(result := next(results), Rejected):
                yield Rejected(label, result.reason.replace(str(file), label))
            else:
                yield _named(result, label, fetch_ms)


def _named(inspection: Inspection, label: str, fetch_ms: float) -> Inspection:
    """The inspection of a fetched file as that of the image it was fetched from."""
    steps = inspection.ms | {"decode": round(inspection.ms["decode"] + fetch_ms, 3)}
    steps["total"] = round(sum(value for step, value in steps.items() if step != "total"), 3)
    return replace(inspection, path=label, ms=steps)
