"""Run the benchmarks: print Markdown, write JSON."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.measure import Section

BENCHMARKS = ("coreset", "scoring", "learning", "store", "evaluation", "runtime", "methods")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer turns and smaller sizes: a look, not a result")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="run or show this one (may be repeated)")
    parser.add_argument(
        "--out",
        type=Path,
        help="where the JSON goes (default: benchmarks/results/MACHINE.json); with --only, other parts there stay",
    )
    parser.add_argument("--show", type=Path, metavar="JSON", help="print a stored result again instead of measuring")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; another than cpu only with --only methods")
    options = parser.parse_args()
    if options.device != "cpu" and options.only != ["methods"] and not options.show:
        parser.error(f"--device {options.device} needs --only methods: the other parts are measured on a CPU")
    if options.show:
        stored = json.loads(options.show.read_text())
        print(_machine(stored["machine"]))
        for name, section in stored["results"].items():
            if name in (options.only or stored["results"]):
                print(f"\n{Section.from_json(section).to_markdown()}")
        return

    facts = machine.facts()
    suffix = f"{'' if options.device == 'cpu' else '-' + options.device}{'-quick' * options.quick}"
    path = options.out or Path(__file__).parent / "results" / f"{machine.slug(facts)}{suffix}.json"
    new: dict[str, Any] = {"machine": facts, "quick": options.quick, "results": {}}
    stored = json.loads(path.read_text()) if options.only and path.exists() else None
    if stored:
        _refuse_other(stored, new)
    print(_machine(facts), flush=True)
    for name in options.only or BENCHMARKS:
        print(f"running {name} ...", file=sys.stderr, flush=True)
        settings = {"device": options.device} if name == "methods" else {}
        measured: Section = import_module(f"benchmarks.{name}").run(options.quick, **settings)
        print(f"\n{measured.to_markdown()}", flush=True)
        new["results"][name] = measured.to_json()

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_merged(stored, new) if stored else new, indent=1) + "\n")
    print(f"written: {path}", file=sys.stderr)


def _refuse_other(stored: dict[str, Any], new: dict[str, Any]) -> None:
    """Parts go into one file only when the same libraries measured them on the same machine."""
    before, now = ({**each["machine"], "quick": each["quick"]} for each in (stored, new))
    different = [name for name, value in now.items() if name != "load_before" and before.get(name) != value]
    if different:
        sys.exit(f"The stored result was measured otherwise ({', '.join(different)}); give another --out.")


def _merged(stored: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The stored result with some parts measured anew; what the machine did besides is told for them apart."""
    results = stored["results"] | new["results"]
    loads = {f"load_before, {name}": round(new["machine"]["load_before"] or 0, 2) for name in new["results"]}
    return stored | {
        "machine": stored["machine"] | loads,
        "results": {name: results[name] for name in BENCHMARKS if name in results},
    }


def _machine(facts: dict[str, object]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


if __name__ == "__main__":
    main()
