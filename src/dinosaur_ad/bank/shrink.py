"""One budget for all tasks of a store: what a new task may take, and how the others make room for it.

Members are kept in the order in which they were picked, and channels in the order of their importance, so a smaller
bank is a cut through a larger one; its threshold was calibrated when the task was taught (the ladder among its files).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dinosaur_ad.bank.budget import parse_bytes, say_bytes
from dinosaur_ad.bank.draft import Draft
from dinosaur_ad.errors import InputError
from dinosaur_ad.store import TaskRecord, TaskStore


class Budgets:
    """What was asked for: the bytes of each task taught from now on, and those of all tasks of the store together.

    Both are stored with every task. A task that is updated keeps its own, and a store the one it was given last.
    """

    def __init__(self, task: int | str | None, store: int | str | None) -> None:
        self._task = None if task is None else parse_bytes(task)
        self._whole = None if store is None else parse_bytes(store)

    def limits(self, store: TaskStore | None, name: str, record: TaskRecord | None = None) -> dict[str, Any]:
        """What a draft of the task has to know: its budget, and what was asked for.

        ``record`` is the task as it is, if it is updated.
        """
        given, recorded = _recorded(store)
        whole = self._whole or recorded
        own = self._task or (_asked(record, "task") if record else None)
        room = None if whole is None else _room(store, name, whole)
        budgets = [each for each in (own, room) if each is not None]
        asked = {"task": own, "store": whole, "given": given + (whole != recorded)}
        return {"budget": min(budgets, default=None), "asked": asked}

    def cuts(self, store: TaskStore, name: str, draft: Draft) -> dict[str, Draft]:
        """The other tasks that have to give up bytes for a new one, as they will be; nothing is written yet."""
        whole = draft.asked.get("store")
        others = [record for other, record in store.snapshot().records.items() if other != name]
        if whole is None or draft.bytes + sum(map(task_bytes, others)) <= whole:
            return {}
        fixed, flexible = ([each for each in others if ("ladder" in each.files) is can] for can in (False, True))
        share = _share(whole - draft.bytes - sum(map(task_bytes, fixed)), map(task_bytes, flexible), more=0)
        return {
            record.name: Draft.reopened(
                draft.preset,
                draft.seed,
                store,
                record,
                budget=share,
                asked=draft.asked | {"task": _asked(record, "task")},
            )
            for record in flexible
            if task_bytes(record) > share
        }


def shrink(store: TaskStore, name: str, draft: Draft) -> None:
    """Write a task as it was cut; undo brings the larger one back."""
    manifest = store.record(name).manifest | draft.manifest()
    store.put(name, draft.files(), manifest, action="shrink", note={"members": draft.members})


def task_bytes(record: TaskRecord) -> int:
    """The size of a task's files in this version; versions that undo could bring back are not counted."""
    return sum(info.bytes for info in record.files.values())


def _asked(record: TaskRecord, what: str) -> int | None:
    asked: int | None = record.manifest.get("budgets", {}).get(what)
    return asked


def _recorded(store: TaskStore | None) -> tuple[int, int | None]:
    """The budget that a store was given last, and the how manieth it was; 0 and None if it never had one.

    Counted, because a clock may be set back; tasks of older versions were not, and there the date decides.
    """
    records = store.snapshot().records.values() if store else ()
    asked = [(_asked(record, "given") or 0, record.date, _asked(record, "store")) for record in records]
    given, _, budget = max((each for each in asked if each[2]), default=(0, "", None))
    return given, budget


def _room(store: TaskStore | None, name: str, whole: int) -> int:
    """How many bytes a task may take: what the others leave once each of them takes no more than it does."""
    others = [record for other, record in store.snapshot().records.items() if other != name] if store else []
    fixed = [record for record in others if "ladder" not in record.files]
    taken = sum(map(task_bytes, fixed))
    if taken >= whole:
        names = ", ".join(f"'{record.name}'" for record in fixed)
        raise InputError(
            f"The store's budget of {say_bytes(whole)} is used up by {names} ({say_bytes(taken)}), which cannot be "
            "cut any further without their images; learn them anew with --replace, forget them, or give more."
        )
    return _share(whole - taken, [task_bytes(record) for record in others if "ladder" in record.files])


def _share(budget: int, sizes: Iterable[int], more: int = 1) -> int:
    """The most that each may take of a budget when those who want less leave the rest to the others.

    >>> _share(100, [10, 60]), _share(100, [10, 60, 80], more=0)
    (45, 45)
    """
    wanted = sorted(sizes)
    for index, size in enumerate(wanted):
        share = budget // (len(wanted) - index + more)
        if size > share:
            return share
        budget -= size
    return budget // more if more else budget
