"""Tables of costs (single images, many images, learning, the floor of the encoder) and of the machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dinosaur_ad.bench.paper import MIB, paper
from dinosaur_ad.bench.report.table import Column, Entry, Note, Table, TableBlock, TableCell, figure, words
from dinosaur_ad.profile.document import MEASURED, Document
from dinosaur_ad.profile.stages import STAGES

# --- rows ---

Method = dict[str, Any]


def measured(profile: Document) -> list[Method]:
    """The methods that have numbers."""
    return [method for method in profile["methods"] if method["status"] == MEASURED]


def find_method(profile: Document, name: str) -> Method | None:
    """The method of that name, whether it has numbers or not."""
    return next((method for method in profile["methods"] if method["name"] == name), None)


def method_names(profiles: Sequence[Document]) -> list[str]:
    """The names of all methods of all profiles, each once."""
    methods = {method["name"]: method for profile in profiles for method in profile["methods"]}
    return [method["name"] for method in in_paper_order(list(methods.values()))]


def in_paper_order(methods: Sequence[Method]) -> list[Method]:
    """In the order of the paper's table, others after them."""
    keys = list(paper().methods)
    place = {key: number for number, key in enumerate(keys)}
    return sorted(methods, key=lambda method: place.get(paper().method_of(method["name"]) or "", len(keys)))


def short_name(profile: Document, profiles: Sequence[Document]) -> str:
    """The device's name, with a number where another profile has the same."""
    same = [each for each in profiles if each["device_name"] == profile["device_name"]]
    number = next(n for n, each in enumerate(same, start=1) if each is profile)
    return str(profile["device_name"]) if len(same) == 1 else f"{profile['device_name']} ({number})"


def made_with(method: Method) -> str:
    """The network, and what computed it, in the method's own words."""
    made = method["made_with"]
    shown = [made.get("description") or made.get("encoder") or "network not described"]
    shown += [f"{key} {made[key]}" for key in ("provider", "precision", "threads", "preset") if made.get(key)]
    shown += [f"fallback: {made['fallback']}"] if made.get("fallback") else []
    return ", ".join(map(str, shown))


# --- machines ---


UNKNOWN = "not told"


def machine_table(profiles: Sequence[Document]) -> Table:
    """A row for every fact, a column for every profile."""
    rows = tuple(
        (TableCell(name), *(TableCell(_shown(fact, profile)) for profile in profiles)) for name, fact in _FACTS.items()
    )
    return Table(
        "machine",
        "The machines",
        "As the systems tell it, before and after the profile.",
        (Column("", words=True), *(Column(str(profile["device_name"]), words=True) for profile in profiles)),
        (TableBlock("", rows),),
    )


def _shown(fact: Callable[[Document], str], profile: Document) -> str:
    """A fact as text; unknown where the profile does not have it."""
    try:
        return fact(profile)
    except (KeyError, TypeError, ValueError, AttributeError):
        return UNKNOWN


def _machine_memory(profile: Document) -> str:
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
    "memory": _machine_memory,
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


# --- costs ---


Columns = Sequence[tuple[Column, Callable[[Method], Entry]]]


def latency_table(profiles: Sequence[Document]) -> Table:
    """Percentiles of one image end to end, and the median of each of its stages."""
    found = {stage for method in _all(profiles) for stage in method["stages_ms"]}
    columns: Columns = [
        *((Column(name, "one image, ms"), partial(_latency, name)) for name in ("p50", "p95", "p99", "min")),
        (Column("n"), lambda method: words(str(method["latency_ms"]["n"]))),
        *((Column(stage, "stages, p50 ms"), partial(_stage, stage)) for stage in STAGES if stage in found),
    ]
    lead = (
        "End to end, and the stages of it. model: encode, route and score of a method that does not separate them; "
        "rest: what lies between the stages."
    )
    note = "Percentiles are of all rounds together; with fewer than 100 images p99 is little more than the slowest."
    return _table("latency", "One image at a time", lead, profiles, columns, [Note(note)])


def resource_table(profiles: Sequence[Document]) -> Table:
    """Images a second in larger calls, cold start, memory and energy."""
    sizes = sorted({batch["size"] for method in _all(profiles) for batch in method["batches"]})
    columns: Columns = [
        *((Column(f"in calls of {size}", "images a second"), partial(_throughput, size)) for size in sizes),
        (Column("cold start, s"), lambda method: _number(method["cold_start"]["seconds"], 2)),
        (Column("before", "peak memory, MiB"), partial(_memory, "before_bytes")),
        (Column("inspecting", "peak memory, MiB"), partial(_memory, "inspect_peak_bytes")),
        (Column("learning", "peak memory, MiB"), partial(_memory, "learn_peak_bytes")),
        (Column("energy, J an image"), lambda method: _number(method["energy"]["joules_an_image"], 2)),
    ]
    reasons = dict.fromkeys(
        f"Energy on {short_name(profile, profiles)}: {method['energy']['reason'] or method['energy']['source']}."
        for profile in profiles
        for method in measured(profile)
    )
    lead = (
        "Many images in one call, without maps; medians of the rounds. Cold start: a new process, from its start to "
        "the first verdict, with files in the system's cache. Peak memory is that of the process; before: Python alone."
    )
    notes = [Note(reason) for reason in reasons]
    return _table("resources", "Throughput, start and memory", lead, profiles, columns, notes)


