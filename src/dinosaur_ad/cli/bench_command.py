"""The verbs of the benchmark: what can be run, running it, and what came of it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dinosaur_ad.cli import (
    bench_describe,
    bench_leaderboard,
    bench_options,
    bench_submit,
    bench_teacher,
    bench_tune,
    bench_verify,
)
from dinosaur_ad.cli._console import (
    EXIT_ANOMALOUS,
    EXIT_CODES,
    EXIT_ERROR,
    EXIT_NOT_JUDGED,
    EXIT_OK,
    EXIT_UNREADABLE,
    exit_codes,
    say,
    show,
    table,
)
from dinosaur_ad.cli._parser import Subparsers, add_verb
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.bench.cell import CellSpec
    from dinosaur_ad.bench.results import CellResult, FailedCell

Given = TypeVar("Given")

# No images of the user are judged here.
_EPILOG = exit_codes(
    {code: EXIT_CODES[code] for code in EXIT_CODES if code not in (EXIT_ANOMALOUS, EXIT_UNREADABLE, EXIT_NOT_JUDGED)}
    | {EXIT_ERROR: "an error: a sentence on stderr says which; or a cell failed, and the others are done"}
)


def add_parser(verbs: Subparsers) -> None:
    """Add the verb of this file, and those below it."""
    parser = verbs.add_parser(
        "bench", help="Compare continual anomaly detectors on the paper's protocols", allow_abbrev=False
    )
    parts = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_list(parts)
    _add_run(parts)
    _add_report(parts)
    _add_pack(parts)
    bench_verify.add_arguments(_verb(parts, "verify", bench_verify.run, bench_verify.DESCRIPTION))
    bench_submit.add_arguments(_verb(parts, "submit", bench_submit.run, bench_submit.DESCRIPTION))
    bench_leaderboard.add_arguments(_verb(parts, "leaderboard", bench_leaderboard.run, bench_leaderboard.DESCRIPTION))
    about = "Show one method: where it comes from, its settings, its figures, and why it fails where it fails."
    bench_describe.add_arguments(_verb(parts, "describe", bench_describe.run, about))
    _add_grid(parts)
    bench_tune.add_arguments(_verb(parts, "tune", bench_tune.run, bench_tune.DESCRIPTION))
    _verb(parts, "storage", _storage, "Show the paper's storage table with its arithmetic done again.")
    bench_teacher.add_arguments(_verb(parts, "teacher", bench_teacher.run, bench_teacher.DESCRIPTION))


def _verb(
    verbs: Subparsers, name: str, run: Callable[[argparse.Namespace], int], description: str
) -> argparse.ArgumentParser:
    parser = add_verb(verbs, name, run, description)
    parser.epilog = _EPILOG
    return parser


# --- list ---


def _add_list(verbs: Subparsers) -> None:
    parser = _verb(verbs, "list", _list, "Show methods, scenarios with the state of their data, and suites.")
    bench_options.add_data(parser)
    bench_options.add_load(parser)


def _list(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.bench.runner import load_plugins
    from dinosaur_ad.cli.bench_list import print_list

    data = bench_options.data_folder(arguments)
    load_plugins(arguments.load)
    print_list(data)
    return EXIT_OK


# --- run ---


def _add_run(verbs: Subparsers) -> None:
    parser = _verb(
        verbs,
        "run",
        _run,
        "Run methods on scenarios. Stopped at any point, the same command goes on where it was and ends in the same\n"
        "numbers; a cell that fails is written down, and the others go on.",
    )
    listed = bench_options.names
    parser.add_argument("--suite", metavar="NAME", help="a named choice of the following (see: dinosaur bench list)")
    parser.add_argument("--methods", metavar="A,B", type=listed, help="methods, such as dinosaur,dinosaur:paper")
    parser.add_argument("--scenarios", metavar="X,Y", type=listed, help="scenarios, such as mtd-color,mvtec-ad")
    parser.add_argument("--seeds", metavar="N,M", type=listed, help="of drift and of methods (default: 0)")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of one method (patchcore.replay=50) or of all that have it (encoder=dinov3-small)",
    )
    bench_options.add_run_options(parser)
    bench_options.add_load(parser)
    parser.add_argument(
        "--publish",
        action="store_true",
        help="refuse to run unless the source is exactly that of a commit, and say so in the results",
    )
    parser.add_argument(
        "--no-checkpoints",
        dest="checkpoints",
        action="store_false",
        help="write nothing of unfinished cells: faster where weights are large, but one that is stopped begins anew",
    )
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="what runs the cells")
    ray = parser.add_argument_group("with --engine ray")
    ray.add_argument("--address", metavar="ADDRESS", help="the Ray cluster (default: one on this machine)")
    ray.add_argument("--cpus-per-cell", metavar="N", type=float, help="cores that a cell claims (default: 1)")
    ray.add_argument("--gpus-per-cell", metavar="N", type=float, help="GPUs, with --device cuda (default: 1)")


def _run(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.bench.runner import load_plugins, run_local

    on_ray = bench_options.ray_options(arguments)
    bench_options.refuse_unpublishable(arguments)
    where = bench_options.run_options(arguments)
    load_plugins(arguments.load)
    cells = _cells(arguments)
    with bench_options.resumable(checkpoints=arguments.checkpoints):
        if arguments.engine == "ray":
            from dinosaur_ad.bench.ray_engine import run_ray

            done, failed = run_ray(cells, where, say, **on_ray)
        else:
            done, failed = run_local(cells, where, say)
    _summary(done, failed, arguments.out)
    say(f"Now: dinosaur bench report {shlex.quote(arguments.out)}")
    return EXIT_ERROR if failed else EXIT_OK


def _cells(arguments: argparse.Namespace) -> list[CellSpec]:
    """What a suite names, and what is named besides, which goes first."""
    from dinosaur_ad.bench.runner import plan
    from dinosaur_ad.bench.suites import Suite, get_suite

    suite = Suite("", (), ()) if arguments.suite is None else get_suite(arguments.suite)
    seeds = None if arguments.seeds is None else bench_options.read_numbers(arguments.seeds, "--seeds", whole=True)
    methods, scenarios = _given(arguments.methods, suite.methods), _given(arguments.scenarios, suite.scenarios)
    if not methods or not scenarios:
        raise InputError("Say what to run: --suite quick, or --methods and --scenarios (see: dinosaur bench list).")
    own = bench_options.read_settings(arguments.set)
    suites = bench_options.for_methods(suite.settings, methods)
    device = bench_options.read_device(arguments.device, elsewhere=arguments.engine == "ray")
    # One's own come last and so win, also a general one (size) over the suite's of a method (dinosaur.size).
    settings = {key: value for key, value in suites.items() if key not in own} | own
    return plan(methods, scenarios, _given(seeds, suite.seeds), settings=settings, device=device)


def _given(given: Sequence[Given] | None, otherwise: Sequence[Given]) -> Sequence[Given]:
    """An option that was given counts, even if it is empty."""
    return otherwise if given is None else given


def _summary(done: Sequence[CellResult], failed: Sequence[FailedCell], out: str) -> None:
    from dinosaur_ad.bench.metrics import final_average, fm_std
    from dinosaur_ad.bench.results import ERROR, cell_folder

    header = ("scenario", "method", "seed", "image AUROC", "forgetting", "encoder")
    rows = [
        (
            result.scenario,
            result.method,
            str(result.seed),
            f"{final_average(result.auroc):.3f}",
            f"{fm_std(result.auroc):+.3f}",
            str(result.info.get("encoder") or result.info.get("backbone") or ""),
        )
        for result in done
    ]
    if rows:
        show(*table(header, rows, numeric=header[2:5]))
    for failure in failed:
        show(f"FAILED: {failure.method} on {failure.scenario}, seed {failure.seed}: {failure.error}")
        if failure.details:
            folder = cell_folder(failure.method, failure.scenario, failure.seed)
            say(f"The traceback is in {out}/{folder}/{ERROR}")


# --- report and pack ---


def _add_report(verbs: Subparsers) -> None:
    parser = _verb(
        verbs, "report", _report, "Write the tables beside the paper's, as a page, as Markdown and as LaTeX."
    )
    parser.add_argument("results", metavar="DIR", nargs="+", help="folders or fsspec addresses of results")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where to (default: DIR/report of the first)")
    parser.add_argument(
        "--print",
        metavar="NAME,NAME",
        type=bench_options.names,
        help="print these tables as Markdown and write nothing (a wrong name is answered with those there are)",
    )
    bench_options.add_data(parser)


def _report(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.cli.bench_results import print_tables, write_tables

    if arguments.print is None:
        write_tables(arguments.results, arguments.out, bench_options.data_folder(arguments))
    elif arguments.out is not None:
        raise InputError("--print writes no files; leave out --out, or --print.")
    else:
        print_tables(arguments.results, arguments.print)
    return EXIT_OK


def _add_pack(verbs: Subparsers) -> None:
    parser = _verb(
        verbs,
        "pack",
        _pack,
        "Copy finished results in their compact form, without maps, names and earlier scores. Grids are copied whole.",
    )
    parser.add_argument("results", metavar="DIR", nargs="+", help="folders or fsspec addresses of results")
    parser.add_argument("--out", metavar="DIR", required=True, help="where to")


def _pack(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.cli.bench_results import pack

    pack(arguments.results, bench_options.output_folder(arguments.out))
    return EXIT_OK


# --- grid and storage ---


def _add_grid(verbs: Subparsers) -> None:
    parser = _verb(
        verbs,
        "grid",
        _grid,
        "Measure DINOSaur for every coreset ratio and radius, beside the paper's table. Features are encoded once; a\n"
        "finished scenario is not repeated.",
    )
    listed = bench_options.names
    parser.add_argument("--scenarios", metavar="X,Y", type=listed, required=True, help="such as mtd-color,mvtec-ad")
    parser.add_argument("--preset", metavar="NAME", default="paper", help="paper or fast (default: paper)")
    parser.add_argument("--ratios", metavar="A,B", type=listed, help="shares of the training images (default: paper's)")
    parser.add_argument("--radii", metavar="N,M", type=listed, help="in patches (default: the paper's 0 to 4)")
    parser.add_argument("--minimum", metavar="M", type=int, help="patches a location keeps at least (default: 20)")
    parser.add_argument("--encoder", metavar="NAME", help="the same as --set encoder=NAME")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting of dinosaur")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of drift and of first picks (default: 0)")
    bench_options.add_run_options(parser)


def _grid(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.bench.grid import RADII, RATIOS, plan_grid, run_grid
    from dinosaur_ad.cli.grid_output import print_grid

    read_numbers = bench_options.read_numbers
    settings = bench_options.read_settings(arguments.set)
    if arguments.encoder:
        settings["encoder"] = arguments.encoder
    plan = plan_grid(
        arguments.preset,
        RATIOS if arguments.ratios is None else read_numbers(arguments.ratios, "--ratios"),
        RADII if arguments.radii is None else read_numbers(arguments.radii, "--radii", whole=True),
        settings=settings,
        minimum=arguments.minimum,
        seed=arguments.seed,
        device=bench_options.read_device(arguments.device),
    )
    where = bench_options.run_options(arguments)
    with bench_options.resumable():
        grid = run_grid(plan, arguments.scenarios, where, say)
    print_grid(grid)
    return EXIT_OK


def _storage(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.cli.grid_output import print_storage

    print_storage()
    return EXIT_OK
