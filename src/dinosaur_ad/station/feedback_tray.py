"""The tray: what people said of parts, and the pictures that something is taught from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dinosaur_ad.bank.verdict import NORMAL
from dinosaur_ad.errors import InputError

if TYPE_CHECKING:
    from dinosaur_ad.station.history.history import History
    from dinosaur_ad.station.tables import FeedbackRow, PartRow, ViewRow


@dataclass
class TrayGroup:
    """Feedback on parts of one product: the pictures of each, by the number of the feedback."""

    task: str
    pictures: dict[int, list[str]] = field(default_factory=dict)
    parts: list[int] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        """The files of all pictures."""
        return list(dict.fromkeys(path for paths in self.pictures.values() for path in paths))

    def about(self, paths: Iterable[str]) -> list[int]:
        """The numbers of the feedback that one of these pictures belongs to."""
        wanted = set(paths)
        return [number for number, own in self.pictures.items() if wanted & set(own)]


def deciding_views(part: PartRow) -> list[ViewRow]:
    """The views that an answer is about: those that were not called normal, all where all were."""
    return [view for view in part.views if view.verdict != NORMAL] or list(part.views)


def task_of(row: FeedbackRow) -> str | None:
    """The product that an answer is about: the one that was named, or the part's."""
    return row.product or row.part.task


def grouped_feedback(history: History, rows: Sequence[FeedbackRow]) -> tuple[list[TrayGroup], dict[int, str]]:
    """Feedback by product, and by number the sentence why nothing can be done about the rest."""
    groups: dict[str, TrayGroup] = {}
    left: dict[int, str] = {}
    for row in rows:
        found = {view.id: history.picture_path(view.id) for view in deciding_views(row.part)}
        named = {view.id: (view.inspection or {}).get("task") for view in row.part.views}
        kept = [(row.product or named[number] or row.part.task, path) for number, path in found.items() if path]
        if not kept:
            left[row.id] = "The picture of the part is no longer kept, so that nothing can be taught from it."
        for task, path in kept:
            if task is None:
                left[row.id] = "It is not known which product the part is of; name the product with the answer."
                continue
            group = groups.setdefault(task, TrayGroup(task))
            group.pictures.setdefault(row.id, []).append(str(path))
            group.parts += [row.part_id] if row.part_id not in group.parts else []
    return list(groups.values()), left


def pictures_of_parts(history: History, parts: Sequence[int], task: str | None = None) -> list[Path]:
    """The files of the pictures of parts; with ``task`` of the views that show that product.

    :raises InputError: there is no such part, or none of the pictures is kept any more.
    """
    paths = []
    for number in parts:
        part = history.part(number)
        if part is None:
            raise InputError(f"The history has no part {number}.")
        for view in part.views:
            path = history.picture_path(view.id)
            if path and task in (None, (view.inspection or {}).get("task"), part.task):
                paths.append(path)
    if not paths:
        raise InputError("None of the pictures of these parts is kept any more; choose newer parts.")
    return paths
