"""What drawing needs to know of an inspection.

An inspection draws itself, so the drawing lies below :mod:`dinosaur_ad.inspection` and cannot import it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Worst(Protocol):
    """The part of :class:`~dinosaur_ad.inspection.WorstPatch` that is drawn."""

    @property
    def row(self) -> int: ...

    @property
    def column(self) -> int: ...

    @property
    def box(self) -> tuple[int, int, int, int]: ...

    @property
    def like_image(self) -> str: ...

    @property
    def like_row(self) -> int: ...

    @property
    def like_column(self) -> int: ...

    @property
    def like_digest(self) -> str: ...


class Outlined(Protocol):
    """The part of :class:`~dinosaur_ad.inspection.Region` that is drawn."""

    @property
    def contour(self) -> tuple[tuple[int, int], ...]: ...


class Drawable(Protocol):
    """The part of :class:`~dinosaur_ad.inspection.Inspection` that is drawn."""

    @property
    def path(self) -> str: ...

    @property
    def task(self) -> str: ...

    @property
    def verdict(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def score(self) -> float: ...

    @property
    def threshold(self) -> float: ...

    @property
    def p_value(self) -> float: ...

    @property
    def normal_level(self) -> float: ...

    @property
    def worst(self) -> Worst: ...

    @property
    def map(self) -> NDArray[np.float32]: ...

    @property
    def regions(self) -> Sequence[Outlined]: ...
