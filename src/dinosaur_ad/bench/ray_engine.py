"""Cells on a Ray cluster: each is one task that runs the same :func:`~dinosaur_ad.bench.runner.run_one`.

A worker writes rows, checkpoints and the result where a local run would; only names and sentences travel. When a worker
or its machine dies, Ray gives the cell to another one, which goes on after the last row.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from dinosaur_ad import __version__
from dinosaur_ad.bench.cell import CellSpec
from dinosaur_ad.bench.places import Place, open_place
from dinosaur_ad.bench.results import RESULT, CellResult, FailedCell
from dinosaur_ad.bench.runner import RunOptions, Say, load_plugins, open_scenarios, run_one
from dinosaur_ad.bench.scenarios import DATA_VARIABLE
from dinosaur_ad.cluster import connected, first_line, machines, refuse_other_version, worker_environment
from dinosaur_ad.errors import DinosaurError, InputError
from dinosaur_ad.methods import get_method

# How often a cell whose worker died is given to another; one that kills every worker must end at some time.
RETRIES = 10
# Seconds to wait for the lock of a lost worker: a network file system notices late that a machine is gone.
LOCK_SECONDS = 60.0
# Seconds between two polls for messages of the workers, and until a poll times out.
_POLL_SECONDS, _POLL_TIMEOUT = 0.5, 5.0


def run_ray(
    cells: Sequence[CellSpec],
    where: RunOptions,
    say: Say,
    *,
    address: str | None = None,
    cpus: float = 1,
    gpus: float = 1,
) -> tuple[list[CellResult], list[FailedCell]]:
    """Run all cells on the Ray cluster at ``address``, else on one made of this machine's cores.

    A cell claims ``cpus`` cores and, on the device ``cuda``, ``gpus`` GPUs (a fraction: so many share one). Results,
    failures and refusals are those of :func:`~dinosaur_ad.bench.runner.run_local`, in the order of the cells.
    """
    for cell in cells:
        if cell.device not in ("cpu", "cuda"):
            raise InputError(f"Ray itself gives each cell a GPU; write --device cuda instead of {cell.device}.")
    open_scenarios(cells, where.data, say)  # missing data is refused here, not on a worker
    claims = [{"num_cpus": cpus, "num_gpus": gpus if cell.device == "cuda" else 0} for cell in cells]
    with connected(address) as ray:
        _check_resources(ray, claims, say, can_grow=bool(address or os.environ.get("RAY_ADDRESS")))
        outcomes = _RayRun(ray, cells, _absolute(where), say).finish(claims)
    done = [outcome for outcome in outcomes if isinstance(outcome, CellResult)]
    return done, [outcome for outcome in outcomes if isinstance(outcome, FailedCell)]


def _absolute(where: RunOptions) -> RunOptions:
    """The same with paths that do not depend on where a worker was started, nor on its variables."""
    data = where.data or (Path(variable) if (variable := os.environ.get(DATA_VARIABLE)) else None)
    return replace(
        where,
        out=where.out if "://" in where.out else str(Path(where.out).absolute()),
        data=None if data is None else data.expanduser().absolute(),
        cache=where.cache.absolute(),
        plugins=tuple(path.absolute() for path in where.plugins),
    )


def _check_resources(ray: Any, claims: Sequence[dict[str, float]], say: Say, *, can_grow: bool) -> None:
    """Refuse what would wait for ever; a cluster elsewhere may grow, so there it is only said."""
    there = machines(ray)
    for cpus, gpus in {(claim["num_cpus"], claim["num_gpus"]) for claim in claims}:
        if any(machine.get("CPU", 0) >= cpus and machine.get("GPU", 0) >= gpus for machine in there):
            continue
        sentence = f"A cell wants {cpus:g} CPU cores and {gpus:g} GPUs, and no machine of the Ray cluster has as many"
        if not can_grow:
            raise InputError(f"{sentence}; claim less, use --device cpu, or name another cluster with --address.")
        say(f"{sentence}: it waits until there is one.")


@dataclass(frozen=True)
class _CellJob:
    """A cell as it travels: by names, because a method of the user's own is known there only once it is loaded."""

    method: str
    settings: dict[str, Any]
    scenario: str
    seed: int
    device: str
    where: RunOptions
    prefix: str
    folder: str
    version: str = __version__

    @classmethod
    def of(cls, cell: CellSpec, where: RunOptions, prefix: str) -> _CellJob:
        """The job of one cell."""
        config = cell.choice.config
        settings = {entry.name: getattr(config, entry.name) for entry in fields(config)}
        return cls(cell.choice.name, settings, cell.scenario, cell.seed, cell.device, where, prefix, str(Path.cwd()))

    def cell(self) -> CellSpec:
        """The cell to run."""
        return CellSpec(get_method(self.method).with_settings(self.settings), self.scenario, self.seed, self.device)


