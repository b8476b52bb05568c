"""One cell of the benchmark: a method learns the tasks of a scenario in turn and is tested after each.

After every task the method scores the test images of all tasks, learned or not: one row of the T x T matrix. The row
and the method's state are on disk before the next task begins, so a killed cell resumes and ends in the same numbers.
Within a task, a method that trains writes checkpoints of its own to the scratch folder it is given.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._memory import peak_memory_bytes
from dinosaur_ad.bench.checkpoints import Checkpoints, MatrixRow, clear_scratch, scratch_folder
from dinosaur_ad.bench.environment import environment, peak_device_bytes, source_sha256
from dinosaur_ad.bench.foreign_results import LARGEST_DOCUMENT, read_document
from dinosaur_ad.bench.lessons import lesson, photo, task_checksum, test_photos
from dinosaur_ad.bench.metrics import ranked_auroc, task_tally, train_threshold
from dinosaur_ad.bench.places import Place
from dinosaur_ad.bench.publish import by_one_revision, refuse_unpublishable
from dinosaur_ad.bench.results import FORMAT, RESULT, CellResult, TaskScores, cell_folder
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Cache, Method, MethodChoice, NoCache, Scores, Workbench

CELL = "cell.json"
Say = Callable[[str], None]


class OtherConfigurationError(InputError):
    """The folder holds a result of other settings, data or weights."""


@dataclass(frozen=True)
class CellSpec:
    """What is to be run: one method with its settings, one scenario, one seed, on one kind of device."""

    choice: MethodChoice
    scenario: str
    seed: int
    device: str = "cpu"

    @property
    def name(self) -> str:
        """Method, scenario and seed, for messages."""
        return f"{self.choice.name} on {self.scenario}, seed {self.seed}"

    @property
    def folder(self) -> str:
        """Where its files are, below the folder of all results."""
        return cell_folder(self.choice.name, self.scenario, self.seed)


def run_cell(
    cell: CellSpec,
    scenario: Scenario,
    place: Place,
    *,
    cache: Cache | None = None,
    say: Say = print,
    publish: bool = False,
    checkpoints: bool = True,
) -> CellResult:
    """Run a cell to its end, or resume it where it was stopped; the result of a finished one is only read.

    The method of a finished cell is built only if a setting names a file (of weights, say) that could be another one
    now. With ``publish`` a cell is refused unless all of it is from one exact revision, and the result says so. Without
    ``checkpoints`` nothing is written before the result; tasks that an earlier run has finished are not done again.
    """
    if publish:
        refuse_unpublishable(place)
    identity = _identity(cell, scenario)
    stored = _refuse_other(place, identity)
    finished = place.has(RESULT)
    if finished and not cell.choice.config.named_files():
        return _finished(place, say)
    with scratch_folder(place) as scratch:
        kept_in = scratch if checkpoints else None
        method = cell.choice.build(Workbench(cell.seed, cell.device, cache or NoCache(), kept_in, say))
        identity["weights"] = method.info().get("weights_sha256")
        if stored is None:
            place.write(CELL, json.dumps(identity, indent=1).encode())
        else:
            _refuse_differences(place, stored, identity)
        if finished:
            return _finished(place, say)
        return _run_tasks(cell, scenario, place, method, kept_in, say, publish=publish)


def _finished(place: Place, say: Say) -> CellResult:
    say("already done")
    result = CellResult.load(place)
    Checkpoints(place).clear()  # a run that was killed after its result was written has left them
    return result


def _run_tasks(
    cell: CellSpec, scenario: Scenario, place: Place, method: Method, scratch: Path | None, say: Say, *, publish: bool
) -> CellResult:
    """Learn and test the tasks that are not done yet, and write the result; checkpoints only with a ``scratch``."""
    checkpoints = Checkpoints(place)
    rows = checkpoints.resume(method, scenario.tasks, say)
    if rows:
        say(f"resuming after task {len(rows)} of {len(scenario.tasks)}")
    for index in range(len(rows), len(scenario.tasks)):
        row = _learn_and_test(cell, scenario, method, index, say)
        if scratch is not None:
            checkpoints.keep(index, method, row)
            clear_scratch(scratch)
        rows.append(row)
    result = _result(cell, scenario, method, rows)
    result = replace(result, published=publish and by_one_revision(result.environments))
    result.save(place)
    checkpoints.clear()
    if publish and not result.published:
        raise InputError(
            f"The source was changed while {cell.name} ran, so its result is kept but not for publication; remove "
            f"'{place}' and run it again."
        )
    return result


def _identity(cell: CellSpec, scenario: Scenario) -> dict[str, Any]:
    """All that decides the numbers, but for the hash of the weights; a folder holds results of one identity only."""
    return {
        "format": FORMAT,
        "method": cell.choice.name,
        "settings": cell.choice.config.identity(),
        "scenario": cell.scenario,
        "seed": cell.seed,
        "device": cell.device,
        "data": [task_checksum(task) for task in scenario.tasks],
    }


def _refuse_other(place: Place, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The identity that is stored at ``place``, None if nothing is; refused where it differs."""
    try:
        stored = read_document(place.read(CELL, LARGEST_DOCUMENT))
    except FileNotFoundError:
        if place.has(RESULT):
            raise OtherConfigurationError(
                f"'{place}' holds a packed result, which does not say all that made it; choose another --out."
            ) from None
        return None
    except (ValueError, OSError) as error:
        raise InputError(f"'{place}/{CELL}' is damaged; remove that folder and run the cell again.") from error
    _refuse_differences(place, stored, identity | {"weights": stored.get("weights")})
    return stored


