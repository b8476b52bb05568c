"""What ``dinosaur bench tune`` does: settings for an encoder, chosen by leaving one product out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dinosaur_ad.cli import bench_options
from dinosaur_ad.cli._console import EXIT_OK, say, show, table
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.bench.tune_results import TuneResult
    from dinosaur_ad.bench.tune_search import Measured

DESCRIPTION = (
    "Choose the settings of the detector for an encoder, for each product on all others. Stopped, the same command\n"
    "goes on where it was."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is tuned, on what, and where to."""
    listed = bench_options.names
    parser.add_argument("--encoder", metavar="NAME", required=True, help="such as dinov3-small")
    parser.add_argument(
        "--scenarios",
        metavar="X,Y",
        type=listed,
        help="default: mvtec-ad,mvtec-loco,mtd-color, where they are here",
    )
    parser.add_argument("--vary", metavar="A,B", type=listed, help="only these settings (default: all)")
    parser.add_argument("--tasks-per-scenario", metavar="N", type=int, help="at most, spread over a scenario's tasks")
    parser.add_argument("--images", metavar="N", type=int, help="to learn a task from, and to test it on, at most")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of drawn images and first picks (default: 0)")
    parser.add_argument("--out", metavar="FILE", help="where to (default: runs/tune-ENCODER.json)")
    bench_options.add_place_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print what was chosen."""
    from dinosaur_ad.bench.tune import plan_tune, run_tune
    from dinosaur_ad.bench.tune_search import VARIED

    plan = plan_tune(
        arguments.encoder,
        vary=VARIED if arguments.vary is None else arguments.vary,
        images=arguments.images,
        tasks=arguments.tasks_per_scenario,
        seed=arguments.seed,
        device=bench_options.read_device(arguments.device),
    )
    out = arguments.out or str(Path("runs", f"tune-{arguments.encoder}.json"))
    if Path(out).is_dir():
        raise InputError(f"'{out}' is a folder; give --out a file.")
    bench_options.output_folder(str(Path(out).parent))
    where = bench_options.run_options(arguments, out)
    with bench_options.resumable():
        result = run_tune(plan, arguments.scenarios, where, say)
    print_tune(result)
    say(f"All that was measured is in {out}")
    return EXIT_OK


def print_tune(result: TuneResult) -> None:
    """The products with what was chosen without each, and the settings chosen on all of them."""
    header = ("product", "chosen without it", "AUROC", "false alarms", "recall", "default", "by hindsight", "hindsight")
    rows = [
        (
            each.product,
            each.settings.differences(result.start) or "default",
            *_figures(each.chosen),
            f"{each.start.auroc:.3f}",
            each.best_settings.differences(result.start) or "default",
            f"{each.best.auroc:.3f}",
        )
        for each in result.products
    ]
    chosen, start, best = result.means
    rows.append(("mean", "", *_figures(chosen), f"{start.auroc:.3f}", "", f"{best.auroc:.3f}"))
    show(f"image AUROC a product with {result.encoder.description}", "")
    show(*table(header, rows, numeric=("AUROC", "false alarms", "recall", "default", "hindsight")))
    show("", f"chosen on all products: {result.settings.differences(result.start) or 'the default as it is'}")
    if not result.carries_over:
        show(
            f"Keep the default: what is chosen without a product ranks it worse ({chosen.auroc:.3f}) than the default "
            f"does ({start.auroc:.3f}); try again with more products and images."
        )
    if result.overrides():
        show("for the encoder's entry in registry.toml:", "", *result.toml().splitlines())


def _figures(found: Measured) -> tuple[str, str, str]:
    return f"{found.auroc:.3f}", f"{100 * found.false_alarms:.1f} %", f"{100 * found.recall:.0f} %"
