"""Synthetic products: seeded, procedural photographs with defects and exact masks, for demo and tests.

A product draws a :class:`~dinosaur_ad.datasets.synthetic.surface.Surface` (albedo, height, gloss), a defect
changes that surface, and one camera model turns it into pixels. To add a product, write one module with a
:class:`~dinosaur_ad.datasets.synthetic.product.Product` and list it in :data:`PRODUCTS`.
"""

from __future__ import annotations

from dinosaur_ad.datasets.synthetic.scenario import (
    PRODUCTS,
    SyntheticSample,
    synthetic_drift_scenario,
    synthetic_scenario,
)

__all__ = ["PRODUCTS", "SyntheticSample", "synthetic_drift_scenario", "synthetic_scenario"]
