"""Where time and memory go: a table each for single images, many images, learning, and the floor of the encoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from dinosaur_ad.bench.paper import MIB
from dinosaur_ad.bench.report.table import Column, Entry, Note, Table, figure, words
from dinosaur_ad.bench.report.table import TableBlock as Block
from dinosaur_ad.bench.report.table import TableCell as Cell
from dinosaur_ad.profile.document import Document
from dinosaur_ad.profile.profile_rows import Method, in_paper_order, measured, short_name
from dinosaur_ad.profile.stages import STAGES

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
            (Cell(method["name"]), *(value(method).cell for _, value in columns))
            for method in in_paper_order(measured(profile))
            if is_shown(method)
        )
        if rows:
            blocks.append(Block(short_name(profile, profiles) if len(profiles) > 1 else "", rows))
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
