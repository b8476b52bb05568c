"""What ``dinosaur bench teacher`` does: EfficientAD's teacher, made from a large network."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path

from dinosaur_ad.cli import bench_options
from dinosaur_ad.cli._console import EXIT_OK, say, show
from dinosaur_ad.cli._extras import require
from dinosaur_ad.errors import InputError

DESCRIPTION = (
    "Make EfficientAD's teacher: a small network that learns to describe images as a large one does. Stopped, the\n"
    "same command goes on where it was."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it learns from and where it goes."""
    parser.add_argument("--images", metavar="DIR", type=Path, required=True, help="many and various images, any kind")
    parser.add_argument("--encoder", metavar="NAME", required=True, help="what it learns from, such as resnet18")
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="where to, such as teacher.safetensors")
    parser.add_argument("--recipe", choices=("paper", "original"), default="paper", help="schedule (default: paper)")
    parser.add_argument("--iterations", metavar="N", type=int, help="instead of the recipe's 60000")
    parser.add_argument("--weights", metavar="FILE", help="the encoder's weights from this file")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of weights and of the order (default: 0)")
    parser.add_argument("--device", metavar="cpu|cuda", default="cpu", help="where to compute (default: cpu)")


def run(arguments: argparse.Namespace) -> int:
    """Make the teacher and print where it is."""
    require("torch", "Making a teacher")
    from dinosaur_ad.methods.efficientad.teacher_parts import RECIPES
    from dinosaur_ad.methods.efficientad.teacher_training import pretrain_teacher

    recipe = RECIPES[arguments.recipe]
    if arguments.iterations is not None:
        if arguments.iterations < 1:
            raise InputError(f"--iterations must be at least 1, got {arguments.iterations}.")
        recipe = replace(recipe, iterations=arguments.iterations)
    with bench_options.resumable():
        made = pretrain_teacher(
            arguments.images,
            arguments.encoder,
            arguments.out,
            recipe=recipe,
            weights=arguments.weights,
            device=bench_options.read_device(arguments.device),
            seed=arguments.seed,
            say=say,
        )
    if made.unreadable:
        say(f"{made.unreadable} files could not be read and were passed over")
    show(f"{made.path}: {made.description}; last loss {made.losses[-1]:.4f}")
    say(f"Now: dinosaur bench run --methods efficientad --set efficientad.teacher={shlex.quote(str(made.path))} ...")
    return EXIT_OK
