"""One method's page: where it comes from, what it is here, what it reaches, and why it fails where it fails.

The words about a method are the docstring of its module, the numbers those of its settings and of stored results:
nothing is written down twice. The same code and results give the same page.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bench.provenance_causes import causes_section
from dinosaur_ad.bench.provenance_figures import figures_section, paper_section
from dinosaur_ad.bench.provenance_originals import original_section
from dinosaur_ad.bench.provenance_runs import Run, runs_of
from dinosaur_ad.bench.provenance_settings import parameters_section, settings_section
from dinosaur_ad.bench.report.render import plain
from dinosaur_ad.bench.report.shortcuts import Controls, controls
from dinosaur_ad.bench.results import FailedCell, find_results
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import MethodSpec, list_methods

COMMAND = "python -m dinosaur_ad.cli bench describe"
"""How a marked block of a page names the command that made it."""


def describe(name: str, folders: Sequence[str] = ()) -> str:
    """The page of the method called ``name``, with the results below ``folders``, as Markdown.

    >>> print(describe("dne").partition(":")[0])
    # DNE, Distribution of Normal Embeddings

    :raises InputError: there is no such method, or a folder holds no results.
    """
    methods = list_methods()
    if name not in methods:
        known = ", ".join(methods)
        raise InputError(f"There is no method '{name}' to describe; choose from: {known} (a page has all variants).")
    spec = methods[name]
    finished, failed = find_results(folders)
    runs = runs_of(spec, finished)
    parts = [sheet(spec), settings_section(spec), parameters_section(spec)]
    parts += [paper_section(name), original_section(name, runs), _measured(spec, runs, failed, controls(finished))]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def sheet(spec: MethodSpec) -> str:
    """The provenance sheet: the docstring of the method's module, its first line as the title."""
    text = inspect.cleandoc(sys.modules[spec.method.__module__].__doc__ or f"{spec.name}: {spec.summary}")
    title, _, rest = text.partition("\n")
    return f"# {title.rstrip('.')}\n{rest}"


def write_page(page: str, name: str, folders: Sequence[str], path: Path) -> None:
    """Write a page; into a file that has such a block already (see docs/methods), only the block.

    :raises InputError: the file cannot be read or written.
    """
    marks = re.compile(
        rf"<!-- begin: {re.escape(COMMAND)} {re.escape(name)}( [^\n]*)? -->\n.*?\n<!-- end -->", re.DOTALL
    )
    command = " ".join([COMMAND, name, *folders])
    block = f"<!-- begin: {command} -->\n{page}<!-- end -->"
    try:
        before = path.read_text("utf-8") if path.is_file() else ""
        # A function, because a page may hold backslashes, which would mean something in a replacement.
        after = marks.sub(lambda _: block, before) if marks.search(before) else page
        write_atomic(path, after.encode())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InputError(f"The page '{path}' could not be written ({reason}); choose another --out.") from error


def _measured(spec: MethodSpec, runs: Sequence[Run], failed: Sequence[FailedCell], light: Controls) -> str:
    """Figures and causes, or how to get some."""
    failures = [
        f"- {plain(f'{cell.method} on {cell.scenario}, seed {cell.seed}: {cell.error}')}"
        for cell in failed
        if cell.method.partition(":")[0] == spec.name
    ]
    parts = ["\n".join(["Cells that failed:", "", *failures])] if failures else []
    if runs:
        parts = [figures_section(runs), *parts, causes_section(spec.name, runs, light)]
    else:
        command = f"dinosaur bench run --methods {spec.name} --scenarios mtd-color,mvtec-ad --out runs/{spec.name}"
        parts = [
            "## Measured here",
            f"There are no results of {spec.name} here; make some with `{command}`, then describe it again with "
            f"`dinosaur bench describe {spec.name} runs/{spec.name}`.",
            *parts,
        ]
    return "\n\n".join(part.strip() for part in parts)
