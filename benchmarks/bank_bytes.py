"""Image AUROC against the bytes of a bank, on real images: precisions, members, channels, and what a budget chooses.

    python -m benchmarks.bank_bytes run --data DIR [--cache DIR]
    python -m benchmarks.bank_bytes --show
    python -m benchmarks.bank_bytes --draw docs/images/bank-bytes.svg

``DIR`` holds ``mtd/`` and ``mvtec_ad/``. Each task is scored with its own bank, without routing: what is measured is
the bank. Features are encoded once, with the default encoder, and packed in the cache (1.8 GB), so that every bank sees
the same ones; members are picked anew for every seed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine
from benchmarks.bank_chart import svg
from benchmarks.bank_tables import GROUPS, section
from benchmarks.measure import in_turns
from dinosaur_ad._atomic import write_atomic
from dinosaur_ad.bank.bank import Bank, PackedVectors, alarm_threshold
from dinosaur_ad.bank.bank_files import open_bank
from dinosaur_ad.bank.building import BankBuilder
from dinosaur_ad.bank.image_features import ImageFeatures
from dinosaur_ad.core.exposure import THUMBNAIL
from dinosaur_ad.core.features import combine_blocks
from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.core.pooling import pool
from dinosaur_ad.core.projection import principal_axes
from dinosaur_ad.datasets import Task, mtd_scenario, mvtec_scenario
from dinosaur_ad.encoders import Encoder, load_encoder
from dinosaur_ad.images.image_stream import batched
from dinosaur_ad.presets import FAST, Preset
from dinosaur_ad.store import MemoryStore

OUT = Path(__file__).parents[1] / "results" / "edge" / "bank-bytes.json"
SEEDS = (0, 1, 2, 3, 4)
MEMBERS = (5, 10, 20, 44, 88)
BUDGETS = (250_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000)
# Other ways to spend two million bytes than the one that was chosen: the channels packed, and members as many as fit.
CHANNELS = (384, 256, 192, 128, 96, 64, 48)
# Calibrated again for every budget here, to see the false alarms that its thresholds give.
JUDGED = (1_000_000, 2_000_000)

NO_RESERVE = replace(FAST, reserve=0.0)

Floats = NDArray[np.float32]
Row = dict[str, Any]


def tasks(data: Path) -> list[Task]:
    """Tiles as they are and in the worst light, and the five products."""
    drifted = mtd_scenario(data / "mtd", "color").tasks[-1]
    return [*mtd_scenario(data / "mtd").tasks, drifted, *mvtec_scenario(data / "mvtec_ad").tasks]


def features(task: Task, split: str, cache: Path, encoder: Encoder) -> Floats:
    """Patch features (N, H, W, C) as the preset fast combines them."""
    path = cache / f"{task.name}-{split}.npy"
    if not path.exists():
        images = (sample.image() for sample in getattr(task, split))
        combine = partial(combine_blocks, blocks=len(FAST.layers), normalise=FAST.normalise, average=True)
        encoded = [combine(encoder.encode(group).patches) for group in batched(images, 32)]
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path.with_suffix(".tmp.npy"), np.concatenate(encoded))
        path.with_suffix(".tmp.npy").rename(path)
    patches_NHWC: Floats = np.load(path)
    return patches_NHWC


def curve(task: Task, train: Floats, test: Floats, seed: int) -> Iterator[Row]:
    """Every bank that is compared, taught from the same features."""
    labels = np.asarray([sample.label for sample in task.test])

    def row(what: str, packed: PackedVectors, size: int, **more: Any) -> Row:
        score_N = pool(_members_last(packed).distances(test, FAST.radius), FAST.top)
        shape = {"precision": packed.precision, "members": packed.members, "channels": packed.channels}
        facts = {"task": task.name, "seed": seed, "what": what, **shape, "bytes": size}
        return facts | {"auroc": round(auroc(score_N, labels), 5)} | more

    plain = draft(train, seed, precision="float32")
    vectors = plain.files()["bank"]["vectors"]
    for precision in ("float32", "float16", "int8"):
        for members in dict.fromkeys(min(each, plain.members) for each in MEMBERS):
            packed = PackedVectors.of(vectors[:, :, :members], precision)
            yield row("plain", packed, _size(packed))
    for channels in CHANNELS:
        packed = PackedVectors.of(
            vectors, "int8", principal_axes(train, channels) if channels < train.shape[-1] else None
        )
        members = min(packed.members, (2_000_000 - _size(packed.first(0))) // _size_of_one(packed))
        yield row("2 MB", packed := packed.first(members), _size(packed))
    for budget in BUDGETS:
        calibrated = budget in JUDGED and seed == SEEDS[0]
        limited = draft(train, seed, budget=budget, calibrated=calibrated)
        bank, size = stored(limited)
        judged = _judged(bank, test, labels) if calibrated else {}
        yield row("budget", bank.packed, size, budget=budget, **judged)


def draft(
    train: Floats,
    seed: int,
    budget: int | None = None,
    calibrated: bool = False,
    preset: Preset = NO_RESERVE,
    precision: str | None = None,
) -> BankBuilder:
    """A task taught by the preset fast; with no budget and no reserve, the bank that losses are measured from."""
    taught = BankBuilder(preset, seed, "unseen" if calibrated else "held-out", precision=precision, budget=budget)
    taught.add(_image_features(train))
    if not calibrated:
        taught.calibrate(train[:1])  # a bank has to have a score
    return taught


def halves(task: Task, train: Floats, test: Floats, seed: int = 0) -> Iterator[Row]:
    """The same task learned from half of its images and updated with the other half, as it is and within a budget."""
    labels = np.asarray([sample.label for sample in task.test])
    for budget in (None, 2_000_000):
        store, half = MemoryStore({}), len(train) // 2
        first = draft(train[:half], seed, budget=budget, preset=FAST)
        record = store.put("task", first.files(), first.manifest(), action="learn")
        second = BankBuilder.reopened(FAST, seed, store, record, budget=budget)
        second.add(_image_features(train[half:], first=half))
        bank, size = stored(second)
        score_N = bank.read(bank.distances(test, FAST.radius), FAST).score_N
        form = {"precision": bank.packed.precision, "members": bank.packed.members, "channels": bank.packed.channels}
        facts = {"task": task.name, "seed": seed, "what": "halves", **form, "bytes": size, "limit": budget}
        yield facts | {"auroc": round(auroc(score_N, labels), 5)}


def whole(task: Task, train: Floats, test: Floats, seed: int = 0) -> Row:
    """The bank of the preset with its threshold, for comparison."""
    bank, size = stored(draft(train, seed, calibrated=True))
    labels = np.asarray([sample.label for sample in task.test])
    facts = {"task": task.name, "seed": seed, "what": "whole", "members": bank.packed.members, "bytes": size}
    return facts | _judged(bank, test, labels)


def stored(taught: BankBuilder) -> tuple[Bank, int]:
    """A task as it is after it was stored and opened, and the bytes of its files."""
    store = MemoryStore({})
    record = store.put("task", taught.files(), taught.manifest(), action="learn")
    return open_bank(store, record, FAST), store.bytes("task")


def _image_features(patches_NHWC: Floats, first: int = 0) -> ImageFeatures:
    """Images as a bank learns them, by their patches alone: nothing is routed and nothing is guarded here."""
    names = [str(n) for n in range(first, first + len(patches_NHWC))]
    descriptor_NC = np.zeros((len(names), 2 * patches_NHWC.shape[-1]), np.float32)
    thumbnail_NP = np.zeros((len(names), 3 * THUMBNAIL**2), np.float32)
    return ImageFeatures(names, [""] * len(names), patches_NHWC, descriptor_NC, thumbnail_NP, [], [], [])


def _judged(bank: Bank, test: Floats, labels: NDArray[np.int64]) -> Row:
    threshold = alarm_threshold(FAST, bank.scores, FAST.false_alarms)
    alarms = bank.read(bank.distances(test, FAST.radius), FAST).score_N > threshold
    return {
        "false_alarms": round(float(alarms[labels == 0].mean()), 5),
        "recall": round(float(alarms[labels == 1].mean()), 5),
    }


def _size(packed: PackedVectors) -> int:
    """The bytes of the arrays, and of two more for each member: the image that it came from."""
    places = packed.values_HWMK.shape[0] * packed.values_HWMK.shape[1]
    return sum(int(array.nbytes) for array in packed.arrays().values()) + int(2 * places * packed.members)


def _size_of_one(packed: PackedVectors) -> int:
    return _size(packed.first(1)) - _size(packed.first(0))


def _members_last(packed: PackedVectors) -> PackedVectors:
    values = np.ascontiguousarray(packed.values_HWMK.swapaxes(2, 3)).swapaxes(2, 3)
    return packed._replace(values_HWMK=values)


# --- time and memory ---


def timings(train: Floats, test: Floats, turns: int = 40) -> list[Row]:
    """Scoring one image against banks of the same task, one after the other within a turn."""
    banks = {
        "float32": stored(draft_as(train, "float32"))[0],
        "float16, held as float32": stored(draft_as(train, "float16"))[0],
        "float16, held as it is": _opened_tight(draft_as(train, "float16")),
        "int8": stored(draft_as(train, "int8"))[0],
        "budget of 2 MB": stored(draft(train, 0, budget=2_000_000))[0],
    }
    work: dict[str, Callable[[], object]] = {
        name: partial(bank.distances, test[:1], FAST.radius) for name, bank in banks.items()
    }
    taken = in_turns(work, turns)
    return [
        {
            "bank": name,
            "members": bank.packed.members,
            "channels": bank.packed.channels,
            "memory_bytes": bank.nbytes,
            "ms_median": taken[name].median * 1e3,
            "ms_fastest": taken[name].fastest * 1e3,
        }
        for name, bank in banks.items()
    ]


def draft_as(train: Floats, precision: str) -> BankBuilder:
    """The whole bank in a precision."""
    return draft(train, 0, precision=precision)


def _opened_tight(taught: BankBuilder) -> Bank:
    store = MemoryStore({})
    record = store.put("task", taught.files(), taught.manifest(), action="learn")
    return open_bank(store, record, FAST, room=0)


# --- the command ---


def run(data: Path, cache: Path, out: Path) -> None:
    """Measure everything that is not in the result yet, and write it task by task."""
    facts, encoder = machine.facts(), load_encoder(layers=FAST.layers, size=FAST.size)
    stored_before = json.loads(out.read_text()) if out.exists() else {"rows": []}
    rows: list[Row] = stored_before["rows"]
    done = {(row["task"], row["seed"]) for row in rows if row["what"] == "plain"}
    for task in tasks(data):
        train, test = (features(task, split, cache, encoder) for split in ("train", "test"))
        for seed in SEEDS:
            if (task.name, seed) not in done:
                rows += curve(task, train, test, seed)
                print(f"{task.name}, seed {seed}: {len(rows)} rows", flush=True)
                _write(out, {**stored_before, "rows": rows})
        if not any(row["task"] == task.name and row["what"] == "halves" for row in rows):
            rows += [*halves(task, train, test), whole(task, train, test)]
        if task.name == "mtd":
            times = timings(train, test)
    _write(out, {"encoder": encoder.info(), "machine": facts, "rows": rows, "timings": times})


def _write(out: Path, document: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in document["rows"])
    rest = {key: value for key, value in document.items() if key != "rows"}
    head = json.dumps(rest, indent=1).removesuffix("\n}")
    text = f'{head}{"," if rest else ""}\n "rows": [\n{lines}\n ]\n}}\n' if rest else f'{{"rows": [\n{lines}\n]}}\n'
    write_atomic(out, text.encode())


def main(arguments: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bank_bytes", description=__doc__)
    parser.add_argument("verb", nargs="?", choices=["run"])
    parser.add_argument("--show", action="store_true", help="print the stored result as Markdown")
    parser.add_argument("--draw", type=Path, metavar="SVG", help="draw the stored result")
    parser.add_argument("--data", type=Path, help=f"the images ({', '.join(GROUPS)})")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/dinosaur-bank-bytes"), help="where features are kept")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args(None if arguments is None else list(arguments))
    if options.verb == "run":
        if options.data is None:
            parser.error("run needs --data")
        run(options.data, options.cache, options.out)
    document = json.loads(options.out.read_text())
    if options.draw:
        options.draw.parent.mkdir(parents=True, exist_ok=True)
        options.draw.write_text(svg(document))
    else:
        print(section(document).to_markdown())


if __name__ == "__main__":
    main()
