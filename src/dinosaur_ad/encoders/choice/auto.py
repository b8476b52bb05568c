"""``--provider auto``: measure what is here once, keep the fastest that is right, remember it for this machine.

Every candidate runs in a process of its own (:mod:`.auto_probe`): one that crashes, hangs or gives other tokens than
ONNX Runtime in float32 is passed over with a sentence, and the caller goes on. They are timed in turns, so that
whatever else the machine does disturbs all alike, and the fastest turn counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.encoders.base import Images, Tokens, fingerprint, prepare
from dinosaur_ad.encoders.choice.probes import Probe, ProbeError
from dinosaur_ad.encoders.opening import Request
from dinosaur_ad.encoders.parity import TokenParity, compare_tokens, failure
from dinosaur_ad.encoders.providers import (
    DEFAULT_PRECISION,
    DEFAULT_PROVIDER,
    UnavailableError,
    available,
    cpu_model,
    thread_count,
)
from dinosaur_ad.encoders.registry import get_spec, token_encoder
from dinosaur_ad.encoders.weights.local import cache_home, to_stderr
from dinosaur_ad.errors import EncoderError

# What auto may choose from unless a precision is named: int8 changes scores, so it must be asked for.
USUAL_PRECISIONS = ("float32", "bfloat16", "float16")
TURNS = 5
# A smaller gain is noise: the candidate that comes first, which is the more exact one, stays.
WORTHWHILE = 0.97
KEPT_CHOICES = 32

Way = tuple[str, str]
"""Provider and precision."""


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the sentence that says why."""

    provider: str
    precision: str
    sentence: str


@dataclass(frozen=True)
class Figures:
    """What one candidate showed: seconds for one image, and how near its tokens are to the reference."""

    seconds: float
    parity: TokenParity


def choose(request: Request, precision: str | None = None, images: Images | None = None) -> Choice:
    """The fastest way to run an encoder on this machine whose tokens pass the parity gate.

    ``precision`` admits that one alone; ``images`` are compared besides the made-up ones.

    :raises UnavailableError: nothing here can run in that precision, or nothing that does is right.
    """
    wanted = USUAL_PRECISIONS if precision is None else (precision,)
    candidates = _candidates(wanted)
    if not candidates:
        raise UnavailableError("auto", str(precision), "no provider here offers it")
    if candidates == [(DEFAULT_PROVIDER, DEFAULT_PRECISION)]:
        return Choice(*candidates[0], f"auto: {DEFAULT_PROVIDER} in {DEFAULT_PRECISION}, because nothing else is here.")
    facts = _facts(request, candidates)
    known = _remembered(facts)
    if known is not None:
        return Choice(known["provider"], known["precision"], f"auto: {known['why']} (measured {known['date'][:10]}).")
    to_stderr(f"auto: measuring {_names(candidates)} on this machine, once.")
    figures = _measure(request, candidates, images)
    chosen = _fastest(candidates, figures)
    if chosen is None:
        raise UnavailableError("auto", str(precision), "no candidate passed the comparison with float32")
    why = _why(chosen, figures)
    _remember(facts, chosen, why, figures)
    return Choice(*chosen, f"auto: {why}.")


