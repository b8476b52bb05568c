"""The page on exports says what the code does."""

from __future__ import annotations

from pathlib import Path

from dinosaur_ad.edge.export.gate import LIMITS
from dinosaur_ad.encoders.parity import limits

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
ROWS = {"float32": "fp32", "float16": "fp16, bf16", "bfloat16": "fp16, bf16", "int8": "int8"}


def test_the_limits_on_the_page_are_those_of_the_gate() -> None:
    lines = PAGE.read_text().splitlines()
    for precision, limit in LIMITS.items():
        least, mean = limits(precision)
        shift = f"{100 * limit.shift:g} %"
        row = f"| {ROWS[precision]} | {least} | {mean} | {limit.correlation} | {shift} | {limit.auroc_loss} |"
        assert row in lines
