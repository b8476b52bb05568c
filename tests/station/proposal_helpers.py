"""Proposals of a station without cameras: a taught product, "plate", and a history with parts of something else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from teaching_helpers import Bench, bench

from detector_helpers import product
from dinosaur_ad.station.config import ProposalsConfig, SinkConfig
from dinosaur_ad.station.jobs import Job
from dinosaur_ad.station.proposals import Proposals

STRANGE = 0
"""The kind of product that the station does not know."""
SINK = SinkConfig("plant", "webhook", "http://127.0.0.1:9/", secret_file=Path("secret"))


@dataclass
class ProposalBench:
    """What the tests of proposals use."""

    bench: Bench
    proposals: Proposals

    def show(self, images: Sequence[NDArray[np.uint8]], verdict: str = "unknown") -> list[int]:
        """Judge and record parts, and wait until they are gathered; their numbers."""
        numbers = []
        for pixels in images:
            part = self.bench.judged(pixels)
            assert part.verdict == verdict
            numbers.append(self.bench.history.record_part(part))
        self.bench.bus.publish("recorded", {"id": numbers[-1]})
        assert self.proposals.gathering.settle(60)
        return numbers

    def show_strange(self, count: int, seed: int = 0) -> list[int]:
        """Show parts of the product that is not known."""
        return self.show(product(STRANGE, count, seed=seed))

    def accepted(self, number: int, name: str) -> Job:
        """The ended job of a proposal that was accepted."""
        return self.bench.ended(self.proposals.accept(number, name, "Ann"))


@contextmanager
def proposing(
    folder: Path, config: ProposalsConfig | None = None, taught: Bench | None = None, **teaching: Any
) -> Iterator[ProposalBench]:
    """Running proposals; with ``taught`` those of a bench that runs already, for instance after a restart."""
    if taught is None:
        with bench(folder, **teaching) as taught, proposing(folder, config, taught) as running:
            yield running
        return
    proposals = Proposals(taught.teaching, taught.history, taught.bus, config, (SINK,))
    proposals.start()
    try:
        yield ProposalBench(taught, proposals)
    finally:
        proposals.stop()
