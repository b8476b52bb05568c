"""One candidate of ``--provider auto`` in a process of its own, so that its crash is not the caller's.

The first line on stdin is what to open, as JSON; the answer is ``{"ready": true}`` when the encoder has encoded the
images of one file and written their tokens to another. Every further line is answered with the seconds of one image,
the fastest of a few. Anything that goes wrong is answered with ``{"error": ...}``; the end of stdin is the end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from dinosaur_ad._text import first_line
from dinosaur_ad.encoders.opening import Request, open_on
from dinosaur_ad.encoders.providers import UnavailableError

WARM_UP, RUNS = 3, 3


def main() -> int:
    """Answer the lines of stdin."""
    answers = _own_stdout()
    try:
        for answer in _answers(json.loads(sys.stdin.readline())):
            print(json.dumps(answer), file=answers, flush=True)
            if not sys.stdin.readline():
                break
    except Exception as error:
        reason = error.reason if isinstance(error, UnavailableError) else first_line(error)
        print(json.dumps({"error": reason}), file=answers, flush=True)
        return 1
    return 0


def _answers(order: dict[str, Any]) -> Any:
    request = Request(
        name=order["name"],
        layers=tuple(order["layers"]),
        size=order["size"],
        threads=order["threads"],
        weights=Path(order["weights"]) if order["weights"] else None,
    )
    pixels = np.load(order["images"], allow_pickle=False)
    encoder = open_on(request, order["provider"], order["precision"])
    tokens = encoder.encode_prepared(pixels)
    np.savez(order["tokens"], cls=tokens.cls, patches=tokens.patches)
    for _ in range(WARM_UP):
        encoder.encode_prepared(pixels[:1])
    yield {"ready": True}
    while True:
        seconds = []
        for _ in range(RUNS):
            started = time.perf_counter()
            encoder.encode_prepared(pixels[:1])
            seconds.append(time.perf_counter() - started)
        yield {"seconds": min(seconds)}


def _own_stdout() -> TextIO:
    """The stdout that the caller reads; whatever a run time prints goes to stderr."""
    mine = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return mine


if __name__ == "__main__":
    sys.exit(main())
