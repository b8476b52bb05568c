"""The attack in its small form: nothing of it may succeed. The full form is ``make attack``."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from attack.arena import Arena, arena
from attack.registry import ATTACKS

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the attack needs a system that can fork")


@pytest.fixture(scope="module")
def place() -> Iterator[Arena]:
    with arena() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_the_attack_does_no_harm(place: Arena, name: str) -> None:
    cases = ATTACKS[name].cases(full=False)
    outcomes = list(ATTACKS[name].run(place, cases))
    succeeded = [
        f"{outcome.problem}\n  again: python scripts/attack.py --only {name} --case {outcome.case} --seed {place.seed}"
        for outcome in outcomes
        if outcome.problem
    ]
    assert not succeeded, f"{len(succeeded)} cases of '{name}' succeeded:\n" + "\n".join(succeeded[:20])
    assert {outcome.case for outcome in outcomes} == set(cases)
