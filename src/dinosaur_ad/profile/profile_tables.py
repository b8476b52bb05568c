"""Profiles as tables: the paper's efficiency table with its figures beside ours, and where time and memory go.

Several profiles stand side by side. What the paper measured on its devices is in columns that say so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from dinosaur_ad.bench.paper import MIB, Device, paper
from dinosaur_ad.bench.report.render import to_html, to_latex, to_markdown
from dinosaur_ad.bench.report.table import Column, Entry, Note, Table, TableBlock, TableCell, figure, finish, words
from dinosaur_ad.errors import InputError
from dinosaur_ad.page.html import Html, element, page, section
from dinosaur_ad.profile.costs import (
    Method,
    find_method,
    floor_table,
    latency_table,
    learning_table,
    machine_table,
    made_with,
    method_names,
    resource_table,
    short_name,
)
from dinosaur_ad.profile.document import MEASURED, Document

TITLE = "DINOSaur profile"


def profile_tables(profiles: Sequence[Document]) -> list[Table]:
    """All tables of one profile or of several."""
    tables = [
        efficiency_table(profiles),
        latency_table(profiles),
        resource_table(profiles),
        learning_table(profiles),
        floor_table(profiles),
        machine_table(profiles),
    ]
    return [table for table in tables if table.blocks]


def to_text(profiles: Sequence[Document], *, latex: bool = False, only: str | None = None) -> str:
    """The tables as Markdown, or as LaTeX; all of them, or the one whose key is ``only``."""
    tables = [table for table in profile_tables(profiles) if only in (None, table.key)]
    if not tables:
        known = ", ".join(table.key for table in profile_tables(profiles))
        raise InputError(f"There is no table '{only}' in these profiles; those there are: {known}.")
    return "\n".join(map(to_latex if latex else to_markdown, tables))


def profile_page(profiles: Sequence[Document]) -> Html:
    """The tables as one page that fetches nothing."""
    names = ", ".join(profile["device_name"] for profile in profiles)
    style = files("dinosaur_ad.bench.report").joinpath("report.css").read_text("utf-8")
    parts = (section(table.title, table.lead, to_html(table)) for table in profile_tables(profiles))
    head = element("header", element("p", TITLE, class_="eyebrow"), element("h1", f"Measured on: {names}"))
    return Html(page(TITLE, head, *parts).replace("</head>", f"<style>{style}</style></head>", 1))


# --- the paper's table ---


@dataclass
class _Notes:
    """Numbers the notes below a table; what is true of several methods is said once, with all their names."""

    names: dict[str, list[str]] = field(default_factory=dict)

    def mark(self, name: str, texts: Iterable[str]) -> str:
        """The numbers of these notes on a method."""
        for text in dict.fromkeys(texts):
            of = self.names.setdefault(text, [])
            if name not in of:
                of.append(name)
        order = list(self.names)
        return ",".join(str(number) for number in sorted(order.index(text) + 1 for text in set(texts)))

    def all(self) -> tuple[Note, ...]:
        """The notes, in the order of their numbers."""
        said = (f"{', '.join(names)}: {text}" for text, names in self.names.items())
        return tuple(Note(text, str(number)) for number, text in enumerate(said, start=1))


def efficiency_table(profiles: Sequence[Document]) -> Table:
    """Parameters, storage and speed in the columns of the paper's table, measured and printed figures apart."""
    notes, devices = _Notes(), list(paper().devices.values())
    measured = [short_name(profile, profiles) for profile in profiles]
    columns = [
        Column("Method", words=True),
        *(Column(name, "Params (M)") for name in ("measured", "trainable", "paper")),
        *(Column(name if len(profiles) > 1 else "measured", "Storage/Task (MiB)") for name in measured),
        Column("paper", "Storage/Task (MiB)"),
        *(Column(name, f"{device} (measured)") for device in measured for name in ("Inf. (ms)", "FPS")),
        *(Column(name, f"{device.name} (paper)") for device in devices for name in ("Inf. (ms)", "FPS")),
    ]
    rows = [_efficiency_row(name, profiles, devices, notes) for name in method_names(profiles)]
    first = 5 + len(profiles)  # of the columns of latencies
    better = {first + 2 * n: "lower" for n in range(len(profiles))}
    cells = finish(rows, better)  # type: ignore[arg-type]
    general = (
        Note(
            "Inf.: mean ± standard deviation of single images end to end, from the file to the map at the size of the "
            "image; FPS: the inverse of that mean. Best measured latency in bold."
        ),
        Note(
            "Columns marked (paper) are printed figures of Table 4 of the paper: its authors' devices, code and "
            "weights, 30 runs each; none of them was measured here. Its MB are MiB, as its arithmetic shows."
        ),
        *_conditions(profiles),
    )
    return Table(
        "efficiency",
        "Computational efficiency",
        "In the form of the paper's efficiency table; measured figures and printed ones stand in columns of their own.",
        tuple(columns),
        (TableBlock("", cells),),
        (*general, *notes.all()),
    )