def learning_table(profiles: Sequence[Document]) -> Table:
    """Seconds to learn a task, and their parts."""
    parts = dict.fromkeys(part for method in _all(profiles) for part in method["learning"]["parts"])
    columns: Columns = [
        *((Column(name), partial(_count, name)) for name in ("images", "epochs")),
        (Column("s in all"), lambda method: _number(method["learning"]["seconds"], 2)),
        *((Column(part, "of these, s"), partial(_part, part)) for part in parts),
        (Column("coreset, %"), _coreset_percent),
    ]
    skipped = dict.fromkeys(
        f"{method['name']} on {short_name(profile, profiles)}: learning was skipped, because "
        f"{method['learning']['skipped']}; it was inspected with untrained weights."
        for profile in profiles
        for method in measured(profile)
        if method["learning"].get("skipped")
    )
    lead = (
        "Measured for exactly the images and epochs named, the fastest of the times it was done; nothing is scaled up. "
        "memory is the coreset of DINOSaur, rest what is in none of the parts."
    )
    usual = "Methods that train were trained for the epochs shown; the notes of the first table name their schedules."
    return _table(
        "learning", "Learning one task", lead, profiles, columns, [Note(usual), *(Note(text) for text in skipped)]
    )


def floor_table(profiles: Sequence[Document]) -> Table:
    """What the encoder's matrix products would take at the machine's rate, beside what encoding takes."""
    columns: Columns = [
        (Column("encoder, GFLOP an image"), lambda method: _number(method["floor"]["encoder_flops"] / 1e9, 2)),
        (Column("floor, ms"), lambda method: _ms(method["floor"]["ms"])),
        (Column("encode, p50 ms"), lambda method: _ms(method["floor"]["encode_ms"])),
        (Column("times the floor"), lambda method: _number(method["floor"]["times_the_floor"], 2)),
        (Column("precision", words=True), lambda method: words(str(method["made_with"].get("precision", "–")))),
    ]
    rates = [
        Note(
            f"{short_name(profile, profiles)}: {profile['float32_flops_a_second'] / 1e9:.1f} GFLOP/s in float32 "
            "products of square matrices, the fastest turn of NumPy and ONNX Runtime."
        )
        for profile in profiles
    ]
    lead = (
        "What the matrix products of the encoder would take at the machine's measured float32 rate, beside what "
        "encoding takes; with another precision it is no floor."
    )
    return _table("floor", "The floor", lead, profiles, columns, rates, lambda method: bool(method.get("floor")))


def _table(
    key: str,
    title: str,
    lead: str,
    profiles: Sequence[Document],
    columns: Columns,
    notes: Sequence[Note],
    is_shown: Callable[[Method], bool] = lambda method: True,
) -> Table:
    """A block for every profile, a row for every method that was measured."""
    blocks = []
    for profile in profiles:
        rows = tuple(
            (TableCell(method["name"]), *(value(method).cell for _, value in columns))
            for method in in_paper_order(measured(profile))
            if is_shown(method)
        )
        if rows:
            blocks.append(TableBlock(short_name(profile, profiles) if len(profiles) > 1 else "", rows))
    headers = (Column("Method", words=True), *(column for column, _ in columns))
    return Table(key, title, lead, headers, tuple(blocks), tuple(notes))


def _all(profiles: Sequence[Document]) -> list[Method]:
    return [method for profile in profiles for method in measured(profile)]


def _latency(name: str, method: Method) -> Entry:
    return _ms(method["latency_ms"][name])


def _stage(stage: str, method: Method) -> Entry:
    return _ms(method["stages_ms"].get(stage, {}).get("p50"))


def _throughput(size: int, method: Method) -> Entry:
    found = (batch["images_a_second"] for batch in method["batches"] if batch["size"] == size)
    return _number(next(found, None), 1)


def _memory(key: str, method: Method) -> Entry:
    value = method["memory"][key]
    return _number(None if value is None else value / MIB, 0)


def _count(key: str, method: Method) -> Entry:
    return words(str(method["learning"][key] or "–"))


def _part(part: str, method: Method) -> Entry:
    return _number(method["learning"]["parts"].get(part), 2)


def _coreset_percent(method: Method) -> Entry:
    share = method["learning"].get("coreset_share")
    return _number(None if share is None else 100 * share, 1)


def _ms(value: float | None) -> Entry:
    return _number(value, 1 if value is None or value >= 10 else 2)


def _number(value: float | None, digits: int) -> Entry:
    return figure(math.nan if value is None else value, digits=digits)
