"""The calibration images of a task: what normal images that the memory has not seen score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.bank.bank import levels, read_images
from dinosaur_ad.bank.bank_files import KEPT_OUT
from dinosaur_ad.core.arrays import to_numpy
from dinosaur_ad.core.calibration import without_defects
from dinosaur_ad.core.map_shape import rest
from dinosaur_ad.core.readings import Distances, Fused, ReadingScale, reading_scale
from dinosaur_ad.core.zones import Zone
from dinosaur_ad.presets import Preset

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]


class Calibration:
    """Scores and levels (median patch distances) of unseen normal images; ``scored`` is the image each belongs to (-1:
    held out, or unknown; -2: held out, and scored anew whenever the memory changes).

    Where the preset has one reading, a score is all that is kept of an image. With several, what is usual for each
    depends on all images, so their distances are kept (``maps``), in float16; images that do not count say what is
    usual, and give no score. All of it is computed anew for another ``zone``; with one reading it stays that of the
    whole image. ``tiles`` is of how many each image consists. ``anywhere``: places do not count. ``unlabelled``:
    some of the images may be defects, so that the highest scores count as what the others say of them.
    """

    def __init__(self, preset: Preset, zone: Zone | None = None, tiles: int = 1, *, anywhere: bool = False) -> None:
        self.scored: list[int] = []
        self._zone = zone
        self._tiles = tiles
        self.anywhere = anywhere
        self.unlabelled = False
        self._preset = preset
        self._scores: list[float] = []
        self._levels: list[float] = []
        self._point: list[NDArray[np.float16]] = []
        self._coarse: list[NDArray[np.float16]] = []
        self._counts: list[bool] = []
        self._derived: tuple[ReadingScale, Floats, float] | None = None

    @classmethod
    def stored(
        cls,
        preset: Preset,
        bank: Mapping[str, NDArray[Any]],
        maps: Mapping[str, NDArray[Any]],
        zone: Zone | None = None,
        tiles: int = 1,
        *,
        anywhere: bool = False,
    ) -> Calibration:
        """What a task's files hold; ``maps`` is empty where the preset has one reading."""
        calibration = cls(preset, zone, tiles, anywhere=anywhere)
        calibration.scored = bank["scored"].tolist()
        if calibration._fused:
            calibration.scored, calibration._counts = maps["scored"].tolist(), maps["counts"].tolist()
            calibration._point = list(maps["point"])
            calibration._coarse = list(maps.get("coarse", ()))
        else:
            calibration._scores, calibration._levels = bank["scores"].tolist(), bank["levels"].tolist()
        return calibration

    def __len__(self) -> int:
        return len(self.scored)

    @property
    def _fused(self) -> bool:
        return len(self._preset.readings) > 1

    def take(self, distances: Distances, images: Sequence[int], *, counts: bool = True) -> None:
        """Add images by their distances to a memory that has not seen them; of one reading only those that count."""
        if self._fused:
            self._counts += [counts] * len(images)
            self._point += list(np.asarray(to_numpy(distances.point_NHW), np.float16))
            if distances.coarse_Nhw is not None:
                self._coarse += list(np.asarray(to_numpy(distances.coarse_Nhw), np.float16))
        else:
            self._scores += read_images(distances, self._preset, None, tiles=self._tiles).score_N.tolist()
            self._levels += levels(distances).tolist()
        self.scored += images
        self._derived = None

    def follow(self, newest: int) -> None:
        """From now on, the images are such that nobody has looked at; only so many of them are kept, the newest, and
        all that are scored anew whenever the memory changes."""
        self.unlabelled = True
        others = [n for n, image in enumerate(self.scored) if image != KEPT_OUT]
        self._leave_out(set(others[: max(0, len(others) - newest)]))

    def drop_kept_out(self) -> None:
        """Leave out the images that are to be scored anew."""
        self._leave_out({n for n, image in enumerate(self.scored) if image == KEPT_OUT})

    def _leave_out(self, places: set[int]) -> None:
        for rows in (self.scored, self._scores, self._levels, self._point, self._coarse, self._counts):
            for place in sorted((n for n in places if n < len(rows)), reverse=True):
                del rows[place]
        self._derived = None

    def rescale(self, point: Sequence[float], coarse: Sequence[float]) -> None:
        """Multiply the distances of each image, of patches and of windows, by a share."""
        if self._fused:
            self._point = [np.float16(share) * each for share, each in zip(point, self._point, strict=True)]
            if self._coarse:
                self._coarse = [np.float16(share) * each for share, each in zip(coarse, self._coarse, strict=True)]
        else:
            self._scores = [share * score for share, score in zip(point, self._scores, strict=True)]
            self._levels = [share * level for share, level in zip(point, self._levels, strict=True)]
        self._derived = None

    @property
    def scale(self) -> ReadingScale | None:
        """What is usual for each reading; None where there is only one."""
        return self._derive()[0] if self._fused else None

    @property
    def scores(self) -> Floats:
        """The scores ``(n,)``."""
        score_n = self.measured_scores
        return np.asarray(without_defects(score_n), np.float32) if self.unlabelled else score_n

    @property
    def measured_scores(self) -> Floats:
        """The scores ``(n,)`` as they were measured, also where some may be those of defects."""
        return self._derive()[1] if self._fused else np.asarray(self._scores, np.float32)

    @property
    def levels(self) -> Floats:
        """The median patch distances ``(n,)``."""
        if not self._fused:
            return np.asarray(self._levels, np.float32)
        return levels(self._distances(self._counting), self._zone)

    @property
    def _counting(self) -> list[int]:
        """The places of the images that count."""
        return [n for n, counts in enumerate(self._counts) if counts]

    @property
    def _learned(self) -> list[int]:
        """The places of the images that were learned too; those that were held out, where there are no others."""
        return [n for n, image in enumerate(self.scored) if image >= 0] or list(range(len(self)))

    def _distances(self, rows: list[int]) -> Distances:
        """Of some of the images."""
        coarse = np.stack([self._coarse[n] for n in rows]).astype(np.float32) if self._coarse else None
        return Distances(np.stack([self._point[n] for n in rows]).astype(np.float32), coarse)

    def _derive(self) -> tuple[ReadingScale, Floats, float]:
        """What is usual for each reading, the scores, and the usual value of a map."""
        if self._derived is None:
            # Held-out images set the threshold and nothing else, so that an image scores the same without them.
            learned, readings, counting = self._distances(self._learned), self._preset.readings, self._counting
            scale = reading_scale(learned, readings, self._zone, self._tiles, anywhere=self.anywhere)

            def read(rows: list[int]) -> Fused:
                return read_images(self._distances(rows), self._preset, scale, self._zone, self._tiles)

            fused = read(counting)
            inspected = fused.map_NHW if self._zone is None else fused.map_NHW[:, self._zone.patches_HW]
            if self._preset.map_relative:
                usual = [n for n in counting if self.scored[n] >= 0] or self._learned
                maps = fused.map_NHW if usual == counting else read(usual).map_NHW
                scale = scale._replace(map_rest=float(np.median(rest(maps, self._zone))))
            self._derived = scale, fused.score_N, float(np.median(inspected))
        return self._derived

    @property
    def scored_images(self) -> list[int]:
        """The image that each of the scores belongs to."""
        return (
            [image for image, counts in zip(self.scored, self._counts, strict=True) if counts]
            if self._fused
            else self.scored
        )

    def arrays(self) -> Arrays:
        """What inspecting needs."""
        arrays: Arrays = {
            "scores": self.scores,
            "levels": self.levels,
            "scored": np.asarray(self.scored_images, np.int32),
        }
        if scale := self.scale:
            arrays |= {"usual": scale.usual_HW, "reading_mean": scale.mean_R, "reading_spread": scale.spread_R}
            arrays["map_level"] = np.asarray([self._derive()[2]], np.float32)
            if self._preset.map_relative:
                arrays["map_rest"] = np.asarray([scale.map_rest], np.float32)
        return arrays

    def maps(self) -> Arrays:
        """The distances that a later change starts from; empty where the preset has one reading."""
        if not self._fused:
            return {}
        rows = {"scored": np.asarray(self.scored, np.int32), "counts": np.asarray(self._counts, np.bool_)}
        coarse = {"coarse": np.stack(self._coarse)} if self._coarse else {}
        return {"point": np.stack(self._point)} | coarse | rows
