"""The machines of several profiles side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dinosaur_ad.bench.report.table import Column, Table
from dinosaur_ad.bench.report.table import TableBlock as Block
from dinosaur_ad.bench.report.table import TableCell as Cell

Document = dict[str, Any]

UNKNOWN = "not told"


def machine_table(profiles: Sequence[Document]) -> Table:
    """A row for every fact, a column for every profile."""
    rows = tuple((Cell(name), *(Cell(_shown(fact, profile)) for profile in profiles)) for name, fact in _FACTS.items())
    return Table(
        "machine",
        "The machines",
        "As the systems tell it, before and after the profile.",
        (Column("", words=True), *(Column(str(profile["device_name"]), words=True) for profile in profiles)),
        (Block("", rows),),
    )


def _shown(fact: Callable[[Document], str], profile: Document) -> str:
    """A fact in words; a profile that does not have it is no reason to show nothing at all."""
    try:
        return fact(profile)
    except (KeyError, TypeError, ValueError, AttributeError):
        return UNKNOWN


def _memory(profile: Document) -> str:
    size, container = profile["machine"]["memory_bytes"], profile["machine"]["container"]
    limits = [f"container: {container['memory_bytes'] / 2**30:.1f} GiB"] if container["memory_bytes"] else []
    limits += [f"container: {container['cores']:g} cores"] if container["cores"] else []
    return "; ".join([f"{size / 2**30:.1f} GiB" if size else UNKNOWN, *limits])


def _before_and_after(key: str, unit: str = "") -> Callable[[Document], str]:
    def words(profile: Document) -> str:
        values = [profile[when][key] for when in ("before", "after")]
        if all(value is None for value in values):
            return UNKNOWN
        return " before, ".join(UNKNOWN if value is None else f"{value:.1f}{unit}" for value in values) + " after"

    return words


def _frequency(profile: Document) -> str:
    shown = []
    for when in ("before", "after"):
        values = profile[when]["megahertz"]
        shown.append(f"{min(values):.0f}–{max(values):.0f} MHz {when}" if values else "")
    return ", ".join(filter(None, shown)) or UNKNOWN


def _throttling(profile: Document) -> str:
    seen, words = profile["throttling"]["seen"], profile["throttling"]["words"]
    return f"{ {True: 'seen', False: 'not seen', None: UNKNOWN}[seen] }: {words}"


def _packages(profile: Document) -> str:
    return ", ".join(f"{name} {version}" for name, version in profile["machine"]["packages"].items())


_FACTS: dict[str, Callable[[Document], str]] = {
    "board": lambda profile: profile["machine"]["board"] or UNKNOWN,
    "processor": lambda profile: f"{profile['machine']['processor']}, {profile['machine']['cores']} cores",
    "features": lambda profile: ", ".join(profile["machine"]["features"]) or UNKNOWN,
    "memory": _memory,
    "governor": lambda profile: ", ".join(profile["before"]["governors"]) or UNKNOWN,
    "frequency": _frequency,
    "temperature": _before_and_after("hottest_celsius", " °C"),
    "throttling": _throttling,
    "load": _before_and_after("load"),
    "system": lambda profile: f"{profile['machine']['system']}, Python {profile['machine']['python']}",
    "packages": _packages,
    "dinosaur-ad": lambda profile: (
        f"{profile['machine']['dinosaur-ad']}, {profile['machine']['revision'] or 'released'}"
    ),
    "made": lambda profile: str(profile["made"]),
}
