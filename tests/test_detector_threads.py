"""A detector that is given threads scores with no more of them than it encodes with."""

from __future__ import annotations

from typing import Any

import pytest

from detector_helpers import product, tiny
from dinosaur_ad.bank import bank


@pytest.mark.parametrize("threads", [None, 1, 2])
def test_the_threads_of_a_detector_reach_its_scoring(threads: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    detector = tiny(threads=threads)
    detector.learn("gear", product(0, 6))
    given, score = [], bank.patch_distances

    def patch_distances(*arrays: Any, **options: Any) -> Any:
        given.append(options["threads"])
        return score(*arrays, **options)

    monkeypatch.setattr(bank, "patch_distances", patch_distances)
    detector.inspect(product(0, 2))
    assert given == [threads] * 2  # patches, and windows of them
    assert detector.encoder.threads == threads