def _refuse_differences(place: Place, stored: dict[str, Any], identity: dict[str, Any]) -> None:
    different = _differences(stored, json.loads(json.dumps(identity)))
    if different:
        raise OtherConfigurationError(
            f"'{place}' holds a result of another configuration (different: {', '.join(different)}); results are not "
            "mixed: choose another --out, or remove that folder."
        )


def _differences(stored: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """The keys in which two configurations differ; of settings, which of them."""
    different = sorted(key for key in {**stored, **asked} if stored.get(key) != asked.get(key))
    if "settings" in different:
        before, now = stored.get("settings"), asked.get("settings")
        if isinstance(before, dict) and isinstance(now, dict):
            different[different.index("settings")] = f"settings {', '.join(_differences(before, now))}"
    return different


def _learn_and_test(cell: CellSpec, scenario: Scenario, method: Method, index: int, say: Say) -> MatrixRow:
    """Teach task ``index``, then score everything: the training images of the tasks learned, the test images of all."""
    total = len(scenario.tasks)
    say(f"task {index + 1} of {total}: learning {scenario.tasks[index].name}")
    started = time.perf_counter()
    method.learn(lesson(scenario, index))
    learned = time.perf_counter()
    say(f"task {index + 1} of {total}: testing all {total} tasks")
    arrays: dict[str, NDArray[Any]] = {}
    thresholds, images = [], 0
    for column, task in enumerate(scenario.tasks):
        if column <= index:
            train = [photo(sample) for sample in task.train]
            thresholds.append(train_threshold(method.score(train).image))
            images += len(train)
        arrays |= _test(cell, scenario, method, column, learned=column <= index, with_maps=index == total - 1)
        images += len(task.test) * (2 if f"{column}/oracle" in arrays else 1)
    notes = {
        "task": scenario.tasks[index].name,
        "learn_seconds": learned - started,
        "score_seconds": time.perf_counter() - learned,
        "images_scored": images,
        "storage_bytes": method.storage_bytes(),
        "peak_memory_bytes": peak_memory_bytes(),
        "peak_device_bytes": peak_device_bytes(cell.device),
        "thresholds": thresholds,
        "environment": environment(cell.device) | {"method_sha256": source_sha256(type(method).__module__)},
    }
    return MatrixRow(arrays, notes)


def _test(
    cell: CellSpec, scenario: Scenario, method: Method, column: int, *, learned: bool, with_maps: bool
) -> dict[str, NDArray[Any]]:
    """The scores of one task's test images in the order of the dataset, whatever order the method saw them in."""
    task = scenario.tasks[column]
    photos, order = test_photos(task, cell.seed)
    scores = method.score(photos)
    _check(scores, len(photos), method, cell.choice.name)
    names = [task.name for task in scenario.tasks]
    found: dict[str, NDArray[Any] | None] = {"scores": scores.image, "own_thresholds": scores.thresholds}
    if scores.routes is not None:
        found["routes"] = np.asarray([names.index(route) for route in scores.routes], np.int16)
        if learned:
            found["oracle"] = method.score(photos, task.name).image
    if with_maps and scores.maps is not None:
        found["maps"] = scores.maps.astype(np.float16)
    return {f"{column}/{key}": _unshuffled(value, order) for key, value in found.items() if value is not None}


def _unshuffled(values: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    back = np.empty_like(values)
    back[order] = values
    return back


def _check(scores: Scores, count: int, method: Method, name: str) -> None:
    """Refuse scores, maps or routes of the wrong shape: better an error than a wrong table."""
    if scores.image.shape != (count,):
        raise InputError(
            f"{name} gave scores of shape {scores.image.shape} for {count} images; one an image is expected."
        )
    if (scores.maps is not None) != method.has_maps or (scores.maps is not None and len(scores.maps) != count):
        raise InputError(f"{name} declares has_maps={method.has_maps}, but its maps do not agree; correct the method.")
    if (scores.routes is not None) != method.routes or (scores.routes is not None and len(scores.routes) != count):
        raise InputError(f"{name} declares routes={method.routes}, but its routes do not agree; correct the method.")


# --- from rows to the result ---


def _result(cell: CellSpec, scenario: Scenario, method: Method, rows: Sequence[MatrixRow]) -> CellResult:
    parameters = method.parameters()
    ranked = [
        [ranked_auroc(row.arrays[f"{column}/scores"], _labels(task)) for column, task in enumerate(scenario.tasks)]
        for row in rows
    ]
    environments = [row.notes.pop("environment") for row in rows]
    thresholds = [row.notes.pop("thresholds") for row in rows]
    distinct = [entry for n, entry in enumerate(environments) if entry not in environments[:n]]
    return CellResult(
        method=cell.choice.name,
        summary=cell.choice.summary,
        scenario=cell.scenario,
        seed=cell.seed,
        settings=cell.choice.config.identity(),
        info=method.info() | {"device": cell.device},
        parameters={"total": parameters.total, "trainable": parameters.trainable},
        scenario_info={
            "description": scenario.description,
            "licence": scenario.licence,
            "citation": scenario.citation,
            "replay": (scenario.replay if cell.choice.spec.replay else "none"),
            "same_images": scenario.same_images,
        },
        tasks=[_about(task) for task in scenario.tasks],
        auroc=np.asarray([[entry.auroc for entry in row] for row in ranked]),
        nan_scores=np.asarray([[entry.nan for entry in row] for row in ranked]),
        thresholds=np.asarray([row + [np.nan] * (len(rows) - len(row)) for row in thresholds]),
        oracle_auroc=_oracle(scenario, rows) if method.routes else None,
        routing=_routing(scenario, rows) if method.routes else None,
        pixel=_pixel(scenario, rows[-1]) if method.has_maps else None,
        rows=[
            row.notes | {"environment": distinct.index(entry)} for row, entry in zip(rows, environments, strict=True)
        ],
        environments=distinct,
        final=[_final(task, column, rows) for column, task in enumerate(scenario.tasks)],
    )


def _labels(task: Task) -> NDArray[np.int8]:
    return np.asarray([sample.label for sample in task.test], np.int8)


def _about(task: Task) -> dict[str, Any]:
    anomalous = int(_labels(task).sum())
    return {
        "name": task.name,
        "train": len(task.train),
        "held_out": len(task.validation),
        "test_normal": len(task.test) - anomalous,
        "test_anomalous": anomalous,
        "checksum": task_checksum(task),
    }


def _oracle(scenario: Scenario, rows: Sequence[MatrixRow]) -> NDArray[np.float64]:
    """AUROC with the true task given; undefined before it is learned."""
    matrix = np.full((len(rows), len(rows)), np.nan)
    for index, row in enumerate(rows):
        for column in range(index + 1):
            matrix[index, column] = ranked_auroc(row.arrays[f"{column}/oracle"], _labels(scenario.tasks[column])).auroc
    return matrix


def _routing(scenario: Scenario, rows: Sequence[MatrixRow]) -> NDArray[np.float64]:
    """The share of images taken for their own task; undefined before it is learned."""
    matrix = np.full((len(rows), len(rows)), np.nan)
    for index, row in enumerate(rows):
        for column in range(index + 1):
            matrix[index, column] = np.mean(row.arrays[f"{column}/routes"] == column)
    return matrix


def _pixel(scenario: Scenario, row: MatrixRow) -> list[dict[str, float]]:
    """Localisation by the final model: pooled over a task's pixels at 224 px, AU-sPRO at each image's own size."""
    measured = []
    for column, task in enumerate(scenario.tasks):
        map_NHW = row.arrays[f"{column}/maps"].astype(np.float32)
        tally = task_tally(map_NHW, task.test)
        pixel = tally.auroc()
        entry = {"auroc": pixel.value, "auroc_bound": pixel.bound, "aupro": tally.aupro(), "unmarked": tally.unmarked}
        entry |= _saturated(map_NHW, task)
        measured.append(entry)
    return measured


def _saturated(map_NHW: NDArray[np.float32], task: Task) -> dict[str, float]:
    """AU-sPRO as MVTec-LOCO defines it: each kind of anomaly apart, at native size, then their mean."""
    found = {}
    kinds = {sample.kind for sample in task.test if sample.label and sample.regions() is not None}
    for kind in sorted(kinds):
        rows = [n for n, sample in enumerate(task.test) if not sample.label or sample.kind == kind]
        found[f"au_spro {kind}"] = task_tally(map_NHW[rows], [task.test[n] for n in rows], size=None).au_spro()
    return found | ({"au_spro": float(np.mean(list(found.values())))} if found else {})


def _final(task: Task, column: int, rows: Sequence[MatrixRow]) -> TaskScores:
    last = rows[-1].arrays
    return TaskScores(
        labels=_labels(task),
        kinds=tuple(sample.kind for sample in task.test),
        scores=last[f"{column}/scores"],
        oracle=last.get(f"{column}/oracle"),
        routes=last.get(f"{column}/routes"),
        own_thresholds=last.get(f"{column}/own_thresholds"),
        history=np.stack([row.arrays[f"{column}/scores"] for row in rows]),
        names=tuple(sample.name for sample in task.test),
        maps=last.get(f"{column}/maps"),
    )
