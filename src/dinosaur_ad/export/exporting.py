"""``dinosaur export``: an encoder, or one with a task's bank, as files for another run time.

The graph is built, converted to the precision, written to a temporary folder, opened in its run time and
compared with float32 (:mod:`.gate`). Only what passes is moved into place; otherwise nothing is left.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx

from dinosaur_ad import __version__
from dinosaur_ad._schema import Shape, flag, items, maybe, number, one_of, record, text, whole
from dinosaur_ad._text import printable
from dinosaur_ad.bank.bank import Bank
from dinosaur_ad.bank.bank_files import open_bank, read_tiling
from dinosaur_ad.bank.image_features import FeatureExtractor
from dinosaur_ad.bank.verdict import check_rate, controls_of, unknown_limit, why_not_ready
from dinosaur_ad.core.readings import READINGS
from dinosaur_ad.encoders import DEFAULT_ENCODER, Encoder, load_encoder
from dinosaur_ad.encoders.backends.exported import (
    MODEL_FILES,
    ExportedEncoder,
    Manifest,
    open_exported,
    read_manifest,
    write_manifest,
)
from dinosaur_ad.encoders.base import fingerprint
from dinosaur_ad.encoders.graph.forms import to_half
from dinosaur_ad.encoders.graph.pair_graph import encoder_graph
from dinosaur_ad.encoders.graph.vit_graph import OPSET
from dinosaur_ad.encoders.providers import check_precision, why_not
from dinosaur_ad.encoders.registry import token_encoder
from dinosaur_ad.encoders.weights.local import Weights, ensure, from_file, to_stderr
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.export.export_folder import in_the_making, refuse_occupied, write_files
from dinosaur_ad.export.fused import GraphBank, add_bank
from dinosaur_ad.export.gate import Parity, measure
from dinosaur_ad.export.gate_banks import Pixels, Scorer, exposure_of, matched
from dinosaur_ad.export.gate_images import find_normals, gate_images, read_some
from dinosaur_ad.export.int8 import quantise
from dinosaur_ad.presets import PAPER, Preset, preset_for
from dinosaur_ad.store import Store

# --- what is exported ---


@dataclass(frozen=True)
class ExportSubject:
    """What is exported: weights and preset, and where there is a store, perhaps one of its tasks."""

    weights: Weights
    preset: Preset
    store: Store | None
    task: str | None

    @property
    def fingerprint(self) -> str:
        """That of the encoder, as stores know it."""
        return fingerprint(token_encoder(self.weights.spec), self.preset.layers, self.preset.size, self.weights.sha256)

    def bank(self) -> Bank | None:
        """The stored bank of the task as it is stored, if one was named."""
        if self.store is None or self.task is None:
            return None
        return open_bank(self.store, self.store.record(self.task), self.preset, room=0)


def find_subject(
    store: str | Path | None,
    encoder: str | None,
    preset: str | Preset | None,
    weights: str | Path | None,
    task: str | None,
    with_bank: bool,
) -> ExportSubject:
    """What the options of an export mean; a store has its own encoder and preset."""
    if store is None:
        if with_bank or task:
            raise InputError("A task and its bank are in a store; name it with --store.")
        name = encoder or DEFAULT_ENCODER
        return ExportSubject(find_weights(name, weights), preset_for(preset or "default", name), None, None)
    if encoder is not None or preset is not None:
        raise InputError("A store has its own encoder and preset; leave out --encoder and --preset, or --store.")
    opened = Store.open(store)
    names = opened.names()
    if task is None and len(names) == 1:
        task = names[0]
    if with_bank and task is None:
        raise InputError(
            f"Which bank shall go into the graph? Name its task with --task: {', '.join(names) or 'none yet'}."
        )
    if task is not None and read_tiling(opened.record(task)):
        if with_bank:
            raise InputError(
                f"The task '{task}' was learned in tiles, and one graph looks at one; export the encoder without its "
                "bank, or learn the task without tiles."
            )
        task = None  # the encoder alone is compared
    header = opened.header
    subject = ExportSubject(
        find_weights(header["encoder"]["encoder"], weights), Preset.from_json(header["preset"]), opened, task
    )
    if subject.fingerprint != header["encoder"]["fingerprint"]:
        raise EncoderError(
            f"The store {store} was made with other weights of '{header['encoder']['encoder']}' than are here; give "
            "those with --weights."
        )
    return subject


def find_weights(name: str, path: str | Path | None) -> Weights:
    """The weights of an encoder, from the cache or from a file."""
    return ensure(name) if path is None else from_file(name, path)


# --- exporting ---


CALIBRATION_IMAGES = 64
"""Ranges hardly grow beyond these."""

_SCORING: dict[str, Shape] = {
    **{"normalise": flag, "average": flag, "ratio": number(0, 1), "top": number(0, 1)},
    **{"minimum": whole(0, 1_000_000), "radius": whole(0, 64)},
}
_LATER_SCORING: dict[str, Shape] = {
    **{"exposure": flag, "readings": items(one_of(*READINGS), most=len(READINGS), least=1)},
    **{"precision": one_of("float32", "float16", "int8"), "budget": maybe(whole(1, 10**12))},
}
"""What of a preset decides scores, besides layers and size; the second half is not in exports of earlier versions."""


@dataclass(frozen=True)
class Exported:
    """What an export is and how near it is to float32."""

    folder: Path
    manifest: Manifest
    parity: Parity

    @property
    def bytes(self) -> int:
        """What the files take that a run time needs."""
        return sum(self.manifest.files[name].bytes for name in MODEL_FILES[self.manifest.kind])


def export(
    out: str | Path,
    *,
    kind: str = "onnx",
    precision: str = "float32",
    store: str | Path | None = None,
    encoder: str | None = None,
    preset: str | Preset | None = None,
    weights: str | Path | None = None,
    task: str | None = None,
    with_bank: bool = False,
    false_alarms: float | None = None,
    images: Sequence[str | Path] | None = None,
    labelled: str | Path | None = None,
    threads: int | None = None,
    progress: Callable[[str], None] = to_stderr,
) -> Exported:
    """Write an export to ``out``, a folder that is new or empty, and return what it is.

    ``kind`` is ``"onnx"``, ``"openvino"`` or ``"tensorrt"``. Encoder and preset are those of ``store``, or named.
    ``with_bank`` puts the scoring of ``task`` into the graph, with the threshold for ``false_alarms``. ``images`` are
    normals, for the calibration of int8 and for the comparison with float32; ``labelled`` is a folder with ``good/``
    and a folder for each defect, for the change of AUROC.

    :raises EncoderError: the export is not near enough to float32; nothing is left in ``out``.
    """
    out = Path(out)
    refuse_occupied(out)
    precision = check_precision(precision)
    _refuse_impossible(kind, precision, with_bank)
    subject = find_subject(store, encoder, preset, weights, task, with_bank)
    normals = find_normals(images, subject.store, subject.task)
    if precision == "int8" and not normals:
        raise InputError(
            "int8 is calibrated on normal images, and a store keeps none; give those it was taught from with --images."
        )
    tests = gate_images(
        normals, None if labelled is None else Path(labelled), subject.preset.size, has_bank=subject.task is not None
    )
    progress(f"building the {kind} graph of '{subject.weights.spec.name}' in {precision}")
    stored = subject.bank()
    calibration = _calibration(subject.preset, stored, normals) if precision == "int8" else None
    model = _in_precision(_float32_graph(subject), kind, precision, calibration)
    manifest = _manifest(subject, kind, precision, calibration)
    reference = _reference(manifest, weights, threads)
    if with_bank:
        assert stored is not None
        model, bank = _with_bank(model, stored, subject.preset, reference, false_alarms)
        manifest = replace(manifest, bank=bank)
    with in_the_making(out) as folder:
        write_files(folder, model, manifest)
        write_manifest(folder, manifest)
        progress(f"comparing it with float32 on {len(tests.tests)} images ({tests.source})")
        scorer = Scorer.of(stored, subject.preset, reference.tail) if stored else None
        parity = measure(reference, _opened(folder, out, threads), subject.preset, tests, scorer)
        _refuse_failure(parity)
        manifest = write_manifest(folder, replace(manifest, parity=parity.to_json()))
    return Exported(out, manifest, parity)


def check(
    folder: str | Path,
    *,
    store: str | Path | None = None,
    weights: str | Path | None = None,
    images: Sequence[str | Path] | None = None,
    labelled: str | Path | None = None,
    threads: int | None = None,
    progress: Callable[[str], None] = to_stderr,
) -> Parity:
    """Run the gate again on this machine for an export made anywhere; it changes nothing.

    The scores that a bank in the graph gives are compared only with ``store``, which has that bank.

    :raises EncoderError: the export is not near enough to float32 here.
    """
    manifest = read_manifest(folder)
    preset = _preset(manifest)
    opened = None if store is None else Store.open(store)
    task = None if opened is None or manifest.bank is None else str(manifest.bank["task"])
    if opened is not None and task is not None and opened.record(task).id != manifest.bank["id"]:  # type: ignore[index]
        raise EncoderError(f"The task '{task}' has changed in {store} since this export was made; export it again.")
    reference = _reference(manifest, weights, threads)
    subject = ExportSubject(find_weights(manifest.encoder, weights), preset, opened, task)
    tests = gate_images(
        find_normals(images, opened, task),
        None if labelled is None else Path(labelled),
        manifest.size,
        has_bank=task is not None,
    )
    if manifest.bank is not None and task is None:
        to_stderr("the bank in the graph is not compared: that needs the store it is from (--store)")
    progress(f"comparing it with float32 on {len(tests.tests)} images ({tests.source})")
    stored = subject.bank()
    scorer = Scorer.of(stored, preset, reference.tail) if stored else None
    parity = measure(reference, open_exported(folder, threads=threads), preset, tests, scorer)
    _refuse_failure(parity)
    return parity


# --- options ---


def _refuse_impossible(kind: str, precision: str, with_bank: bool) -> None:
    if kind not in MODEL_FILES:
        raise InputError(f"There is no format '{kind}'; choose one of: {', '.join(MODEL_FILES)}.")
    if kind == "openvino" and (reason := why_not("openvino", precision if precision == "bfloat16" else "float32")):
        raise EncoderError(
            f"An export is opened and compared before it counts, and OpenVINO cannot do that here: {reason}."
        )
    if precision == "bfloat16" and kind != "openvino":
        raise InputError(
            "bfloat16 is how OpenVINO computes, not what an ONNX file holds (ONNX Runtime has no such products on x86, "
            "and on ARM they are a setting of the session); use --format openvino, or --precision float16 or int8."
        )
    if precision == "bfloat16" and with_bank:
        raise InputError(
            "OpenVINO would compute the distances to the bank in bfloat16 too, which is too coarse for them; leave out "
            "--with-bank, or use --precision float32, float16 or int8."
        )


def _preset(manifest: Manifest) -> Preset:
    """The scoring that an export was made for."""
    scoring: Any = manifest.made.get("scoring")
    try:
        record({"preset": text(200)} | _SCORING, _LATER_SCORING)(scoring, "scoring")
    except ValueError as error:
        raise EncoderError(
            f"The settings for scoring in the manifest are missing or out of range ({error}); export again."
        ) from error
    later = {key: scoring[key] for key in _LATER_SCORING if key in scoring}
    settings = {key: scoring[key] for key in _SCORING} | later
    readings = tuple(scoring.get("readings", PAPER.readings))
    settings |= {"name": printable(scoring["preset"]), "readings": readings}
    return replace(PAPER, layers=manifest.layers, size=manifest.size, **settings)


def _reference(manifest: Manifest, weights: str | Path | None, threads: int | None) -> Encoder:
    return load_encoder(manifest.encoder, layers=manifest.layers, size=manifest.size, weights=weights, threads=threads)


# --- making it ---


def _float32_graph(subject: ExportSubject) -> onnx.ModelProto:
    spec = token_encoder(subject.weights.spec)
    return encoder_graph(spec, subject.weights.tensors(), subject.preset.layers, subject.preset.size)


def _in_precision(model: onnx.ModelProto, kind: str, precision: str, calibration: Pixels | None) -> onnx.ModelProto:
    if precision == "float16":
        return to_half(model)
    if calibration is not None:
        return quantise(model, calibration, symmetric=kind == "tensorrt")
    return model


def _calibration(preset: Preset, stored: Bank | None, normals: Sequence[Path]) -> Pixels:
    """The images that int8 is calibrated on, as the encoder will see them."""
    pixels = read_some(normals, CALIBRATION_IMAGES, preset.size)
    return matched(pixels, stored.exposure if stored else exposure_of(preset, pixels))


def _with_bank(
    model: onnx.ModelProto, bank: Bank, preset: Preset, reference: Encoder, false_alarms: float | None
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    if bank.settings.smallest_area:
        raise InputError(
            f"The task '{bank.record.name}' has a smallest area, which a graph with its bank does not know; leave out "
            f"--with-bank, or take it away: dinosaur set {shlex.quote(bank.record.name)} --smallest-area 0."
        )
    position = bank.position
    if position is not None and (position.registered or position.kind == "free"):
        raise InputError(
            f"The position of the task '{bank.record.name}' is '{position}', which a graph with its bank does not "
            "know; leave out --with-bank, or learn the task anew with --position aligned."
        )
    asked = None if false_alarms is None else check_rate(false_alarms)
    threshold, rate = bank.sensitivity(preset, asked)
    controls = controls_of(bank, preset, FeatureExtractor(preset, lambda: reference))
    by_hand = asked is None and bank.settings.threshold is not None
    if reason := why_not_ready(bank.record.name, threshold, controls.scores, bank.headroom, by_hand=by_hand):
        raise InputError(reason)
    limit = unknown_limit(bank, preset, controls)
    facts = {
        "task": bank.record.name,
        "version": bank.record.version,
        "id": bank.record.id,
        "threshold": threshold,
        "unknown_level": limit if math.isfinite(limit) else None,
        "false_alarms": rate,
        "precision": bank.packed.precision,
        "members": bank.packed.members,
        "channels": bank.packed.channels,
        "readings": list(preset.readings),
        "exposure": list(bank.exposure) if bank.exposure else None,
        "inspected": 1.0 if bank.zone is None else round(bank.zone.share, 4),
    }
    graph_bank = GraphBank(bank.memory, threshold, limit, bank.scale, bank.exposure, bank.zone)
    return add_bank(model, graph_bank, preset, reference.tail), facts


def _manifest(subject: ExportSubject, kind: str, precision: str, calibration: Pixels | None) -> Manifest:
    spec, preset = subject.weights.spec, subject.preset
    runtime = "openvino" if kind == "openvino" else "onnxruntime"
    return Manifest(
        kind=kind,
        precision=precision,
        encoder=spec.name,
        fingerprint=subject.fingerprint,
        layers=preset.layers,
        size=preset.size,
        weights_sha256=subject.weights.sha256,
        weights_source=subject.weights.source,
        licence=spec.licence,
        licence_url=spec.licence_url,
        files={},
        parity={},
        bank=None,
        made={
            "dinosaur-ad": __version__,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "opset": OPSET,
            runtime: version(runtime),
            "calibration_images": 0 if calibration is None else len(calibration),
            "scoring": {"preset": preset.name, **{key: preset.to_json()[key] for key in _SCORING | _LATER_SCORING}},
        },
    )


def _opened(folder: Path, out: Path, threads: int | None) -> ExportedEncoder:
    """Open an export in its temporary folder; error messages name the final folder."""
    try:
        return open_exported(folder, threads=threads)
    except EncoderError as error:
        raise EncoderError(str(error).replace(str(folder), str(out))) from error


def _refuse_failure(parity: Parity) -> None:
    if reason := parity.failure():
        raise EncoderError(
            f"The export is refused: {reason.rstrip('.')}; measured: {parity.sentence()}; use a wider precision, or "
            "for int8 calibrate on more and more typical normals."
        )
