"""The verb export: an encoder, or one with a task's bank, as files for another run time; and the check of one."""

from __future__ import annotations

import argparse
from pathlib import Path

from dinosaur_ad.cli._console import EXIT_OK, say, show
from dinosaur_ad.cli._extras import require
from dinosaur_ad.cli._parser import Subparsers, add_false_alarms, add_threads, add_verb
from dinosaur_ad.cli._steps import Steps
from dinosaur_ad.errors import InputError


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file."""
    parser = add_verb(
        verbs,
        "export",
        export,
        "Write the encoder as files for another run time. It is opened and compared with float32 first; what is not "
        "near enough is refused with the figures.",
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", metavar="DIR", type=Path, help="a new or empty folder for the export")
    target.add_argument(
        "--check", metavar="DIR", type=Path, help="compare the export there with float32 on this machine"
    )
    parser.add_argument("--format", choices=("onnx", "openvino", "tensorrt"), help="what shall run it (default: onnx)")
    parser.add_argument("--precision", metavar="NAME", help="float32 (default), float16, bfloat16 or int8")

    what = parser.add_argument_group("what is exported")
    what.add_argument("--store", metavar="DIR", type=Path, help="the encoder and preset of this store")
    what.add_argument("--encoder", metavar="NAME", help="this encoder, without a store; see: dinosaur weights list")
    what.add_argument(
        "--preset", metavar="default|fast|best|paper", help="layers and size without a store (default: default)"
    )
    what.add_argument("--weights", metavar="PATH", type=Path, help="weights from this file, not from the cache")
    what.add_argument(
        "--task", metavar="NAME", help="the task of the store whose bank scores labelled images, or is exported"
    )
    what.add_argument("--with-bank", action="store_true", help="put the scoring of the task into the graph as well")
    add_false_alarms(what, "for the threshold in the graph (default: as the task is set)")

    compared = parser.add_argument_group("what it is compared on")
    compared.add_argument(
        "--images",
        metavar="NORMALS",
        nargs="+",
        help="normal images, files, folders or globs; int8 is calibrated on them (default: those the store was taught "
        "from, where they still are; else drawn ones)",
    )
    compared.add_argument(
        "--labelled", metavar="FOLDER", type=Path, help="good/ and a folder for each defect, for the change of AUROC"
    )
    add_threads(compared)


def export(arguments: argparse.Namespace) -> int:
    """Make an export, or check one."""
    return _check(arguments) if arguments.check else _make(arguments)


def _make(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.export.exporting import export as make

    if arguments.format == "openvino":
        require("openvino", "--format openvino")
    with Steps() as step:
        exported = make(
            arguments.out,
            kind=arguments.format or "onnx",
            precision=arguments.precision or "float32",
            store=arguments.store,
            encoder=arguments.encoder,
            preset=arguments.preset,
            weights=arguments.weights,
            task=arguments.task,
            with_bank=arguments.with_bank,
            false_alarms=arguments.false_alarms,
            images=arguments.images,
            labelled=arguments.labelled,
            threads=arguments.threads,
            progress=step,
        )
    manifest = exported.manifest
    bank = f", with the bank of '{manifest.bank['task']}'" if manifest.bank else ""
    show(f"exported '{manifest.encoder}' for {manifest.kind} in {manifest.precision}{bank} to {exported.folder}")
    show(f"size: {exported.bytes / 1e6:.1f} MB; licence: {manifest.licence}")
    show(f"parity: {exported.parity.sentence()}")
    if manifest.kind == "tensorrt" and exported.parity.provider != "tensorrt":
        say(
            "TensorRT is not here: the graph was compared on the CPU; run dinosaur export --check on the machine that "
            "has it."
        )
    return EXIT_OK


def _check(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.export.exporting import check

    making = ("format", "precision", "encoder", "preset", "task", "with_bank", "false_alarms")
    if given := [f"--{name.replace('_', '-')}" for name in making if getattr(arguments, name)]:
        raise InputError(f"--check takes an export as it is; leave out {', '.join(given)}.")
    with Steps() as step:
        parity = check(
            arguments.check,
            store=arguments.store,
            weights=arguments.weights,
            images=arguments.images,
            labelled=arguments.labelled,
            threads=arguments.threads,
            progress=step,
        )
    show(f"{arguments.check} runs on {parity.provider} in {parity.precision} and may be used")
    show(f"parity: {parity.sentence()}")
    return EXIT_OK
