"""The verbs of the benchmark: what can be run, running it, and what came of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dinosaur_ad.cli._console import EXIT_ERROR, EXIT_OK, Subparsers, add_verb, say
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.bench.results import CellResult, FailedCell

_OUT = Path("runs", "bench")


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
    _add_grid(parts)
    _add_storage(parts)


# --- list ---


def _add_list(verbs: Subparsers) -> None:
    parser = add_verb(verbs, "list", _list, "Show methods, scenarios with the state of their data, and suites.")
    _add_data(parser)
    _add_load(parser)


def _list(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.bench.runner import load_plugins
    from dinosaur_ad.bench.scenarios import describe_table
    from dinosaur_ad.bench.suites import SUITES
    from dinosaur_ad.methods import list_methods

    load_plugins(arguments.load)
    print("methods")
    for spec in list_methods().values():
        replay = "; with replay" if spec.replay else ""
        print(f"  {spec.name:<16} {spec.summary}{replay}")
        others = [f"{spec.name}:{variant}" for variant in spec.variants if variant != "default"]
        if others:
            print(f"  {'':<16} variants: {', '.join(others)}")
    print("\nscenarios")
    for row in describe_table(arguments.data):
        print(f"  {row.name:<16} {row.tasks:>7} tasks  {row.state:<8}  {row.summary}")
        if row.state in ("missing", "partial"):
            print(f"  {'':<16} {row.detail}")
    print(f"  {'folder:PATH':<16} any folder of categories in the MVTec-AD layout")
    print("\nsuites")
    for name, suite in SUITES.items():
        print(f"  {name:<16} {suite.summary}")
    return EXIT_OK


# --- run ---


def _add_run(verbs: Subparsers) -> None:
    parser = add_verb(
        verbs,
        "run",
        _run,
        "Run methods on scenarios. Stopped at any point, the same command goes on where it was and ends in the same "
        "numbers; a cell that fails is written down, and the others go on.",
    )
    parser.add_argument("--suite", metavar="NAME", help="a named choice of the following (see: dinosaur bench list)")
    parser.add_argument("--methods", metavar="A,B", type=_names, help="methods, such as dinosaur,dinosaur:paper")
    parser.add_argument("--scenarios", metavar="X,Y", type=_names, help="scenarios, such as mtd-color,mvtec-ad")
    parser.add_argument("--seeds", metavar="N,M", type=_numbers, help="of drift and of methods (default: 0)")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of one method (patchcore.replay=50) or of all that have it (encoder=dinov3-small)",
    )
    parser.add_argument("--device", metavar="cpu|cuda", default="cpu", help="where to compute (default: cpu)")
    parser.add_argument("--out", metavar="DIR", default=str(_OUT), help=f"folder or fsspec address (default: {_OUT})")
    _add_data(parser)
    _add_load(parser)
    parser.add_argument("--cache", metavar="DIR", type=Path, help="where features and prepared images are kept")
    parser.add_argument("--cache-limit", metavar="GB", type=float, default=20.0, help="at most (default: 20)")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="what runs the cells")
    parser.add_argument("--address", metavar="ADDRESS", help="the Ray cluster (default: one on this machine)")


def _run(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.bench.runner import Surroundings, load_plugins, plan, run_local
    from dinosaur_ad.bench.suites import get_suite

    load_plugins(arguments.load)
    suite = get_suite(arguments.suite) if arguments.suite else None
    methods = arguments.methods or (suite and suite.methods)
    scenarios = arguments.scenarios or (suite and suite.scenarios)
    if not methods or not scenarios:
        raise InputError("Say what to run: --suite quick, or --methods and --scenarios (see: dinosaur bench list).")
    settings = dict(suite.settings) if suite else {}
    settings |= dict(_setting(each) for each in arguments.set)
    seeds = arguments.seeds or (suite.seeds if suite else (0,))
    cells = plan(methods, scenarios, seeds, settings=settings, device=_device(arguments.device))
    options = {"cache": arguments.cache} if arguments.cache else {}
    where = Surroundings(
        arguments.out, arguments.data, cache_limit=int(arguments.cache_limit * 1e9), plugins=arguments.load, **options
    )
    if arguments.engine == "ray":
        from dinosaur_ad.bench.ray_engine import run_ray

        done, failed = run_ray(cells, where, say, address=arguments.address)
    else:
        done, failed = run_local(cells, where, say)
    _summary(done, failed)
    say(f"Now: dinosaur bench report {arguments.out}")
    return EXIT_ERROR if failed else EXIT_OK


def _summary(done: Sequence[CellResult], failed: Sequence[FailedCell]) -> None:
    from dinosaur_ad.bench.metrics import final_average, fm_std

    for result in done:
        encoder = result.info.get("encoder") or result.info.get("backbone") or ""
        measured = f"image AUROC {final_average(result.auroc):.3f}  forgetting {fm_std(result.auroc):+.3f}"
        print(f"{result.scenario:<16} {result.method:<18} seed {result.seed}  {measured}  {encoder}")
    for failure in failed:
        print(f"{failure.scenario:<16} {failure.method:<18} seed {failure.seed}  FAILED: {failure.error}")


# --- report and pack ---


def _add_report(verbs: Subparsers) -> None:
    parser = add_verb(
        verbs, "report", _report, "Write the tables beside the paper's, as a page, as Markdown and as LaTeX."
    )
    parser.add_argument("results", metavar="DIR", nargs="+", help="folders or fsspec addresses of results")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where to (default: DIR/report of the first)")
    _add_data(parser)


def _report(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.bench.report import write_report
    from dinosaur_ad.bench.results import find_results

    finished, failed = find_results(arguments.results)
    first = arguments.results[0]
    out = arguments.out or (Path("runs", "report") if "://" in first else Path(first) / "report")
    files = write_report(finished, out, failed=failed, data=arguments.data, folders=arguments.results)
    for path in (files.html, files.markdown, files.latex):
        print(path)
    return EXIT_OK


def _add_pack(verbs: Subparsers) -> None:
    parser = add_verb(
        verbs, "pack", _pack, "Copy finished results in their compact form, without maps, names and earlier scores."
    )
    parser.add_argument("results", metavar="DIR", nargs="+", help="folders or fsspec addresses of results")
    parser.add_argument("--out", metavar="DIR", required=True, help="where to")


def _pack(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.bench.places import open_place
    from dinosaur_ad.bench.results import find_results

    finished, _ = find_results(arguments.results)
    place = open_place(arguments.out)
    for result in finished:
        result.save(place.below(result.folder), compact=True)
    print(f"{len(finished)} results in {arguments.out}")
    return EXIT_OK


# --- grid and storage ---


def _add_grid(verbs: Subparsers) -> None:
    parser = add_verb(
        verbs,
        "grid",
        _grid,
        "Measure DINOSaur for every coreset ratio and radius, beside the paper's table. Features are encoded once; a "
        "finished scenario is not repeated.",
    )
    parser.add_argument("--scenarios", metavar="X,Y", type=_names, required=True, help="such as mtd-color,mvtec-ad")
    parser.add_argument("--preset", metavar="NAME", default="paper", help="paper or default (default: paper)")
    parser.add_argument("--ratios", metavar="A,B", type=_names, help="shares of the training images (default: paper's)")
    parser.add_argument("--radii", metavar="N,M", type=_names, help="in patches (default: the paper's 0 to 4)")
    parser.add_argument("--minimum", metavar="M", type=int, help="patches a location keeps at least (default: 20)")
    parser.add_argument("--encoder", metavar="NAME", help="the same as --set encoder=NAME")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting of dinosaur")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of drift and of first picks (default: 0)")
    parser.add_argument("--device", metavar="cpu|cuda", default="cpu", help="where to compute (default: cpu)")
    parser.add_argument("--out", metavar="DIR", default=str(_OUT), help=f"folder or fsspec address (default: {_OUT})")
    _add_data(parser)
    parser.add_argument("--cache", metavar="DIR", type=Path, help="where features and prepared images are kept")


def _grid(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.bench.grid import RADII, RATIOS, plan_grid, run_grid
    from dinosaur_ad.bench.runner import Surroundings
    from dinosaur_ad.cli.grid import print_grid, read_numbers

    settings = dict(_setting(each) for each in arguments.set)
    if arguments.encoder:
        settings["encoder"] = arguments.encoder
    plan = plan_grid(
        arguments.preset,
        RATIOS if arguments.ratios is None else read_numbers(arguments.ratios, "--ratios"),
        RADII if arguments.radii is None else read_numbers(arguments.radii, "--radii", whole=True),
        settings=settings,
        minimum=arguments.minimum,
        seed=arguments.seed,
        device=_device(arguments.device),
    )
    options = {"cache": arguments.cache} if arguments.cache else {}
    where = Surroundings(arguments.out, arguments.data, **options)
    print_grid(run_grid(plan, arguments.scenarios, where, say))
    return EXIT_OK


def _add_storage(verbs: Subparsers) -> None:
    add_verb(verbs, "storage", _storage, "Show the paper's storage table with its arithmetic done again.")


def _storage(arguments: argparse.Namespace) -> int:
    from dinosaur_ad.cli.grid import print_storage

    print_storage()
    return EXIT_OK


# --- what they share ---


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", metavar="DIR", type=Path, help="the folder that holds the datasets (default: $DINOSAUR_DATA)"
    )


def _add_load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--load", metavar="FILE", type=Path, action="append", default=[], help="a Python file with a method of yours"
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers such as 0,1,2, got '{text}'") from None


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"--set takes KEY=VALUE, such as patchcore.replay=50, got '{text}'.")
    return key, value


def _device(name: str) -> str:
    if name == "cpu":
        return name
    try:
        import torch
    except ImportError as error:
        raise InputError(
            f"The device '{name}' needs torch; install it with: pip install 'dinosaur-ad[bench]'."
        ) from error
    if not name.startswith("cuda"):
        raise InputError(f"There is no device '{name}'; choose cpu or cuda.")
    if not torch.cuda.is_available():
        raise InputError(f"The device '{name}' was asked for, but torch sees no GPU here; use --device cpu.")
    return name
