"""Whether a stored result is one: what each field of ``result.json`` and each array of ``arrays.npz`` must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from numpy.typing import NDArray

from dinosaur_ad.bench.foreign_results import (
    MOST_TASKS,
    array,
    indices,
    listed,
    maybe,
    names_a_cell,
    number,
    record,
    square,
    text,
    whole,
)

Check = Callable[[Any], Any]

_TASK: Mapping[str, Check] = {
    "name": text, "train": whole, "held_out": whole, "test_normal": whole, "test_anomalous": whole, "checksum": text,
}  # fmt: skip
_ROW: Mapping[str, Check] = {
    "task": text, "learn_seconds": number, "score_seconds": number, "images_scored": whole, "storage_bytes": whole,
    "peak_memory_bytes": maybe(whole), "peak_device_bytes": maybe(whole),
}  # fmt: skip


def check_document(document: Mapping[str, Any]) -> None:
    """Every field of a result's JSON; ValueError or KeyError says which is not what it must be."""
    names_a_cell(document)
    tasks = listed(document["tasks"], partial(record, fields=_TASK))
    count = len(tasks)
    if not 0 < count <= MOST_TASKS or len({task["name"] for task in tasks}) < count:
        raise ValueError(f"it has {count} tasks, or two of one name")
    share = partial(square, side=count, low=0.0, high=1.0)
    fields: dict[str, Check] = {
        "summary": text,
        "settings": record,
        "info": record,
        "parameters": partial(record, fields={"total": whole, "trainable": whole}),
        "scenario_info": record,
        "pixel": maybe(partial(listed, check=_measured, count=count)),
        "rows": partial(listed, check=partial(record, fields=_ROW), count=count),
        "environments": partial(listed, check=record),
        "auroc": share,
        "nan_scores": partial(listed, check=partial(listed, check=whole, count=count), count=count),
        "thresholds": partial(square, side=count),
        "oracle_auroc": maybe(share),
        "routing": maybe(share),
    }
    record(document, fields)
    if not isinstance(document.get("published", False), bool):
        raise ValueError("published: true or false was expected")


def check_arrays(arrays: Mapping[str, NDArray[Any]], index: int, tasks: list[dict[str, Any]]) -> None:
    """The arrays of one task; ValueError or KeyError says what is wrong with them."""
    count = tasks[index]["test_normal"] + tasks[index]["test_anomalous"]
    labels = indices(arrays[f"{index}/labels"], count, 2)
    if int(labels.sum()) != tasks[index]["test_anomalous"]:
        raise ValueError(f"the labels of task {index + 1} are not as many as it says")
    names = array(arrays[f"{index}/kind_names"], "U", None)
    indices(arrays[f"{index}/kinds"], count, len(names))
    array(arrays[f"{index}/scores"], "f", count)
    optional: dict[str, Callable[[NDArray[Any]], Any]] = {
        "oracle": lambda found: array(found, "f", count),
        "routes": lambda found: indices(found, count, len(tasks)),
        "own_thresholds": lambda found: array(found, "f", count),
        "history": lambda found: array(found, "f", len(tasks), count),
        "names": lambda found: array(found, "U", count),
        "maps": lambda found: array(found, "f", count, None, None),
    }
    for name, check in optional.items():
        if f"{index}/{name}" in arrays:
            check(arrays[f"{index}/{name}"])


def _measured(value: Any) -> dict[str, Any]:
    """Metrics by name, null for what is undefined."""
    for each in record(value).values():
        maybe(number)(each)
    return record(value)
