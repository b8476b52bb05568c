"""docs/metrics.md is right: its examples run, in order and in one session, and it leaves no metric out."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from dinosaur_ad.bench import metrics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_every_example_on_the_page_runs() -> None:
    examples = doctest.DocTestParser().get_doctest(PAGE.read_text(), {}, PAGE.name, str(PAGE), 0)
    complaints: list[str] = []
    outcome = doctest.DocTestRunner(verbose=False).run(examples, out=complaints.append)
    assert outcome.attempted > 30
    assert outcome.failed == 0, "".join(complaints)


def test_every_metric_is_on_the_page() -> None:
    functions = {name for name in metrics.__all__ if name[0].islower()}
    headed = set(
        re.findall(r"`(?:PixelTally\.)?(\w+)`", "".join(re.findall(r"^### .+$", PAGE.read_text(), flags=re.M)))
    )
    assert functions <= headed
