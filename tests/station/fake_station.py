"""A station for the tests of the pages: real history, accounts, teaching and detector, but no camera and no judging.

``python tests/station/fake_station.py PORT FOLDER`` serves it with pictures that look like parts, to look at the pages.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector_helpers import product, spoil, tiny
from dinosaur_ad import __version__
from dinosaur_ad.core.map_regions import cells_above
from dinosaur_ad.inspection import Inspection, WorstPatch
from dinosaur_ad.station.accounts import Accounts
from dinosaur_ad.station.bus import Bus
from dinosaur_ad.station.config import PartConfig, SourceConfig, StationConfig
from dinosaur_ad.station.history.history import History
from dinosaur_ad.station.part import JudgedPart, Picture, View
from dinosaur_ad.station.proposals import Proposals
from dinosaur_ad.station.station_teaching import Teaching
from dinosaur_ad.station.tables import ChangeRow

PASSWORD = "seven long brown words"
GRID = 16
THRESHOLD = 1.0


class FakeSource:
    """Counts its triggers."""

    def __init__(self, config: SourceConfig, state: str = "running", reason: str = "") -> None:
        self.config, self.name, self._state, self._reason = config, config.name, state, reason
        self.triggered = 0

    def trigger(self) -> None:
        self.triggered += 1

    def state(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.config.kind,
            "view": self.config.view,
            "task": self.config.task,
            "trigger": self.config.trigger,
            "state": self._state,
            "reason": self._reason,
            "since": datetime.now(UTC).isoformat(),
            "last_picture": datetime.now(UTC).isoformat(),
            "reconnects": 2,
            "accepted": 1284,
        }


class FakeStation:
    """Has the attributes of a Station that the pages use."""

    def __init__(self, folder: Path, sources: Sequence[str] = ("camera-1",), learn: Sequence[str] = ("gear",)) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        configs = tuple(SourceConfig(name, "camera", trigger="http") for name in sources)
        self.config = StationConfig(folder / "store", folder / "own", part=PartConfig(), sources=configs)
        self.bus = Bus()
        self.detector = tiny(folder / "store")
        self.history = History("", folder / "own")
        self.history.open()
        self.accounts = Accounts(self.history)
        self.teaching = Teaching(self.detector, self.history, self.bus)
        self.proposals = Proposals(self.teaching, self.history, self.bus)
        self.sources = {each.name: FakeSource(each) for each in configs}
        for kind, name in enumerate(learn):
            self.detector.learn(name, product(kind, 24), force=True)
        self.teaching.start()
        self.proposals.start()
        self.started = datetime.now(UTC).isoformat()
        self.sinks: list[dict[str, Any]] = []
        self._number = 0

    def stop(self) -> None:
        self.proposals.stop()
        self.teaching.stop()
        self.history.close()

    def state(self) -> dict[str, Any]:
        times = {"p50": 83.2, "p99": 121.9}
        pipeline = {"running": True, "queue": 1, "capacity": 32, "when_full": "wait", "judged": 1284, "dropped": 0}
        return {
            "version": __version__,
            "started": self.started,
            "store": str(self.config.store),
            "encoder": self.detector.info(),
            "pipeline": pipeline | {"total_ms": times, "encode_ms": {"p50": 71.0, "p99": 96.4}},
            "recorder": {"waiting": 0, "recorded": 1284, "not_kept": 0, "journal_bytes": 4096, "database_error": ""},
            "sources": [each.state() for each in self.sources.values()],
            "sinks": self.sinks,
            "history": self.history.disk(),
            "teaching": self.teaching.state(),
            "warnings": len(self.history.warnings()),
            "proposals": self.proposals.state(),
            "products": [record.name for record in self.detector.tasks()],
            "damaged": {},
        }

    def record(
        self,
        verdict: str = "normal",
        *,
        task: str = "gear",
        source: str = "camera-1",
        pixels: NDArray[np.uint8] | None = None,
        mask: NDArray[np.bool_] | None = None,
        ago: float = 0.0,
        score: float | None = None,
        key: str = "",
        reason: str = "",
    ) -> int:
        """Record a part; its id."""
        part = self.judged(
            verdict, task=task, source=source, pixels=pixels, mask=mask, ago=ago, score=score, key=key, reason=reason
        )
        return self.history.record_part(part)

    def judged(
        self,
        verdict: str = "normal",
        *,
        task: str = "gear",
        source: str = "camera-1",
        pixels: NDArray[np.uint8] | None = None,
        mask: NDArray[np.bool_] | None = None,
        ago: float = 0.0,
        score: float | None = None,
        key: str = "",
        reason: str = "",
    ) -> JudgedPart:
        """A part as the judging would give it."""
        self._number += 1
        if pixels is None:
            pixels = product(0, 1, seed=self._number)[0]
            pixels = spoil(pixels) if verdict == "anomalous" else pixels
        taken = datetime.now(UTC) - timedelta(seconds=ago)
        name = key or f"{source}:{self._number}"
        seen = inspection_of(verdict, task, pixels, mask, score, reason, self._number)
        picture = Picture(name, source, taken, pixels=pixels)
        ms = {"wait": 3.1, "read": 8.4, "encode": 70.2, "score": 1.9, "total": 84.0}
        return JudgedPart(name, taken, (View(picture, seen, ms=ms),))


def inspection_of(
    verdict: str,
    task: str,
    pixels: NDArray[np.uint8],
    mask: NDArray[np.bool_] | None,
    score: float | None,
    reason: str,
    seed: int,
) -> Inspection:
    """An inspection whose map is high where the mask is, or in one corner."""
    rng = np.random.default_rng(seed)
    patches = rng.uniform(0.3, 0.6, (GRID, GRID)).astype(np.float32)
    if verdict == "anomalous":
        if mask is None:
            patches[6:9, 9:12] = 1.6
        else:
            height, width = (side // GRID for side in mask.shape)
            share = mask[: height * GRID, : width * GRID].reshape(GRID, height, GRID, width).mean(axis=(1, 3))
            patches += np.float32(1.3) * (share > 0.05) + share.astype(np.float32)
        assert cells_above(patches, THRESHOLD)
    row, column = (int(each) for each in np.unravel_index(int(patches.argmax()), patches.shape))
    size = (int(pixels.shape[0]), int(pixels.shape[1]))
    box = (column * size[1] // GRID, row * size[0] // GRID, (column + 1) * size[1] // GRID, (row + 1) * size[0] // GRID)
    value = float(patches.max()) if score is None else score
    return Inspection(
        path="",
        task=task,
        score=value,
        p_value=0.002 if verdict == "anomalous" else 0.42,
        verdict=verdict,
        threshold=THRESHOLD,
        false_alarms=0.025,
        normal_level=0.45,
        worst=WorstPatch(row, column, box, float(patches.max()), "learned/0001.png", 4, 5),
        asked={task: value},
        encoder="tiny-dinov2",
        ms={"encode": 70.2},
        map=patches,
        image_size=size,
        provider="CPU",
        precision="float32",
        reason=reason,
        readings={"point": value, "pooled": value * 0.8, "located": value * 1.1},
        level=0.45,
        level_ratio=1.02,
        gain=1.01,
    )


def rich_station(folder: Path, sources: Sequence[str] = ("camera-1",)) -> FakeStation:
    """A station with a past, for looking at: synthetic parts with defects, answers, warnings, changes."""
    from dinosaur_ad.datasets.synthetic import SyntheticSample

    station = FakeStation(folder, sources, ("gear", "blister"))
    with station.history.session() as session:
        for minutes, by, action, sentence in (
            (800, "Ines", "learn", "Learned 'gear' with 24 pictures."),
            (300, "Tom", "sensitivity", "'gear' is set anew: threshold 0.9 -> 1."),
        ):
            made = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat(timespec="microseconds")
            session.add(ChangeRow(made=made, by=by, task="gear", action=action, sentence=sentence, detail={}))
    kinds = {"gear": ("chip",), "blister": ()}
    rng = np.random.default_rng(1)
    for number in range(70):
        task = "gear" if number % 5 else "blister"
        bad = number % 9 == 4 and task == "gear"
        sample = SyntheticSample(task, kinds[task][0] if bad else "good", index=number, size=384)
        lamp = 1 + max(0, number - 45) * 0.012
        score = float(rng.uniform(1.3, 2.6)) if bad else float(rng.uniform(0.45, 0.8)) * lamp
        verdict = "anomalous" if bad else "unknown" if number == 30 else "normal"
        part = station.record(
            verdict,
            task=task,
            source=sources[number % len(sources)],
            pixels=sample.image(),
            mask=sample.mask() if bad else None,
            ago=(70 - number) * 600,
            score=score,
            reason="It differs all over, 3.1 times as much as a good part." if verdict == "unknown" else "",
        )
        if bad:
            station.history.save_feedback(
                part, "Ines", "fine" if number % 18 == 4 else "defect", note="seen on the belt"
            )
    shown = [row.id for row in station.history.latest(4)]
    sentence = (
        "Its good parts score 1.8 deviations higher than those learned, since 40 parts; the light may have changed."
    )
    station.history.add_warning("task", "gear", sentence, {}, shown)
    mqtt = {"name": "plant", "kind": "mqtt", "state": "waiting", "reason": "Connection refused; next try in 8 s."}
    station.sinks = [mqtt | {"waiting": 12, "delivered": 1204, "failed": 0, "last_delivery": None}]
    return station


if __name__ == "__main__":
    from dinosaur_ad.station.web.app import create_app, make_server

    port, names = int(sys.argv[1]), tuple(sys.argv[3:]) or ("camera-1",)
    shown = rich_station(Path(sys.argv[2]), names)
    from dataclasses import replace

    shown.config = replace(shown.config, server=replace(shown.config.server, port=port))
    make_server(create_app(shown), shown.config.server).run()
