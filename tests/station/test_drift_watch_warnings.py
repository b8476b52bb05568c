"""A change of light, camera or product is said once, with the parts that show it; defects alone are none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detector_helpers import TINY_FAST, product, spoil, tiny

pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed (it comes with the extra 'station')")

from dinosaur_ad.bank.bank_files import read_bank
from dinosaur_ad.detector import Dinosaur
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import DriftConfig
from dinosaur_ad.station.drift_watch import DriftWatch
from dinosaur_ad.station.history.history import History
from dinosaur_ad.station.part import JudgedPart, Picture, View
from dinosaur_ad.station.product_watch import ProductWatch, Sighting

_numbers = itertools.count(1)


@dataclass
class Line:
    """A store with two products, a history, and numbers of parts as the products' calibration has them."""

    detector: Dinosaur
    history: History
    bus: Bus
    like: dict[str, Inspection]
    random: np.random.Generator
    arrays: dict[str, Any] = field(default_factory=dict)

    def part(
        self, task: str = "plate", *, moved: float = 1.0, gain: float = 1.0, verdict: str = "normal", score: float = 0.0
    ) -> JudgedPart:
        """A part whose score and level are drawn like those of the calibration, ``moved`` times as high."""
        if task not in self.arrays:
            self.arrays[task] = read_bank(self.detector.store, self.detector.store.record(task))[0]
        arrays = self.arrays[task]
        n = int(self.random.integers(len(arrays["scores"])))
        jitter = float(self.random.normal(1, 0.004))
        found = replace(
            self.like[task],
            score=score or float(arrays["scores"][n]) * moved * jitter,
            level=float(arrays["levels"][n]) * moved * jitter,
            gain=gain * float(np.exp(self.random.normal(0, 0.03))),
            verdict=verdict,
        )
        key = f"camera:{next(_numbers)}"
        picture = Picture(key, "camera", datetime.now(UTC), pixels=np.zeros((8, 8, 3), np.uint8))
        return JudgedPart(key, picture.taken, (View(picture, found),))

    def watch(self, **config: Any) -> DriftWatch:
        made = DriftWatch(self.history, self.bus, DriftConfig(**config), self.detector)
        made.start()
        assert made.settle(30)
        return made

    def give(
        self, watch: DriftWatch, count: int, until_warned: bool = False, record: bool = True, **how: Any
    ) -> list[int]:
        """Watch so many parts, and record them; their ids."""
        ids = []
        for _ in range(count):
            part = self.part(**how)
            if record:
                ids.append(self.history.record_part(part))
            watch.take(part)
            if until_warned and watch.settle(30) and self.history.warnings():
                break
        assert watch.settle(30)
        return ids


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Inspection]]:
    folder = tmp_path_factory.mktemp("drift") / "store"
    detector = tiny(folder, preset=TINY_FAST)
    detector.learn("plate", product(1, 40))
    detector.learn("gear", product(2, 40))
    like = {name: detector.inspect(product(kind, 1, seed=3)[0]) for name, kind in (("plate", 1), ("gear", 2))}
    return folder, like


@pytest.fixture
def line(taught: tuple[Path, dict[str, Inspection]], tmp_path: Path) -> Iterator[Line]:
    folder, like = taught
    history = History("", tmp_path / "station")
    history.open()
    yield Line(tiny(folder, preset=TINY_FAST), history, Bus(), like, np.random.default_rng(0))
    history.close()


def test_parts_as_learned_and_defects_among_them_are_no_change(line: Line) -> None:
    watch = line.watch()
    try:
        line.give(watch, 60, record=False)
        line.give(watch, 60, record=False, verdict="anomalous", score=50.0)  # a bad batch
        assert line.history.warnings() == []
        state = watch.state()["products"]["plate"]
        assert (state["parts"], state["warned"]) == (120, False)
    finally:
        watch.stop()


def test_a_changed_product_is_said_once_with_the_parts_that_show_it(line: Line) -> None:
    watch = line.watch()
    try:
        with line.bus.subscribed() as messages:
            line.give(watch, 40, record=False)
            changed = line.give(watch, 50, until_warned=True, moved=1.15)
            told = [message for message in iter(messages.take, None) if message.kind == "warning"]
        (warning,) = line.history.warnings()
        assert len(changed) <= 30
        assert (warning.kind, warning.task) == ("product", "plate")
        assert "recalibrate 'plate'" in warning.sentence
        assert len(warning.parts) >= 3
        assert len(set(warning.parts) & set(changed)) >= len(warning.parts) - 1
        assert [message.body["id"] for message in told] == [warning.id]
        line.give(watch, 30, record=False, moved=1.15)
        assert len(line.history.warnings(open_only=False)) == 1
        assert watch.state()["products"]["plate"]["warned"]
    finally:
        watch.stop()


