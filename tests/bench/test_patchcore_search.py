"""The search over PatchCore's settings: it scores as the method does, and leaves out the product it is reported for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")

from benchmarks.patchcore_tuned import (  # noqa: E402
    AVERAGES,
    NEIGHBOURS,
    NETWORKS,
    RATIOS,
    SHARES,
    Choice,
    _distances,
    _image_scores,
    by_product,
    chosen_without,
    start_of,
    table_lines,
)

from dinosaur_ad.methods.shared.flat_memory import build_memory  # noqa: E402


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_distances_are_those_of_the_methods_memory(neighbours: int) -> None:
    draw = torch.Generator().manual_seed(0)
    bank, points = torch.randn(60, 8, generator=draw), torch.randn(4 * 25, 8, generator=draw)
    raw_NP, around_NPB = _distances(build_memory(bank, max(NEIGHBOURS)), points, 4)
    raw, reweighted = build_memory(bank, neighbours).distances(points)
    torch.testing.assert_close(raw_NP.flatten(), raw)
    largest = reweighted.reshape(4, -1).gather(1, raw.reshape(4, -1).argmax(1, keepdim=True))[:, 0]
    torch.testing.assert_close(_image_scores(raw_NP, around_NPB[:, :, :neighbours], 0.0), largest)
    torch.testing.assert_close(
        _image_scores(raw_NP, around_NPB[:, :, :neighbours], 0.2), reweighted.reshape(4, -1).topk(5).values.mean(1)
    )


def test_as_many_combinations_as_dinosaur_had() -> None:
    assert len(NETWORKS) * len(AVERAGES) * len(RATIOS) * len(NEIGHBOURS) * len(SHARES) == 360


def made_up() -> dict[str, Any]:
    """Two combinations on three products; the first is better on `a` alone, the usual ones are there too."""
    usual = [Choice(224, 0.05, 3, 3, 0.0, network, (5, 8)) for network in ("resnet50-v1", "dinov2s-focus")]
    good_on_a, good_elsewhere = (Choice(224, ratio, 1, 1, 0.0, "dinov2s-focus", (5, 8)) for ratio in (0.01, 0.02))
    figures = {
        usual[0]: (0.5, 0.5, 0.5),
        usual[1]: (0.4, 0.4, 0.4),
        good_on_a: (1.0, 0.6, 0.6),
        good_elsewhere: (0.7, 0.8, 0.8),
    }
    names = ("s/a", "s/b", "s/c")
    measured = [
        {"settings": vars(choice) | {"layers": list(choice.layers)}, "auroc": dict(zip(names, values, strict=True))}
        for choice, values in figures.items()
    ]
    return {"products": dict(zip(names, "abc", strict=True)), "seed": 0, "measured": measured}


def test_the_choice_for_a_product_does_not_see_it() -> None:
    table = by_product(made_up())
    chosen = chosen_without(table)
    assert {name: choice.ratio for name, choice in chosen.items()} == {"a": 0.02, "b": 0.01, "c": 0.01}
    assert start_of(table, "patchcore:vit").backbone == "dinov2s-focus"
    lines = table_lines(made_up())
    assert "| 0.700 | 0.500 | 0.400 | 1.000 |" in lines[2]
    assert lines[5] == f"| mean | | {(0.7 + 0.6 + 0.6) / 3:.3f} | 0.500 | 0.400 | {(1.0 + 0.8 + 0.8) / 3:.3f} |"
    assert np.isclose(float(lines[7].rpartition("mean ")[2][:5]), 0.767)
