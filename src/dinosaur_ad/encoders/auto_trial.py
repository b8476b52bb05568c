"""The child process of ``--provider auto``: opens one candidate, writes its tokens to a file and measures its speed.

Stdin is the order as JSON, stdout the result as JSON: ``{"seconds": ...}`` for one image, or ``{"error": ...}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from dinosaur_ad._text import first_line
from dinosaur_ad.encoders.opening import Request, open_on
from dinosaur_ad.encoders.providers import UnavailableError

WARM_UP, RUNS = 3, 15


def main() -> int:
    """Measure the candidate on stdin."""
    result, order = os.fdopen(os.dup(1), "w"), json.load(sys.stdin)
    os.dup2(2, 1)  # what a run time prints must not mix with the result
    try:
        measured = {"seconds": _measured(order)}
    except Exception as error:
        measured = {"error": error.reason if isinstance(error, UnavailableError) else first_line(error)}  # type: ignore[dict-item]
    json.dump(measured, result)
    result.close()
    return int("error" in measured)


def _measured(order: dict[str, Any]) -> float:
    """Seconds for one image, the fastest of several runs."""
    weights = Path(order["weights"]) if order["weights"] else None
    request = Request(order["name"], tuple(order["layers"]), order["size"], order["threads"], weights)
    pixels = np.load(order["images"], allow_pickle=False)
    encoder = open_on(request, order["provider"], order["precision"])
    tokens = encoder.encode_prepared(pixels)
    np.savez(order["tokens"], cls=tokens.cls, patches=tokens.patches)
    seconds = []
    for _ in range(WARM_UP + RUNS):
        started = time.perf_counter()
        encoder.encode_prepared(pixels[:1])
        seconds.append(time.perf_counter() - started)
    return min(seconds[WARM_UP:])


if __name__ == "__main__":
    sys.exit(main())
