"""Options that the benchmark's commands share, and how they are parsed; invalid values are refused at once."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from dinosaur_ad.errors import InputError, install_advice

if TYPE_CHECKING:
    from dinosaur_ad.bench.runner import RunOptions

_OUT = Path("runs", "bench")


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where the datasets are."""
    parser.add_argument(
        "--data", metavar="DIR", type=Path, help="the folder that holds the datasets (default: $DINOSAUR_DATA)"
    )


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add the option that brings methods of one's own."""
    parser.add_argument(
        "--load", metavar="FILE", type=Path, action="append", default=[], help="a Python file with a method of yours"
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the device, and the folders for data, results and cache."""
    parser.add_argument("--out", metavar="DIR", default=str(_OUT), help=f"folder or fsspec address (default: {_OUT})")
    add_place_options(parser)


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Add the device, and the folders for data and cache."""
    parser.add_argument("--device", metavar="cpu|cuda", default="cpu", help="where to compute (default: cpu)")
    add_data(parser)
    parser.add_argument("--cache", metavar="DIR", type=Path, help="where features and prepared images are kept")
    parser.add_argument(
        "--cache-limit", metavar="GB", type=float, default=20.0, help="at most; 0 keeps nothing (default: 20)"
    )


def run_options(arguments: argparse.Namespace, out: str | None = None) -> RunOptions:
    """What :func:`add_run_options` was given, but for the device; ``out`` is a file instead of the folder ``--out``."""
    from dinosaur_ad.bench.runner import RunOptions

    limit = arguments.cache_limit
    if not (math.isfinite(limit) and limit >= 0):
        raise InputError(f"--cache-limit takes a size in GB, 0 or more, got {limit:g}.")
    plugins = tuple(getattr(arguments, "load", ()))
    cache = {} if arguments.cache is None else {"cache": Path(output_folder(str(arguments.cache), "--cache"))}
    out, data = output_folder(arguments.out) if out is None else out, data_folder(arguments)
    return RunOptions(
        out,
        data,
        cache_limit=int(limit * 1e9),
        plugins=plugins,
        publish=getattr(arguments, "publish", False),
        checkpoints=getattr(arguments, "checkpoints", True),
        **cache,
    )


def refuse_unpublishable(arguments: argparse.Namespace) -> None:
    """Refuse ``--publish`` where the source that would run is not exactly known, before anything else is done."""
    from dinosaur_ad.bench.environment import exact_revision

    if not arguments.publish:
        return
    if arguments.load:
        raise InputError(
            "--publish records the commit of this package's source, and a method from --load is in none; add it below "
            "src and commit it, or leave out --publish."
        )
    exact_revision()


def data_folder(arguments: argparse.Namespace) -> Path | None:
    """The folder of ``--data``; one that is named should be there."""
    data: Path | None = arguments.data
    if data is not None and not data.expanduser().is_dir():
        raise InputError(f"The data folder '{data}' does not exist; give --data the folder that holds the datasets.")
    return None if data is None else data.expanduser()


def output_folder(address: str, option: str = "--out") -> str:
    """The address, unless it is or lies below a file: better refused now than after hours of work."""
    if "://" not in address:
        file = next((path for path in (Path(address), *Path(address).parents) if path.is_file()), None)
        if file is not None:
            raise InputError(f"'{file}' is a file; give {option} a folder.")
    return address


def names(text: str) -> list[str]:
    """The parts of a list on the command line.

    >>> names("dinosaur, patchcore,")
    ['dinosaur', 'patchcore']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


@overload
def read_numbers(texts: Sequence[str], option: str) -> list[float]: ...
@overload
def read_numbers(texts: Sequence[str], option: str, *, whole: Literal[True]) -> list[int]: ...
def read_numbers(texts: Sequence[str], option: str, *, whole: bool = False) -> list[float] | list[int]:
    """What was given to ``option`` as numbers.

    >>> read_numbers(["0.05", "0.1"], "--ratios")
    [0.05, 0.1]
    """
    try:
        return [int(text) for text in texts] if whole else [float(text) for text in texts]
    except ValueError:
        wanted = "whole numbers such as 0,1,3" if whole else "numbers such as 0.05,0.1"
        raise InputError(f"{option} takes {wanted}, got '{','.join(texts)}'.") from None


def read_settings(texts: Sequence[str]) -> dict[str, str]:
    """What was given to ``--set``; a later one wins.

    >>> read_settings(["size=224", "patchcore.replay=50"])
    {'size': '224', 'patchcore.replay': '50'}
    """
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"--set takes KEY=VALUE, such as patchcore.replay=50, got '{text}'.")
        settings[key] = value
    return settings


def for_methods(settings: Mapping[str, str], methods: Sequence[str]) -> dict[str, str]:
    """Of a suite's settings those that concern one of the methods, which need not be the suite's own.

    >>> for_methods({"dinosaur.size": "70", "patchcore.dim": "16", "seed": "1"}, ["dinosaur:paper"])
    {'dinosaur.size': '70', 'seed': '1'}
    """
    scopes = {"", *methods, *(method.partition(":")[0] for method in methods)}
    return {key: value for key, value in settings.items() if key.rpartition(".")[0] in scopes}


def read_device(name: str, *, elsewhere: bool = False) -> str:
    """A device that can be used; of one on another machine only the name can be checked."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise InputError(f"There is no device '{name}'; choose cpu or cuda.")
    if name == "cpu" or elsewhere:
        return name
    try:
        import torch
    except ImportError as error:
        raise InputError(f"The device '{name}' needs torch; {install_advice('bench')}.") from error
    if not torch.cuda.is_available():
        raise InputError(f"The device '{name}' was asked for, but torch sees no GPU here; use --device cpu.")
    if int(name.partition(":")[2] or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise InputError(f"The device '{name}' was asked for, but torch counts {count} here, from cuda:0 on.")
    return name


def ray_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What only a run on Ray takes, for :func:`~dinosaur_ad.bench.ray_engine.run_ray`."""
    given = {
        "address": ("--address", arguments.address),
        "cpus": ("--cpus-per-cell", arguments.cpus_per_cell),
        "gpus": ("--gpus-per-cell", arguments.gpus_per_cell),
    }
    for name, (option, value) in given.items():
        if value is None:
            continue
        if arguments.engine != "ray":
            raise InputError(f"{option} is for a Ray cluster; add --engine ray, or leave it out.")
        if name != "address" and not (0 < value <= 1 or (math.isfinite(value) and value >= 1 and value == int(value))):
            raise InputError(f"{option} takes a share such as 0.5, or a whole number from 1 on, got {value:g}.")
    if arguments.gpus_per_cell is not None and arguments.device == "cpu":
        raise InputError("--gpus-per-cell is for cells on a GPU; add --device cuda, or leave it out.")
    return {name: value for name, (_, value) in given.items() if value is not None}


@contextmanager
def resumable(*, checkpoints: bool = True) -> Iterator[None]:
    """On Ctrl-C, print that the same command resumes the run, and where."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoints:
            raise KeyboardInterrupt("the same command goes on where it was") from None
        raise KeyboardInterrupt(
            "the same command goes on after the last finished cell; without checkpoints the one that was stopped "
            "begins anew"
        ) from None
