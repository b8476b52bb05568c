"""The stored measurements of the station as Markdown; see :mod:`benchmarks.station_soak`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

Facts = dict[str, Any]


def table(document: dict[str, Facts], only: str | None = None) -> str:
    """The results that are there, one table each, with the machine they come from."""
    shown = {name: document[name] for name in TABLES if name in document and only in (None, name)}
    return "\n\n".join(f"{TABLES[name](facts)}\n\n{_where(facts)}" for name, facts in shown.items())


def _where(facts: Facts) -> str:
    """The machine of a measurement, and how many programs wanted its processors."""
    machine = facts["machine"]
    load = f"{machine['load_before']:.1f} before, {machine['load_after']:.1f} after"
    return f"{facts['date']}, {machine['cpu']}, {machine['cores']} cores; load {load}."


def _kills(facts: Facts) -> str:
    back, cpu = np.asarray(facts["back_seconds"]), np.asarray(facts["back_cpu_seconds"])
    return _listed(
        {
            "kills": facts["kills"],
            "pictures in the folder / acknowledged uploads": f"{facts['files']:,} / {facts['uploads']:,}",
            "lost / recorded twice": f"{len(facts['lost'])} / {len(facts['twice'])}",
            "pictures lost or unreadable": facts["pictures_lost"],
            "store": facts["store"] or "intact",
            "answers again after, median / longest": f"{np.median(back):.1f} s / {back.max():.1f} s",
            "of which its own processor time": f"{np.median(cpu):.1f} s / {cpu.max():.1f} s",
        }
    )


def _soak(facts: Facts) -> str:
    lines = [
        "| parts | memory | handles | threads | frame to verdict p50 / p99 | encoder in it p50 / p99 |",
        "|--:" * 6 + "|",
    ]
    samples = facts["samples"]
    for each in samples[:: max(1, len(samples) // 10)]:
        times = (f"{each[name]['p50']:.1f} / {each[name]['p99']:.1f} ms" for name in ("total_ms", "encode_ms"))
        counts = f"{each['parts']:,} | {each['resident_mb']:.0f} MB | {each['handles']} | {each['threads']}"
        lines.append(f"| {counts} | {' | '.join(times)} |")
    said = f"{facts['parts']:,} parts, {facts['not_kept']} of them not kept."
    if growth := facts["growth"]:
        said += (
            f" In the second half memory grows by {growth['resident_mb']} MB and handles by {growth['handles']} in "
            "10,000 parts."
        )
    return "\n".join([*lines, "", said])


def _visits(facts: Facts) -> str:
    (visited,) = (name for name in facts["rounds"] if name not in ("alone", "quiet"))
    alone = np.concatenate([np.asarray(each) for each in facts["rounds"]["alone"]])
    lines = [
        "| two cameras | pictures | processors, a picture | encoder p50 / p99 | frame to verdict p50 / p99 "
        "| as times of the encoder | of it waiting p50 / p99 |",
        "|---|--:|--:|--:|--:|--:|--:|",
        f"| the encoder alone | {len(alone)} | {_cpu(facts, 'alone')} | {_both(alone)} | | | |",
    ]
    for name, said in (("quiet", "judging"), (visited, f"judging, {VISITED[visited]}")):
        rows = np.concatenate([np.asarray(each) for each in facts["rounds"][name]])
        total, encode = rows[:, 0], rows[:, 1]
        times = (f"{np.percentile(total, q) / np.percentile(encode, q):.2f}" for q in (50, 99))
        shown = (_cpu(facts, name), _both(encode), _both(total), " / ".join(times), _both(rows[:, 2]))
        lines.append(f"| {said} | {len(rows)} | {' | '.join(shown)} |")
    first, second = facts["periods_ms"]
    slower = [_judging(with_them) / _judging(quiet) - 1 for quiet, with_them in _pairs(facts, visited)]
    change, least, most = (f"{100 * each:+.1f} %" for each in (np.median(slower), min(slower), max(slower)))
    said = (
        f"A picture every {first:g} and {second:g} ms. Judging, the waiting apart, took {change} "
        f"longer {VISITED[visited]} (median of {len(slower)} turns, {least} to {most})."
    )
    seen: Counter[str] = Counter()
    for each in facts["visits"]:
        seen.update(each)
    return "\n".join([*lines, "", said, "", _seen(seen)])


def _cpu(facts: Facts, name: str) -> str:
    """What a picture took of the processors; a load from elsewhere changes that least."""
    return f"{np.median(facts['cpu_ms'][name]):.0f} ms" if "cpu_ms" in facts else ""


def _pairs(facts: Facts, visited: str) -> list[tuple[Any, Any]]:
    return list(zip(facts["rounds"]["quiet"], facts["rounds"][visited], strict=True))


def _judging(views: list[list[float]]) -> float:
    """The median time of judging, without the waiting for the picture before."""
    rows = np.asarray(views)
    return float(np.median(rows[:, 0] - rows[:, 2]))


def _shown(facts: Facts) -> str:
    lines = [
        "| one browser | verdicts | shown after p50 / p99 | pictures | shown after p50 / p99 |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, line in facts["lines"].items():
        periods = " and ".join(f"{period:g}" for period in line["periods_ms"])
        said = " | ".join(
            f"{len(line[what])} of {line['parts']} | {_both(line[what])}" for what in ("verdict", "picture")
        )
        lines.append(f"| {name} camera{'s' if name != 'one' else ''}, a picture every {periods} ms | {said} |")
    return "\n".join(lines)


def _seen(seen: dict[str, int]) -> str:
    """What the visitors were told."""
    if "pages" in seen:
        pictures = seen.get("pictures 200", 0)
        return f"The pages heard of {seen.get('events part', 0):,} verdicts and fetched {pictures:,} pictures."
    answers = ", ".join(
        f"{count:,} times {name.removeprefix('answers ')}" for name, count in sorted(seen.items()) if "answers" in name
    )
    return f"In {seen['seconds']} seconds the stranger was answered {answers}."


def _install(facts: Facts) -> str:
    more = facts["with_station_mb"] - facts["run_time_mb"]
    most = ", ".join(f"{name} {size:.0f}" for name, size in list(facts["brought_mb"].items())[:5])
    rows = {
        "run time alone": f"{facts['run_time_mb']:.0f} MB",
        "`[station]` on top": f"{more:.0f} MB, most of it {most}",
        "torch": "installed" if facts["torch"] else "not installed",
    }
    for name, starts in facts["starts"].items():
        seconds, cpu = (np.asarray([each[unit] for each in starts]) for unit in ("seconds", "cpu_seconds"))
        rows[f"answers after, encoder {name}"] = (
            f"{np.median(seconds):.1f} s (fastest {seconds.min():.1f} s), of which its own processor time "
            f"{np.median(cpu):.1f} s; {len(starts)} starts"
        )
    return _listed(rows)


def _both(times: Any) -> str:
    p50, p99 = np.percentile(times, (50, 99))
    return f"{p50:.0f} / {p99:.0f} ms"


def _listed(rows: dict[str, Any]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


VISITED = {"pages": "with 20 open pages", "strangers": "with a stranger who asks up to 500 times a second"}
TABLES: dict[str, Callable[[Facts], str]] = {
    "kills": _kills,
    "soak-small": _soak,
    "soak-fast": _soak,
    "latency": _visits,
    "strangers": _visits,
    "shown": _shown,
    "install": _install,
}
