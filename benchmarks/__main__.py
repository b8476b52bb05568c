"""Run the benchmarks: print Markdown, write JSON."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path

from benchmarks import machine
from benchmarks.measure import Section

BENCHMARKS = ("coreset", "scoring", "learning", "store")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer turns and smaller sizes: a look, not a result")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="run this one (may be repeated)")
    parser.add_argument("--out", type=Path, help="where the JSON goes (default: benchmarks/results/MACHINE.json)")
    parser.add_argument("--show", type=Path, metavar="JSON", help="print a stored result again instead of measuring")
    options = parser.parse_args()
    if options.show:
        stored = json.loads(options.show.read_text())
        print(_machine(stored["machine"]))
        for section in stored["results"].values():
            print(f"\n{Section.from_json(section).to_markdown()}")
        return

    facts = machine.facts()
    print(_machine(facts), flush=True)
    sections: dict[str, Section] = {}
    for name in options.only or BENCHMARKS:
        print(f"running {name} ...", file=sys.stderr, flush=True)
        sections[name] = import_module(f"benchmarks.{name}").run(options.quick)
        print(f"\n{sections[name].to_markdown()}", flush=True)

    path = options.out or Path(__file__).parent / "results" / f"{machine.slug(facts)}{'-quick' * options.quick}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    results = {name: section.to_json() for name, section in sections.items()}
    path.write_text(json.dumps({"machine": facts, "quick": options.quick, "results": results}, indent=1) + "\n")
    print(f"written: {path}", file=sys.stderr)


def _machine(facts: dict[str, object]) -> str:
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


if __name__ == "__main__":
    main()