@dataclass(frozen=True)
class _WorkerAnswer:
    """How a cell ended: its result is in its folder, or it failed, or it was refused with a sentence."""

    failed: FailedCell | None = None
    refused: str = ""


class _MessageQueue:
    """An actor that collects the messages of the workers until they are fetched."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def put(self, line: str) -> None:
        """Add a line."""
        self._lines.append(line)

    def take(self) -> list[str]:
        """All lines since the last call."""
        lines, self._lines = self._lines, []
        return lines


def _work(job: _CellJob, messages: Any) -> _WorkerAnswer:
    """On a worker: run the cell. What the user should read is returned; an error would come as a dump of Ray's."""
    import ray

    said: list[Any] = []
    prefix = job.prefix  # a method gets this callback, and must not reach the job, which names the data folder

    def say(text: str) -> None:
        # Not waited for here: while a task waits, Ray lends its core to another cell.
        said.append(messages.put.remote(f"{prefix}: {text}"))

    try:
        refuse_other_version(job.version)
        with suppress(OSError):  # so that folder:PATH and weights mean what they mean to the one who asked
            os.chdir(job.folder)
        load_plugins(job.where.plugins)
        outcome = run_one(job.cell(), job.where, say, lock_seconds=LOCK_SECONDS)
    except DinosaurError as error:
        return _WorkerAnswer(refused=str(error))
    finally:
        if said:
            ray.wait(said, num_returns=len(said), timeout=_POLL_TIMEOUT)
    return _WorkerAnswer(failed=outcome if isinstance(outcome, FailedCell) else None)


class _RayRun:
    """All cells of a run on the cluster, and their outcomes."""

    def __init__(self, ray: Any, cells: Sequence[CellSpec], where: RunOptions, say: Say) -> None:
        self._ray = ray
        self._cells = cells
        self._where = where
        self._place = open_place(where.out)
        self._say = say
        self._messages = ray.remote(num_cpus=0, max_restarts=-1)(_MessageQueue).remote()

    def finish(self, claims: Sequence[dict[str, float]]) -> list[CellResult | FailedCell]:
        """Give all cells to the cluster and wait for them; a refusal or an interruption ends those that still run."""
        ray, outcomes = self._ray, {}
        pending = {self._submit(number, claim): number for number, claim in enumerate(claims)}
        try:
            while pending:
                ready, _ = ray.wait(list(pending), timeout=_POLL_SECONDS)
                self._print_messages()
                for reference in ready:
                    number = pending.pop(reference)
                    outcomes[number] = self._outcome(self._cells[number], reference)
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)
            ray.kill(self._messages)
        return [outcomes[number] for number in range(len(self._cells))]

    def _submit(self, number: int, claim: dict[str, float]) -> Any:
        cell = self._cells[number]
        job = _CellJob.of(cell, self._where, f"[{number + 1}/{len(self._cells)}] {cell.name}")
        options = claim | {"runtime_env": worker_environment(claim["num_cpus"])}
        # One process a cell: its peak of memory is its own, and nothing is left over from the cell before.
        work = self._ray.remote(max_calls=1, max_retries=RETRIES, **options)(_work)
        return work.remote(job, self._messages)

    def _print_messages(self) -> None:
        with suppress(self._ray.exceptions.RayError):
            for line in self._ray.get(self._messages.take.remote(), timeout=_POLL_TIMEOUT):
                self._say(line)

    def _outcome(self, cell: CellSpec, reference: Any) -> CellResult | FailedCell:
        place = self._place.below(cell.folder)
        try:
            answer: _WorkerAnswer = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            return self._lost(cell, place, error)
        if answer.refused:
            raise InputError(answer.refused)
        if answer.failed:
            return answer.failed
        if not place.has(RESULT):
            raise InputError(
                f"A worker finished {cell.name}, but '{place}' does not have its result; --out must be a folder that "
                "all machines share, or an address such as s3://bucket/results."
            )
        return CellResult.load(place)

    def _lost(self, cell: CellSpec, place: Place, error: Exception) -> FailedCell:
        """A cell that no worker survived, or that none could begin."""
        sentence = f"Ray gave the cell up after {RETRIES + 1} attempts or could not begin it ({first_line(error)})"
        failure = FailedCell(cell.choice.name, cell.scenario, cell.seed, sentence, str(error))
        failure.save(place)
        self._say(f"{cell.name}: failed: {sentence}")
        return failure
