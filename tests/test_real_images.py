"""What the shipped detector must reach on real images; the whole table is made by ``python -m benchmarks.real_images``.

The images come from the folder that DINOSAUR_DATA names. To stay within minutes on two cores, a part of each dataset is
used here: every n-th image, never a choice that depends on results.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from detector_helpers import shared_folder
from dinosaur_ad import Dinosaur
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.datasets import Task, mtd_scenario, mvtec_scenario

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data() -> Path:
    return shared_folder("DINOSAUR_DATA")


def images(samples: tuple, every: int) -> Iterator[np.ndarray]:
    return (sample.image() for sample in samples[::every])


def judge(detector: Dinosaur, task: Task, every: int) -> tuple[float, float, float]:
    """AUROC, false-alarm rate and share of images that found their own task."""
    results = detector.inspect(images(task.test, every))
    labels = np.asarray([sample.label for sample in task.test[::every]])
    flagged = np.asarray([each.anomalous for each in results])
    right = np.mean([each.task == task.name for each in results])
    return auroc([each.score for each in results], labels), flagged[labels == 0].mean(), right


def test_mvtec_products_learned_in_sequence_and_inspected_without_naming_them(data: Path) -> None:
    detector = Dinosaur(preset="fast")
    tasks = [task for task in mvtec_scenario(data / "mvtec_ad").tasks if task.name in ("bottle", "grid", "transistor")]
    for task in tasks:
        detector.learn(task.name, images(task.train, 2))
    measured = np.asarray([judge(detector, task, 2) for task in tasks])
    assert measured[:, 0].mean() >= 0.955
    assert measured[:, 1].mean() <= 0.10
    assert measured[:, 2].min() >= 0.95


def test_one_product_under_drifting_light_forgets_nothing_and_keeps_its_false_alarm_rate(data: Path) -> None:
    detector = Dinosaur(preset="fast")
    first, *_, last = mtd_scenario(data / "mtd", "color").tasks[:6]
    detector.learn(first.name, images(first.train, 2))
    before, _, _ = judge(detector, first, 3)
    detector.learn(last.name, images(last.train, 2))
    after, false_alarms, _ = judge(detector, first, 3)
    assert after >= before - 0.01
    assert after >= 0.915
    assert false_alarms <= 0.05


def test_the_preset_that_ships_finds_defects_from_twenty_images_and_knows_no_other_product(data: Path) -> None:
    tasks = {task.name: task for task in mvtec_scenario(data / "mvtec_ad").tasks}
    bottle, screw = tasks["bottle"], tasks["screw"]
    detector = Dinosaur()
    detector.learn("bottle", images(bottle.train[:20], 1))
    measured, flagged, _ = judge(detector, bottle, 4)
    assert measured >= 0.98
    assert flagged <= 0.2
    assert {each.verdict for each in detector.inspect(images(screw.test, 20))} == {"unknown"}
    dark = [(image * 0.6).astype(np.uint8) for image in images(bottle.test[::4], 1)]
    good = [image for image, sample in zip(dark, bottle.test[::4], strict=True) if not sample.label]
    assert sum(each.verdict != "normal" for each in detector.inspect(good)) <= 1