def sample_images(size: int) -> NDArray[np.uint8]:
    """Fixed pictures (4, size, size, 3): fine and coarse texture, a bright part on a dark ground, and a flat one.

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
    """All that is here, the reference first, float32 before what is rounded; torch is for research, not for speed."""
    here = available()
    ways = [(name, each) for each in precisions for name, offered in here.items() if each in offered]
    return [way for way in ways if way[0] != "torch"]


def _names(ways: Sequence[Way]) -> str:
    return ", ".join(" ".join(way) for way in ways)


# --- measuring ---


def _measure(request: Request, candidates: Sequence[Way], images: Images | None) -> dict[Way, Figures]:
    """The figures of the candidates whose tokens may be used; a sentence for each of the others."""
    reference = (DEFAULT_PROVIDER, DEFAULT_PRECISION)
    with tempfile.TemporaryDirectory(prefix="dinosaur-auto-") as folder, ExitStack() as running:
        pixels = Path(folder) / "images.npy"
        own = [] if images is None else [prepare(images, request.size)]
        np.save(pixels, np.concatenate([sample_images(request.size), *own]))
        probes: dict[Way, Probe] = {}
        for way in dict.fromkeys([reference, *candidates]):
            tokens = Path(folder) / f"{'-'.join(way)}.npz"
            try:
                probes[way] = running.enter_context(Probe(_order(request, way, pixels, tokens)))
            except ProbeError as error:
                _pass_over(way, str(error))
        if reference not in probes:
            raise EncoderError(
                f"{' '.join(reference)} itself does not run here; see what {request.name} says without auto."
            )
        expected = _read_tokens(Path(folder) / f"{'-'.join(reference)}.npz")
        parities: dict[Way, TokenParity] = {}
        for way in [way for way in candidates if way in probes]:
            parity = compare_tokens(expected, _read_tokens(Path(folder) / f"{'-'.join(way)}.npz"))
            if says := failure(parity, way[1]):
                _pass_over(way, says)
            else:
                parities[way] = parity
        seconds = _in_turns({way: probes[way] for way in parities})
    return {way: Figures(seconds[way], parities[way]) for way in parities if way in seconds}


def _in_turns(probes: dict[Way, Probe]) -> dict[Way, float]:
    """Seconds of one image, the fastest of several turns; a probe that fails in between drops out."""
    seconds: dict[Way, list[float]] = {way: [] for way in probes}
    for _ in range(TURNS):
        for way in list(seconds):
            try:
                seconds[way].append(probes[way].time())
            except ProbeError as error:
                _pass_over(way, str(error))
                del seconds[way]
    return {way: min(each) for way, each in seconds.items()}


def _order(request: Request, way: Way, images: Path, tokens: Path) -> dict[str, Any]:
    return {
        "name": request.name,
        "layers": list(request.layers),
        "size": request.size,
        "threads": request.threads,
        "weights": None if request.weights is None else str(request.weights.absolute()),
        "provider": way[0],
        "precision": way[1],
        "images": str(images),
        "tokens": str(tokens),
    }


def _read_tokens(path: Path) -> Tokens:
    with np.load(path, allow_pickle=False) as arrays:
        return Tokens(arrays["cls"], arrays["patches"])


def _pass_over(way: Way, reason: str) -> None:
    to_stderr(f"auto: passed over {' '.join(way)}: {reason.rstrip('.')}.")


def _fastest(candidates: Sequence[Way], figures: dict[Way, Figures]) -> Way | None:
    best: Way | None = None
    for way in candidates:
        if way in figures and (best is None or figures[way].seconds < WORTHWHILE * figures[best].seconds):
            best = way
    return best


def _why(chosen: Way, figures: dict[Way, Figures]) -> str:
    mine = figures[chosen]
    others = [f"{' '.join(way)} {1e3 * each.seconds:.1f}" for way, each in figures.items() if way != chosen]
    beside = f" ({', '.join(others)})" if others else ""
    return (
        f"{chosen[0]} in {chosen[1]} takes {1e3 * mine.seconds:.1f} ms an image{beside}, "
        f"token cosine to float32 at least {mine.parity.cosine_min:.5f}"
    )


# --- remembering ---


def _facts(request: Request, candidates: Sequence[Way]) -> dict[str, Any]:
    """Everything that decides which candidate is fastest: another machine, version or question is measured anew."""
    spec = token_encoder(get_spec(request.name))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": cpu_model(),
        "cores": cores,
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
    """Where the choices of this machine are kept."""
    return cache_home() / "choice.json"


def _key(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _choices() -> dict[str, Any]:
    """What was chosen before, by key; nothing when the file is missing or not ours."""
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


def _remember(facts: dict[str, Any], chosen: Way, why: str, figures: dict[Way, Figures]) -> None:
    """Keep a choice; a file that cannot be written costs the time to measure again, not the result."""
    measured = {
        " ".join(way): {
            "seconds": round(each.seconds, 6),
            "cosine_min": round(each.parity.cosine_min, 7),
            "cosine_mean": round(each.parity.cosine_mean, 7),
        }
        for way, each in figures.items()
    }
    entry = {
        "provider": chosen[0],
        "precision": chosen[1],
        "why": why,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "measured": measured,
        "facts": facts,
    }
    others = {key: known for key, known in _choices().items() if key != _key(facts)}
    newest = dict(list(others.items())[-(KEPT_CHOICES - 1) :]) | {_key(facts): entry}
    try:
        write_atomic(choice_file(), json.dumps({"format": 1, "choices": newest}, indent=1).encode())
    except OSError as error:
        to_stderr(
            f"auto: the choice could not be kept in {choice_file()} ({error.strerror}); it will be measured again."
        )
