"""Everything the benchmark measures, as small functions of scores, labels, maps and masks; see docs/metrics.md."""

from __future__ import annotations

from dinosaur_ad.bench.metrics.continual import bwt, final_average, fm_diagonal, fm_paper, fm_std, fwt
from dinosaur_ad.bench.metrics.equal_light import EqualLight, equal_light_auroc
from dinosaur_ad.bench.metrics.image import (
    Confusion,
    Ranked,
    auroc_by_kind,
    confusion,
    ranked_auroc,
    roc_curve,
    routing_accuracy,
    train_threshold,
)
from dinosaur_ad.bench.metrics.intervals import Interval, bootstrap_mean_auroc, seed_spread
from dinosaur_ad.bench.metrics.pixel import PixelAuroc, PixelTally, task_tally
from dinosaur_ad.bench.metrics.ranks import rank_correlation
from dinosaur_ad.bench.metrics.resize import mask_at, upsample

__all__ = [
    "Confusion",
    "EqualLight",
    "Interval",
    "PixelAuroc",
    "PixelTally",
    "Ranked",
    "auroc_by_kind",
    "bootstrap_mean_auroc",
    "bwt",
    "confusion",
    "equal_light_auroc",
    "final_average",
    "fm_diagonal",
    "fm_paper",
    "fm_std",
    "fwt",
    "mask_at",
    "rank_correlation",
    "ranked_auroc",
    "roc_curve",
    "routing_accuracy",
    "seed_spread",
    "task_tally",
    "train_threshold",
    "upsample",
]
