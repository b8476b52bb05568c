"""``--provider auto``: measure every provider and precision on this machine once, and remember the fastest.

Each candidate is measured in a child process (:mod:`.auto_trial`), so that a crash or a hang of one run time does not
end the command. A candidate whose tokens do not pass the parity check against ONNX Runtime in float32 is left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad._cpu import core_count, cpu_model
from dinosaur_ad.encoders.base import Images, Tokens, fingerprint, prepare
from dinosaur_ad.encoders.opening import Request
from dinosaur_ad.encoders.parity import TokenParity, compare_tokens, failure
from dinosaur_ad.encoders.providers import (
    DEFAULT_PRECISION,
    DEFAULT_PROVIDER,
    UnavailableError,
    available,
    thread_count,
)
from dinosaur_ad.encoders.registry import get_spec, token_encoder
from dinosaur_ad.encoders.weights.local import to_stderr
from dinosaur_ad.encoders.weights.weight_folder import cache_home
from dinosaur_ad.errors import EncoderError

USUAL_PRECISIONS = ("float32", "bfloat16", "float16")
"""What auto chooses from unless a precision is named: int8 changes scores, so it must be requested."""
TRIAL_SECONDS = 300.0
"""The longest a candidate may take; opening it may build an engine for a GPU."""
WORTHWHILE = 0.97
"""A candidate that takes more than this share of the time of an earlier, more exact one is not taken."""
KEPT_CHOICES = 32

Way = tuple[str, str]
"""Provider and precision."""
REFERENCE: Way = (DEFAULT_PROVIDER, DEFAULT_PRECISION)


@dataclass(frozen=True)
class AutoChoice:
    """What was chosen, and the sentence that says why."""

    provider: str
    precision: str
    sentence: str


class Trial(NamedTuple):
    """Seconds for one image, and how near the tokens are to the reference."""

    seconds: float
    parity: TokenParity


class TrialError(Exception):
    """Why a candidate could not be measured, without a full stop at the end."""


def choose(request: Request, precision: str | None = None, images: Images | None = None) -> AutoChoice:
    """The fastest provider and precision on this machine whose tokens pass the parity check.

    ``precision`` allows that one only; ``images`` are compared in addition to :func:`sample_images`.

    :raises UnavailableError: nothing here can run in that precision, or nothing passed the check.
    """
    candidates = _candidates((precision,) if precision else USUAL_PRECISIONS)
    if not candidates:
        raise UnavailableError("auto", str(precision), "no provider here offers it")
    if candidates == [REFERENCE]:
        return AutoChoice(*REFERENCE, f"auto: {' in '.join(REFERENCE)}, because nothing else is here.")
    facts = _facts(request, candidates)
    known = _remembered(facts)
    if known is not None:
        sentence = f"auto: {known['why']} (measured {known['date'][:10]})."
        return AutoChoice(known["provider"], known["precision"], sentence)
    to_stderr(f"auto: measuring {_names(candidates)} on this machine, once.")
    trials = _measure(request, candidates, images)
    chosen = _fastest(trials)
    if chosen is None:
        raise UnavailableError("auto", str(precision), "no candidate passed the comparison with float32")
    why = _why(chosen, trials)
    _remember(facts, chosen, why, trials)
    return AutoChoice(*chosen, f"auto: {why}.")


def sample_images(size: int) -> NDArray[np.uint8]:
    """Fixed images (4, size, size, 3): fine and coarse texture, waves, a bright disc on a dark ground, a flat gradient.

    >>> sample_images(28).shape
    (4, 28, 28, 3)
    """
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:size, 0:size] / size
    texture = np.zeros((size, size, 3))
    for cell in (1, 4, 16):
        cells = -(-size // cell)
        texture += np.kron(rng.standard_normal((cells, cells, 3)), np.ones((cell, cell, 1)))[:size, :size]
    waves = np.sin(40 * x + 25 * y)[..., None] * np.array([1.0, 0.6, 0.2])
    disc = np.where((x - 0.5) ** 2 + (y - 0.45) ** 2 < 0.09, 90.0, -70.0)[..., None] + 6 * texture
    flat = np.broadcast_to(20 * (x - y)[..., None], texture.shape)
    pictures = [128 + each for each in (28 * texture, 90 * waves + 8 * texture, disc, flat)]
    return np.stack(pictures).clip(0, 255).astype(np.uint8)


def _candidates(precisions: Sequence[str]) -> list[Way]:
    """Everything available except torch, the default provider first and float32 first."""
    here = available()
    return [(name, each) for each in precisions for name in here if each in here[name] and name != "torch"]


def _names(ways: Sequence[Way]) -> str:
    return ", ".join(" ".join(way) for way in ways)


# --- measuring ---


def _measure(request: Request, candidates: Sequence[Way], images: Images | None) -> dict[Way, Trial]:
    """The candidates that ran and passed the parity check; the others are named on stderr with the reason."""
    expected: Tokens | None = None
    trials: dict[Way, Trial] = {}
    with tempfile.TemporaryDirectory(prefix="dinosaur-auto-") as folder:
        own = [] if images is None else [prepare(images, request.size)]
        np.save(Path(folder, "images.npy"), np.concatenate([sample_images(request.size), *own]))
        for way in dict.fromkeys([REFERENCE, *candidates]):
            try:
                seconds, tokens = _try(request, way, Path(folder))
            except TrialError as error:
                if way == REFERENCE:
                    raise EncoderError(
                        f"{' '.join(REFERENCE)} itself does not run here ({error}); try again without auto."
                    ) from error
                _leave_out(way, str(error))
                continue
            expected = expected or tokens
            parity = compare_tokens(expected, tokens)
            if reason := failure(parity, way[1]):
                _leave_out(way, reason)
            elif way in candidates:
                trials[way] = Trial(seconds, parity)
    return trials


def _try(request: Request, way: Way, folder: Path) -> tuple[float, Tokens]:
    """Measure one candidate in a child process."""
    tokens = folder / f"{'-'.join(way)}.npz"
    order = {
        "name": request.name,
        "layers": list(request.layers),
        "size": request.size,
        "threads": request.threads,
        "weights": None if request.weights is None else str(request.weights.absolute()),
        "provider": way[0],
        "precision": way[1],
        "images": str(folder / "images.npy"),
        "tokens": str(tokens),
    }
    source = str(Path(__file__).resolve().parents[2])  # so that the child imports this copy of the package
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command(order),
            input=json.dumps(order),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=TRIAL_SECONDS,
            env=os.environ | {"PYTHONPATH": paths},
        )
    except subprocess.TimeoutExpired:
        raise TrialError(f"its process did not end within {TRIAL_SECONDS:g} seconds") from None
    try:
        result = json.loads(done.stdout)
        if "error" in result:
            raise TrialError(str(result["error"]))
        seconds = float(result["seconds"])
        with np.load(tokens, allow_pickle=False) as arrays:
            return seconds, Tokens(arrays["cls"], arrays["patches"])
    except (OSError, ValueError, KeyError, TypeError):
        raise TrialError(f"its process {_ending(done.returncode)}") from None


def command(order: dict[str, Any]) -> list[str]:
    """The command that measures a candidate."""
    return [sys.executable, "-m", "dinosaur_ad.encoders.auto_trial"]


def _ending(code: int) -> str:
    """How a child process without a result ended."""
    if code == 0:
        return "gave no result"
    if code > 0:
        return f"ended with exit code {code}"
    names = {each.value: each.name for each in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"


def _leave_out(way: Way, reason: str) -> None:
    to_stderr(f"auto: left out {' '.join(way)}: {reason.rstrip('.')}.")


def _fastest(trials: dict[Way, Trial]) -> Way | None:
    best: Way | None = None
    for way, trial in trials.items():
        if best is None or trial.seconds < WORTHWHILE * trials[best].seconds:
            best = way
    return best


def _why(chosen: Way, trials: dict[Way, Trial]) -> str:
    mine = trials[chosen]
    others = [f"{' '.join(way)} {1e3 * each.seconds:.1f}" for way, each in trials.items() if way != chosen]
    beside = f" ({', '.join(others)})" if others else ""
    return (
        f"{' in '.join(chosen)} takes {1e3 * mine.seconds:.1f} ms an image{beside}, "
        f"token cosine to float32 at least {mine.parity.cosine_min:.5f}"
    )


# --- remembering ---


def _facts(request: Request, candidates: Sequence[Way]) -> dict[str, Any]:
    """Everything that decides which candidate is fastest; if any of it changes, the candidates are measured again."""
    spec = token_encoder(get_spec(request.name))
    return {
        "cpu": cpu_model(),
        "cores": core_count(),
        "threads": thread_count(request.threads),
        "encoder": fingerprint(spec, request.layers, request.size, request.loaded.sha256),
        "candidates": _names(candidates),
        "versions": {name: _version(name) for name in ("dinosaur-ad", "onnxruntime", "openvino")},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def choice_file() -> Path:
    """The file with the choices of this machine."""
    return cache_home() / "choice.json"


def _key(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _choices() -> dict[str, Any]:
    """The stored choices by key; none when the file is missing or damaged."""
    try:
        choices = json.loads(choice_file().read_text())["choices"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return choices if isinstance(choices, dict) else {}


def _remembered(facts: dict[str, Any]) -> dict[str, str] | None:
    known = _choices().get(_key(facts))
    needed = ("provider", "precision", "why", "date")
    if not isinstance(known, dict) or not all(isinstance(known.get(key), str) for key in needed):
        return None
    return known if known.get("facts") == facts else None


def _remember(facts: dict[str, Any], chosen: Way, why: str, trials: dict[Way, Trial]) -> None:
    """Store a choice; where the file cannot be written, the next start measures again."""
    entry = {
        "provider": chosen[0],
        "precision": chosen[1],
        "why": why,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "measured": {
            " ".join(way): {"seconds": round(each.seconds, 6), "cosine_min": round(each.parity.cosine_min, 7)}
            for way, each in trials.items()
        },
        "facts": facts,
    }
    others = {key: known for key, known in _choices().items() if key != _key(facts)}
    newest = dict(list(others.items())[-(KEPT_CHOICES - 1) :]) | {_key(facts): entry}
    try:
        write_atomic(choice_file(), json.dumps({"format": 1, "choices": newest}, indent=1).encode())
    except OSError as error:
        to_stderr(f"auto: {choice_file()} could not be written ({error.strerror}); the next start measures again.")
