"""Attack the product and print what was tried and what failed. The full run takes up to 20 minutes.

    python scripts/attack.py                                # everything, in full (make attack)
    python scripts/attack.py --small                        # what the tests try
    python scripts/attack.py --only flips,kills             # some attacks
    python scripts/attack.py --only flips --case 1234       # one case alone, as a failure is repeated
    python scripts/attack.py --json attack.json             # and keep the table

Everything happens in a temporary folder and with an encoder of random parameters; nothing is downloaded. The exit code
is 1 if anything failed, 130 after Ctrl-C (what was tried until then is printed). See docs/robustness.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHOWN, WIDTH = 12, 500
"""Failures of an attack that are printed, and how much of each; --json keeps all."""


def main(argv: Sequence[str] | None = None) -> int:
    """Attack; 0 if nothing failed."""
    sys.path.insert(0, str(ROOT / "tests"))  # where the attacks lie, in front of this script, which is called like them
    from attack.arena import SEED, arena
    from attack.registry import ATTACKS

    parser = argparse.ArgumentParser(description="Attack the product and print what was tried and what failed.")
    parser.add_argument("--only", metavar="NAMES", default=",".join(ATTACKS), help=f"of: {', '.join(ATTACKS)}")
    parser.add_argument("--case", metavar="N", type=int, action="append", help="only this case (may be repeated)")
    parser.add_argument("--small", action="store_true", help="the small form, as in the tests")
    parser.add_argument("--seed", metavar="N", type=int, default=SEED, help=f"another {SEED}")
    parser.add_argument("--workers", metavar="N", type=int, default=2, help="cases tried side by side (default: 2)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="keep the table and all failures in this file")
    parser.add_argument("--folder", metavar="DIR", type=Path, help="where to make the temporary folder")
    arguments = parser.parse_args(argv)
    chosen = arguments.only.split(",")
    if unknown := [name for name in chosen if name not in ATTACKS]:
        parser.error(f"there is no attack {unknown[0]!r}; choose of: {', '.join(ATTACKS)}")
    if arguments.case and len(chosen) != 1:
        parser.error("--case needs --only with one attack")
    rows: list[dict[str, Any]] = []
    code = 0
    try:
        with arena(arguments.workers, arguments.seed, arguments.folder) as place:
            for name in chosen:
                cases = arguments.case or ATTACKS[name].cases(full=not arguments.small)
                rows.append({"attack": name, "tried": 0, "failed": 0, "seconds": 0.0, "failures": []})
                run(ATTACKS[name], place, cases, rows[-1], arguments.seed)
    except KeyboardInterrupt:
        code = 130
        print("interrupted", file=sys.stderr)
    print(table(rows))
    if arguments.json:
        form = {"form": "small" if arguments.small else "full", "seed": arguments.seed, "complete": code == 0}
        arguments.json.write_text(json.dumps(form | {"attacks": rows}, indent=1) + "\n", "utf-8")
    return code or int(any(row["failed"] for row in rows))


def run(attack: Any, place: Any, cases: Sequence[int], row: dict[str, Any], seed: int) -> None:
    """Try the cases of one attack, with progress on a terminal; failures are printed as they come."""
    started = time.monotonic()
    for done, outcome in enumerate(attack.run(place, cases), start=1):
        row["tried"] += outcome.tried
        row["seconds"] = round(time.monotonic() - started, 1)
        if outcome.problem:
            row["failed"] += 1
            row["failures"].append({"case": outcome.case, "problem": outcome.problem})
            if row["failed"] <= SHOWN:
                _clear()
                print(f"{attack.name} {outcome.case}: {outcome.problem[:WIDTH]}")
                print(f"  again: {again(attack.name, outcome.case, seed)}", flush=True)
        if sys.stderr.isatty():
            print(
                f"\r{attack.name}: {done} of {len(cases)}, {row['failed']} failed", end="", file=sys.stderr, flush=True
            )
    _clear()
    if row["failed"] > SHOWN:
        print(f"{attack.name}: {row['failed'] - SHOWN} more failures (--json FILE keeps them all)")


def again(name: str, case: int, seed: int) -> str:
    """How one case is repeated alone."""
    return f"python scripts/attack.py --only {name} --case {case} --seed {seed}"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The result as a Markdown table."""
    lines = ["| attack | tried | failed | seconds |", "| --- | --: | --: | --: |"]
    lines += [f"| {row['attack']} | {row['tried']:,} | {row['failed']} | {row['seconds']:.0f} |" for row in rows]
    return "\n".join(lines)


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
