"""The parity check of an export: how near its tokens, scores and AUROC must be to float32.

The reference is the same encoder in float32 on ONNX Runtime. Both see the same images, which the bank has not seen. The
bank is taught by the reference, because that is how an export is used: with a store that float32 taught, and with its
thresholds. So besides the order of the scores their level counts too. A bank in the graph must moreover say of the
export's own tokens what the detector says of them: the same score and the same verdict. With a preset that matches
brightness both see matched images; where a graph does that itself, it is given them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.encoders import Encoder, Tokens
from dinosaur_ad.encoders.backends.exported import ExportedEncoder, Scored
from dinosaur_ad.encoders.parity import TokenParity, compare_tokens, failure
from dinosaur_ad.errors import EncoderError
from dinosaur_ad.export.gate_banks import Reading, Scorer, exposure_of, matched
from dinosaur_ad.presets import Preset

Floats = NDArray[np.float32]
Pixels = NDArray[np.uint8]

AT_ONCE = 16


@dataclass(frozen=True)
class Limits:
    """How far scores may be from float32: least correlation, largest shift of their level, largest loss of AUROC."""

    correlation: float
    shift: float
    auroc_loss: float = 0.003


LIMITS = {
    "float32": Limits(correlation=0.9999, shift=0.001),
    "float16": Limits(correlation=0.999, shift=0.01),
    "bfloat16": Limits(correlation=0.999, shift=0.01),
    "int8": Limits(correlation=0.99, shift=0.03),
}
FEW_PAIRS = 5
BANK_LIMIT = 0.01
"""How far a score from the graph may be from that of the detector, as a share of the threshold."""


@dataclass(frozen=True)
class GateImages:
    """The images of the parity check: prepared pixels (N, size, size, 3), and where they are from.

    ``normals`` teach a bank and ``tests`` are scored. ``labels`` (N,) of the tests are 0 or 1, or None without
    labels; labelled images are scored by the stored bank where there is one, and need no normals then.
    """

    normals: Pixels
    tests: Pixels
    labels: NDArray[np.int64] | None
    source: str


@dataclass(frozen=True)
class Parity:
    """The figures of the parity check. ``shift`` is the median of score / reference - 1; AUROC is None without labels.

    ``pairs`` is how many pairs of a normal and a defect AUROC counts, 0 without labels.
    ``bank_error`` is the largest difference between a score from the graph and the detector's, as a share of the
    threshold, and ``bank_verdicts`` the number of images on which the verdicts differ; None without a bank in the
    graph, or without the store that has it.
    """

    precision: str
    tokens: TokenParity
    pearson: float
    spearman: float
    shift: float
    auroc_reference: float | None
    auroc: float | None
    pairs: int
    bank_error: float | None
    source: str
    provider: str
    bank_verdicts: int | None = None

    @property
    def auroc_loss_allowed(self) -> float:
        """The limit; on a small set as much as a few pairs that change places, because smaller changes are chance."""
        return max(LIMITS[self.precision].auroc_loss, FEW_PAIRS / self.pairs if self.pairs else 0.0)

    @property
    def auroc_change(self) -> float | None:
        """AUROC less that of the reference."""
        return None if self.auroc is None or self.auroc_reference is None else self.auroc - self.auroc_reference

    def to_json(self) -> dict[str, Any]:
        """The figures as a JSON object, with the limits that they met."""
        return asdict(self) | {"auroc_change": self.auroc_change, "limits": asdict(LIMITS[self.precision])}

    def failure(self) -> str | None:
        """Why the export must not be used, with the figures; None when it passes."""
        if sentence := failure(self.tokens, self.precision):
            return sentence
        limits, change = LIMITS[self.precision], self.auroc_change
        reasons = []
        if not self.pearson >= limits.correlation:  # written so that NaN fails
            reasons.append(
                f"its scores correlate {self.pearson:.5f} with those of float32 ({limits.correlation} asked)"
            )
        if not abs(self.shift) <= limits.shift:
            reasons.append(
                f"its scores are shifted by {100 * self.shift:+.2f} % (at most {100 * limits.shift:g} % asked)"
            )
        if change is not None and not -change <= self.auroc_loss_allowed + 1e-9:
            reasons.append(
                f"its AUROC changes by {change:+.4f} (a loss of at most {self.auroc_loss_allowed:.4g} asked)"
            )
        if self.bank_error is not None and not self.bank_error <= BANK_LIMIT:
            reasons.append(f"the bank in its graph is off by {100 * self.bank_error:.2f} % (at most 1 % asked)")
        if self.bank_verdicts:
            reasons.append(f"its graph gives other verdicts than the detector on {self.bank_verdicts} images")
        return f"In {self.precision} {' and '.join(reasons)}." if reasons else None

    def sentence(self) -> str:
        """The figures in a line."""
        tokens, change = self.tokens, self.auroc_change
        auroc_part = (
            "" if change is None else f"; AUROC {self.auroc:.4f} (float32 {self.auroc_reference:.4f}, {change:+.4f})"
        )
        bank_part = "" if self.bank_error is None else f"; bank in the graph: off by at most {self.bank_error:.1e}"
        return (
            f"token cosine at least {tokens.cosine_min:.5f}, {tokens.cosine_mean:.6f} on average over {tokens.images} "
            f"images ({self.source}); scores: Pearson {self.pearson:.5f}, Spearman {self.spearman:.5f}, shift "
            f"{100 * self.shift:+.2f} %{auroc_part}{bank_part}"
        )


def measure(
    reference: Encoder, exported: ExportedEncoder, preset: Preset, images: GateImages, stored: Scorer | None = None
) -> Parity:
    """Compare an export with the float32 encoder; ``stored`` is the bank of a store, which is that in the graph.

    Images without labels may be those that the stored bank was taught from, and are not scored by it: it would find
    itself in them.
    """
    if reference.fingerprint != exported.fingerprint:
        raise EncoderError(
            f"The export is of other weights than '{reference.name}' has here (fingerprint {exported.fingerprint}, not "
            f"{reference.fingerprint}); compare it with those it was made from (--weights)."
        )
    exposure = exported.matches or (stored.exposure if stored else exposure_of(preset, images.normals))
    known = stored is not None and images.labels is not None
    scorer = stored if stored and known else Scorer.taught(reference, preset, images.normals, exposure)
    parities, expected, found, graphs = [], [], [], []
    for start in range(0, len(images.tests), AT_ONCE):
        pixels = images.tests[start : start + AT_ONCE]
        seen = matched(pixels, exposure)
        wanted = reference.encode_prepared(seen)
        got, scored = _run(exported, seen if exported.matches is None else pixels)
        parities.append(compare_tokens(wanted, got))
        expected.append(scorer.read(wanted).score_N)
        if not parities[-1].finite:
            found.append(np.full(len(pixels), np.nan, np.float32))
            continue
        found.append(scorer.read(got).score_N)
        if scored is not None and stored is not None and exported.manifest.bank is not None:
            graphs.append(_compare_graph(scored, stored.read(got), exported.manifest.bank))
    return _figures(exported, images, _merged(parities), np.concatenate(expected), np.concatenate(found), graphs)


class _GraphParity(NamedTuple):
    """How far scores of the graph are from those of the detector, and how many verdicts are others."""

    error: float
    verdicts: int


def _compare_graph(scored: Scored, reading: Reading, bank: Mapping[str, Any]) -> _GraphParity:
    """The graph against the detector on the same tokens; a verdict may be another where it hangs by less than the
    allowed error."""
    threshold, limit = bank["threshold"], bank.get("unknown_level")
    other_N = scored.anomalous != (reading.score_N > threshold)
    other_N &= np.abs(reading.score_N - threshold) > BANK_LIMIT * threshold
    if limit is not None:
        other_N |= (scored.unknown != (reading.level_N > limit)) & (
            np.abs(reading.level_N - limit) > BANK_LIMIT * limit
        )
    else:
        other_N |= scored.unknown
    error = float(np.abs(scored.score - reading.score_N).max()) / threshold
    return _GraphParity(error, int(other_N.sum()))


def _run(exported: ExportedEncoder, pixels: Pixels) -> tuple[Tokens, Scored | None]:
    """The tokens, and what a bank in the graph says."""
    if exported.manifest.bank is None:
        return exported.encode_prepared(pixels), None
    return exported.encode_and_score(pixels)


def _figures(
    exported: ExportedEncoder,
    images: GateImages,
    tokens: TokenParity,
    expected_N: Floats,
    found_N: Floats,
    graphs: Sequence[_GraphParity],
) -> Parity:
    finite = bool(np.isfinite(found_N).all())
    anomalies = 0 if images.labels is None else int(images.labels.sum())
    labelled = images.labels is not None and finite
    return Parity(
        precision=exported.manifest.precision,
        tokens=tokens,
        pearson=_pearson(expected_N, found_N) if finite else math.nan,
        spearman=_pearson(_ranks(expected_N), _ranks(found_N)) if finite else math.nan,
        shift=_shift(expected_N, found_N) if finite else math.nan,
        auroc_reference=_known(auroc(expected_N, images.labels)) if labelled else None,  # type: ignore[arg-type]
        auroc=_known(auroc(found_N, images.labels)) if labelled else None,  # type: ignore[arg-type]
        pairs=anomalies * (len(images.tests) - anomalies),
        bank_error=max(each.error for each in graphs) if graphs else None,
        source=images.source,
        provider=exported.provider,
        bank_verdicts=sum(each.verdicts for each in graphs) if graphs else None,
    )


def _merged(parities: Sequence[TokenParity]) -> TokenParity:
    images = sum(each.images for each in parities)
    return TokenParity(
        images=images,
        cosine_min=min(each.cosine_min for each in parities),
        cosine_mean=sum(each.images * each.cosine_mean for each in parities) / images,
        finite=all(each.finite for each in parities),
    )


def _known(value: float) -> float | None:
    """None instead of the NaN that AUROC is where all images are normal, or all anomalous."""
    return None if math.isnan(value) else value


def _shift(expected_N: Floats, found_N: Floats) -> float:
    """How much higher the scores are, as a share, in the median."""
    floor = max(float(np.median(expected_N)) * 1e-3, float(np.finfo(np.float32).tiny))
    return float(np.median((found_N - expected_N) / np.maximum(expected_N, floor)))


def _ranks(score_N: Floats) -> NDArray[np.float64]:
    """Ranks from 1; equal scores share the mean of theirs."""
    _, place_N, count_U = np.unique(score_N, return_inverse=True, return_counts=True)
    ranks_N: NDArray[np.float64] = (np.cumsum(count_U) - (count_U - 1) / 2)[place_N]
    return ranks_N


def _pearson(a_N: NDArray[Any], b_N: NDArray[Any]) -> float:
    """The correlation; scores without any spread correlate when they are the same."""
    a_N, b_N = (each.astype(np.float64) - each.mean(dtype=np.float64) for each in (a_N, b_N))
    lengths = math.sqrt(float((a_N * a_N).sum()) * float((b_N * b_N).sum()))
    if lengths == 0:
        return 1.0 if np.allclose(a_N, b_N) else 0.0
    return float((a_N * b_N).sum() / lengths)
