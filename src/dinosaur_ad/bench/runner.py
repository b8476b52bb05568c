"""Run cells one after another on this machine. A cell that fails is recorded as failed, and the others are run."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import util
from pathlib import Path

import filelock

from dinosaur_ad.bench.cache import DEFAULT_LIMIT, GPU_MEMORY, DiskCache
from dinosaur_ad.bench.cell import CellSpec, OtherConfigurationError, run_cell
from dinosaur_ad.bench.environment import git_revision
from dinosaur_ad.bench.places import LocalPlace, Place, open_place
from dinosaur_ad.bench.results import ERROR, RESULT, CellResult, FailedCell
from dinosaur_ad.bench.scenarios import open_scenario, what_is_partial
from dinosaur_ad.datasets.tasks import Scenario
from dinosaur_ad.encoders.weights.weight_folder import cache_home
from dinosaur_ad.errors import DinosaurError, InputError, install_command
from dinosaur_ad.methods import choose_methods

Say = Callable[[str], None]
# Seconds between two lines of progress while images are encoded.
PROGRESS_SECONDS = 5.0


@dataclass(frozen=True)
class RunOptions:
    """Where a run reads and writes, and whether it is for publication. Nothing here changes a number.

    Without ``checkpoints`` nothing of an unfinished cell is written, and one that is stopped begins anew.
    """

    out: str
    data: Path | None = None
    cache: Path = field(default_factory=lambda: cache_home() / "bench")
    cache_limit: int = DEFAULT_LIMIT
    plugins: tuple[Path, ...] = ()
    publish: bool = False
    checkpoints: bool = True


def plan(
    methods: Sequence[str],
    scenarios: Sequence[str],
    seeds: Sequence[int],
    *,
    settings: Mapping[str, str] | None = None,
    device: str = "cpu",
) -> list[CellSpec]:
    """Every method on every scenario with every seed; wrong names and settings are refused here, before any work."""
    choices = choose_methods(methods, settings or {})
    for what, given in (("scenario", scenarios), ("seed", seeds)):
        if not given or len(set(given)) < len(given):
            raise InputError(f"Give at least one {what} and name each once, got '{','.join(map(str, given))}'.")
    if min(seeds) < 0:
        raise InputError(f"A seed of {min(seeds)} is not possible; give 0 or more.")
    cells = [CellSpec(choice, scenario, seed, device) for scenario in scenarios for choice in choices for seed in seeds]
    if len({cell.folder for cell in cells}) < len(cells):
        raise InputError(
            f"Two of the folders in '{','.join(scenarios)}' have the same name, and so would their results; run them "
            "with another --out each."
        )
    return cells


def run_local(cells: Sequence[CellSpec], where: RunOptions, say: Say) -> tuple[list[CellResult], list[FailedCell]]:
    """Run all cells in turn. Missing data or packages are refused before the first one begins."""
    refuse_missing(cells)
    opened = open_scenarios(cells, where.data, say)
    done: list[CellResult] = []
    failed: list[FailedCell] = []
    for number, cell in enumerate(cells, start=1):
        report = prefixed(say, f"[{number}/{len(cells)}] {cell.name}")
        outcome = run_one(cell, where, report, scenario=opened[cell.scenario, cell.seed])
        if isinstance(outcome, CellResult):
            done.append(outcome)
        else:
            failed.append(outcome)
    return done, failed


def open_scenarios(cells: Sequence[CellSpec], data: Path | None, say: Say) -> dict[tuple[str, int], Scenario]:
    """The scenarios of all cells by name and seed, each built once; a dataset that is not complete is reported."""
    wanted = dict.fromkeys((cell.scenario, cell.seed) for cell in cells)
    opened = {(name, seed): open_scenario(name, data, seed) for name, seed in wanted}
    for scenario in {name: scenario for (name, _), scenario in opened.items()}.values():
        if partial := what_is_partial(scenario, data):
            say(f"{scenario.name}: {partial}")
    return opened


def run_one(
    cell: CellSpec, where: RunOptions, say: Say, *, scenario: Scenario | None = None, lock_seconds: float = 0.0
) -> CellResult | FailedCell:
    """Run one cell on this machine; any error but a wrong configuration becomes its outcome.

    ``scenario`` is built here unless it is given. ``lock_seconds`` is how long to wait for another process that works
    on the same cell.
    """
    load_plugins(where.plugins)
    place = open_place(where.out).below(cell.folder)
    with _locked(place, cell, lock_seconds):
        try:
            refuse_missing([cell])
            if scenario is None:
                scenario = open_scenario(cell.scenario, where.data, cell.seed)
            memory = 0 if cell.device == "cpu" else GPU_MEMORY
            cache = DiskCache(where.cache, where.cache_limit, _progress(say), memory)
            result = run_cell(
                cell, scenario, place, cache=cache, say=say, publish=where.publish, checkpoints=where.checkpoints
            )
        except OtherConfigurationError:
            raise
        except Exception as error:
            # An error of one method is a result about that method, and no reason to stop the others.
            failure = _failure(cell, error)
            if not place.has(RESULT):  # a finished result, perhaps of other settings, did not fail
                failure.save(place)
            say(f"failed: {failure.error}")
            return failure
        place.remove(ERROR)
    return result


def refuse_missing(cells: Sequence[CellSpec]) -> None:
    """Refuse what would fail only after computing: missing packages, a source revision that is not a commit.

    :raises InputError: it names all that is missing at once.
    """
    git_revision()
    missing = sorted({name for cell in cells for name in _needed(cell) if util.find_spec(name) is None})
    if missing:
        raise InputError(
            f"This run needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed; "
            f"install what the benchmark needs with: {install_command('bench')}."
        )


def _needed(cell: CellSpec) -> Iterator[str]:
    method = cell.choice.spec.method
    yield from method.needs
    if method.has_maps:  # pixel metrics tell regions apart with it
        yield "scipy"
    if cell.device != "cpu":
        yield "torch"


def prefixed(say: Say, prefix: str) -> Say:
    """The same callback with a prefix, the name of a cell, before every line."""
    return lambda text: say(f"{prefix}: {text}")


def load_plugins(paths: Sequence[Path]) -> None:
    """Import Python files that register methods of their own; each once a process."""
    for path in paths:
        name = f"dinosaur_plugin_{path.stem}"
        if name in sys.modules:
            continue
        spec = util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise InputError(f"'{path}' is not a Python file; --load takes the file that registers your method.")
        module = util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise InputError(f"'{path}' could not be loaded ({type(error).__name__}: {error}); correct it.") from error


def _failure(cell: CellSpec, error: Exception) -> FailedCell:
    foreseen = isinstance(error, DinosaurError)
    sentence = str(error) if foreseen else f"{type(error).__name__}: {error}".splitlines()[0]
    details = "" if foreseen else "".join(traceback.format_exception(error))
    return FailedCell(cell.choice.name, cell.scenario, cell.seed, sentence, details)


@contextmanager
def _locked(place: Place, cell: CellSpec, seconds: float) -> Iterator[None]:
    """Keep two runs on one disk from writing the same cell; an object store has no locks."""
    if not isinstance(place, LocalPlace):
        with nullcontext():
            yield
        return
    place.path().mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(place.path(".lock"))
    try:
        lock.acquire(timeout=seconds)
    except filelock.Timeout as error:
        raise InputError(
            f"Another run is working on {cell.name} in '{place}'; wait for it, or leave that cell out."
        ) from error
    try:
        yield
    finally:
        lock.release()


def _progress(say: Say) -> Callable[[str, int, int], None]:
    """A callback that prints a line of progress every few seconds."""
    last = time.monotonic()

    def progress(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > PROGRESS_SECONDS:
            last = time.monotonic()
            say(f"{what} {done} of {total} images")

    return progress
