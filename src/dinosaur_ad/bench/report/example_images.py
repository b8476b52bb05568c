"""A few images of a cell with their maps, on an absolute scale; for full results, where the data is at hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dinosaur_ad.bench.lessons import task_checksum
from dinosaur_ad.bench.metrics import upsample
from dinosaur_ad.bench.report.numbers import alarm_thresholds, threshold_words
from dinosaur_ad.bench.results import CellResult, TaskScores
from dinosaur_ad.bench.scenarios import FOLDER_PREFIX, open_scenario
from dinosaur_ad.datasets.tasks import Sample, Scenario
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.drawing import FAR, colours, outline
from dinosaur_ad.images.loading import Pixels
from dinosaur_ad.page.html import Html, element, image, join

SHOWN_TASKS = 6
_SIDE = 168


@dataclass(frozen=True)
class ShownImage:
    """An image that is shown, and why."""

    index: int
    why: str


def spread_evenly(count: int, shown: int = SHOWN_TASKS) -> list[int]:
    """Which of ``count`` tasks are shown when not all can be: the first, the last and those evenly between.

    >>> spread_evenly(3), spread_evenly(10)
    ([0, 1, 2], [0, 2, 4, 5, 7, 9])
    """
    return sorted({int(at) for at in np.round(np.linspace(0, count - 1, min(count, shown)))})


def gallery(cell: CellResult, data: Path | None) -> Html:
    """The pictures of a cell, or one sentence that says why there are none."""
    if any(task.maps is None or task.names is None for task in cell.final):
        why = (
            "The method makes no maps."
            if cell.pixel is None
            else "This is a compact result, which holds no maps; the folder that the benchmark was run into has them."
        )
        return element("p", why, class_="lead")
    try:
        scenario = open_scenario(cell.scenario, data, cell.seed)
        _refuse_other_images(cell, scenario)
        samples = {task.name: {sample.name: sample for sample in task.test} for task in scenario.tasks}
        cards = [
            card
            for index in spread_evenly(len(cell.tasks))
            for card in _cards(cell, index, samples[cell.tasks[index]["name"]])
        ]
    except KeyError as error:
        return element("p", f"The data found is not that of this result: {error.args[0]} is missing.", class_="lead")
    except InputError as error:
        return element("p", f"The images could not be read. {error}", class_="lead")
    lead = (
        "Of each task a typical normal image, a typical catch, the worst miss and the worst false alarm, as far as "
        "there are any. Colour is absolute: clear where a patch is as usual for normal images, orange at "
        f"{threshold_words(cell)}, magenta far beyond; the true defect is outlined in cyan." + some_tasks(cell)
    )
    return join((element("p", lead, class_="lead"), element("div", *cards, class_="gallery small")))


def _refuse_other_images(cell: CellResult, scenario: Scenario) -> None:
    """Refuse a folder whose images are not those of the result: a result from elsewhere could name any path."""
    known = [task["checksum"] for task in cell.tasks]
    if cell.scenario.startswith(FOLDER_PREFIX) and known != [task_checksum(task) for task in scenario.tasks]:
        raise InputError(f"The images in '{cell.scenario[:200]}' are not those that this result was made with.")


def some_tasks(cell: CellResult) -> str:
    """A sentence that says how many tasks are shown; empty when all are."""
    shown, count = len(spread_evenly(len(cell.tasks))), len(cell.tasks)
    return f" {shown} of {count} tasks are shown." if shown < count else ""


def choose(task: TaskScores, threshold_N: NDArray[np.float64]) -> list[ShownImage]:
    """A typical normal image and a typical catch, the worst miss and the worst false alarm; those that there are.

    >>> scores = np.float32([1, 2, 3, 1, 6, 7])
    >>> task = TaskScores(np.int8([0, 0, 0, 1, 1, 1]), ("good",) * 3 + ("crack",) * 3, scores)
    >>> [(choice.index, choice.why) for choice in choose(task, np.full(6, 2.5))]
    [(1, 'typical normal'), (5, 'typical catch'), (3, 'worst miss'), (2, 'worst false alarm')]
    """
    excess_N = task.scores - threshold_N
    order = np.argsort(excess_N, kind="stable")
    order = order[np.isfinite(excess_N[order])]
    anomalous, alarm = task.labels[order] == 1, excess_N[order] > 0
    groups = (
        ("typical normal", order[~anomalous], 0.5),
        ("typical catch", order[anomalous & alarm], 0.5),
        ("worst miss", order[anomalous & ~alarm], 0.0),
        ("worst false alarm", order[~anomalous & alarm], 1.0),
    )
    return [
        ShownImage(int(members[min(int(share * len(members)), len(members) - 1)]), why)
        for why, members, share in groups
        if len(members)
    ]


def _cards(cell: CellResult, index: int, samples: dict[str, Sample]) -> Iterator[Html]:
    task, threshold_N = cell.final[index], alarm_thresholds(cell, index)
    assert task.maps is not None  # checked by the caller
    assert task.names is not None
    normal = task.maps[task.labels == 0]
    # What is usual on normal images is clear, the threshold is orange: the same for all images of the task.
    usual = float(np.median(normal.astype(np.float32))) if normal.size else 0.0
    for choice in choose(task, threshold_N):
        sample, threshold = samples[task.names[choice.index]], threshold_N[choice.index]
        heat_hw = (task.maps[choice.index].astype(np.float32) - usual) / max(threshold - usual, 1e-6)
        where = f"{cell.tasks[index]['name']}, {sample.kind.replace('_', ' ')}"
        relative = f": {task.scores[choice.index] / threshold:.2f}× threshold" if threshold > 0 else ""
        lines = element("p", element("b", where), element("span", choice.why + relative))
        yield element("article", element("figure", image(painted(sample, heat_hw), where)), lines, class_="card")


def painted(sample: Sample, heat_hw: NDArray[np.float32], side: int = _SIDE) -> Pixels:
    """The image, its longer side ``side`` pixels, with heat (1 is the threshold) and the true defect outlined."""
    small = Image.fromarray(sample.image())
    zoom = side / max(small.size)
    small = small.resize((max(1, round(small.width * zoom)), max(1, round(small.height * zoom))))
    layer = colours(upsample(np.clip(heat_hw, 0, 2 * FAR), small.height, small.width))
    alpha = layer[..., 3:] / 255
    pixels = (np.asarray(small) * (1 - alpha) + layer[..., :3] * alpha).round().astype(np.uint8)
    mask = sample.mask()
    if mask is None or not mask.any():
        return pixels
    return outline(pixels, np.asarray(Image.fromarray(mask).resize(small.size, Image.Resampling.NEAREST)))