def _efficiency_row(name: str, profiles: Sequence[Document], devices: Sequence[Device], notes: _Notes) -> list[Entry]:
    found = [find_method(profile, name) for profile in profiles]
    known = [method for method in found if method and method["status"] == MEASURED]
    key = paper().method_of(name)
    size = paper().sizes[key] if key else None
    remarks = [f"{note}." for method in found if method for note in method["notes"]]
    made = [f"{made_with(method)}." for method in known]
    counts = known[0]["parameters"] if known else {"total": math.nan, "trainable": math.nan}
    return [
        words(name, notes.mark(name, [*made, *remarks])),
        *(figure(counts[kind] / 1e6, digits=1) for kind in ("total", "trainable")),
        figure(size.parameters if size else math.nan, digits=1),
        *(_storage(method, notes) for method in found),
        figure(size.storage if size else math.nan, digits=1),
        *(entry for method in found for entry in _speed(method, notes)),
        *(entry for device in devices for entry in _printed(device, key)),
    ]


def _storage(method: Method | None, notes: _Notes) -> Entry:
    if not method or method["status"] != MEASURED:
        return figure(math.nan)
    storage = method["storage"]
    entry = figure(storage["task_bytes"] / MIB, digits=1)
    return Entry(TableCell(entry.cell.text, mark=notes.mark(method["name"], [f"kept of a task: {storage['words']}."])))


def _speed(method: Method | None, notes: _Notes) -> tuple[Entry, Entry]:
    if method is None:
        return words("–"), words("–")
    if method["status"] != MEASURED:
        return words(method["status"], notes.mark(method["name"], [f"{method['reason']}."])), words("–")
    latency = method["latency_ms"]
    return figure(latency["mean"], latency["std"], digits=1), figure(latency["fps"], digits=1)


def _printed(device: Device, key: str | None) -> tuple[Entry, Entry]:
    if key is None:
        return words("–"), words("–")
    latency = device.latency[key]
    if math.isnan(latency.ms):
        return words("OOM"), words("–")
    return figure(latency.ms, latency.std, digits=1), figure(latency.fps, digits=1)


def _conditions(profiles: Sequence[Document]) -> list[Note]:
    """How each profile was made, one note each."""
    notes = []
    for profile in profiles:
        settings = profile["settings"]
        unfinished = "" if profile["complete"] else " It was interrupted: some methods are missing."
        notes.append(
            Note(
                f"{short_name(profile, profiles)}: {_count(settings['repeats'], 'round')} over all methods, in random "
                f"order and each in a new process; in a round {_count(settings['warm_up'], 'image')} to warm up and "
                f"{settings['runs']} timed; {_count(settings['learn_images'], 'image')} learned; images: "
                f"{settings['images'].get('words', 'unknown origin')}." + unfinished
            )
        )
    return notes


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
