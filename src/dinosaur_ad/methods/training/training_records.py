"""How a training went, in a few numbers that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dinosaur_ad.methods.training.training_steps import EpochLog


def finite_or_none(value: float) -> float | None:
    """The number, or None where JSON has none for it.

    >>> finite_or_none(0.5), finite_or_none(math.nan)
    (0.5, None)
    """
    return value if math.isfinite(value) else None


def loss_record(logs: Sequence[EpochLog]) -> dict[str, Any]:
    """The loss of the first and the last epoch, and how many steps were skipped because theirs was not finite.

    >>> log = EpochLog(epoch=0, loss=2.5, nan=1, extra={}, seconds=0.0)
    >>> loss_record([log])
    {'epochs': 1, 'first_loss': 2.5, 'last_loss': 2.5, 'losses_not_finite': 1}
    """
    return {
        "epochs": len(logs),
        "first_loss": finite_or_none(logs[0].loss),
        "last_loss": finite_or_none(logs[-1].loss),
        "losses_not_finite": sum(log.nan for log in logs),
    }