def test_a_closed_warning_accepts_how_it_is_and_a_further_change_warns_again(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dinosaur_ad.station.drift_watch.ASK_SECONDS", 0.0)
    watch = line.watch()
    try:
        line.give(watch, 60, until_warned=True, moved=1.2)
        (warning,) = line.history.warnings()
        line.history.close_warning(warning.id, "ada")
        line.give(watch, 110, record=False, moved=1.2)
        assert line.history.warnings() == []
        line.give(watch, 60, until_warned=True, moved=1.5)
        assert len(line.history.warnings()) == 1
    finally:
        watch.stop()
    again = line.watch()  # what a person accepted is known after a restart too
    try:
        assert again.state()["products"]["plate"]["warned"]
    finally:
        again.stop()


@pytest.mark.parametrize("both", [True, False])
def test_the_light_of_all_products_is_told_from_a_change_of_one(line: Line, both: bool) -> None:
    watch = line.watch()
    try:
        for _ in range(70):
            line.give(watch, 1, record=False, task="gear")
            line.give(watch, 1, record=False, task="plate")
        for _ in range(14):
            line.give(watch, 1, task="gear", gain=1.3 if both else 1.0)
            line.give(watch, 1, task="plate", gain=1.3)
        (warning,) = line.history.warnings()
        assert (warning.kind, warning.task) == (("light", None) if both else ("product", "plate"))
        assert set(warning.detail["tasks"]) == ({"gear", "plate"} if both else {"plate"})
        assert warning.detail["light_ratio"] == pytest.approx(1 / 1.3, abs=0.06)
        assert "of the contrast they had" in warning.sentence
    finally:
        watch.stop()


def test_a_lamp_that_fails_slowly_is_noticed_though_no_score_changes(line: Line) -> None:
    watch = line.watch()
    try:
        line.give(watch, 80, record=False)
        for step in range(120):
            line.give(watch, 1, record=step > 5, gain=1 + 0.003 * step)
            if line.history.warnings():
                break
        (warning,) = line.history.warnings()
        assert warning.kind == "light"
        assert "of the contrast they had" in warning.sentence
        assert step < 90
    finally:
        watch.stop()


def test_a_restart_forgets_nothing(line: Line) -> None:
    watch = line.watch()
    line.give(watch, 40)
    line.give(watch, 3, moved=1.15)
    before = watch.state()["products"]["plate"]
    watch.stop()
    again = line.watch()
    try:
        after = again.state()["products"]["plate"]
        assert after["parts"] == before["parts"] == 43
        assert after["evidence"] == pytest.approx(before["evidence"], rel=0.05)
    finally:
        again.stop()


def test_a_confirmed_defect_does_not_begin_the_watch_anew_and_teaching_does(line: Line, tmp_path: Path) -> None:
    store = tmp_path / "own"
    line.detector.save(store)
    line.detector = tiny(store, preset=TINY_FAST)
    watch = line.watch()
    try:
        line.give(watch, 20)
        line.detector.add_defects("plate", [spoil(product(1, 1, seed=5)[0])], force=True)
        line.give(watch, 5)
        assert watch.state()["products"]["plate"]["parts"] == 25
        line.detector.recalibrate("plate", product(1, 10, seed=9))
        line.give(watch, 5)
        assert watch.state()["products"]["plate"]["parts"] == 5
    finally:
        watch.stop()


def test_a_history_that_is_down_holds_nothing_up(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = line.watch()
    try:
        line.give(watch, 20)

        def down(*_: Any, **__: Any) -> int:
            raise OSError("no database")

        with monkeypatch.context() as broken:
            broken.setattr(line.history, "add_warning", down)
            line.give(watch, 40, moved=1.2)
        assert line.history.warnings() == []
        line.give(watch, 1, moved=1.2)  # said as soon as it can be
        assert len(line.history.warnings()) == 1
    finally:
        watch.stop()


def test_defects_of_any_share_are_no_evidence() -> None:
    """Half of the parts are defects of any size: the parts that pass are as they were."""
    random = np.random.default_rng(4)
    scores, levels = random.lognormal(0, 0.1, 80), random.lognormal(0, 0.05, 80)
    watch = ProductWatch(scores, levels)
    for n in range(600):
        if random.random() < 0.5:
            watch.take(Sighting(str(n), float(random.uniform(1.5, 9)), 2.0, None, "anomalous"))
        else:
            watch.take(Sighting(str(n), float(random.lognormal(0, 0.1)), float(random.lognormal(0, 0.05)), None))
        assert watch.log_evidence < np.log(10_000)
