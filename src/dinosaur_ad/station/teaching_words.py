"""What became of teaching, in sentences and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dinosaur_ad._promises import promises
from dinosaur_ad._text import printable
from dinosaur_ad.inspection import Changed, Learned, TaskSettings

NAMED = 3
"""Images that a sentence names."""


def promise(learned: Learned, settings: TaskSettings) -> str:
    """What can be promised of a product: the share of false alarms, and the smallest defect."""
    clauses = promises(learned, None if settings.fixed_threshold else settings.false_alarms)
    return " ".join(f"It {each}." if each.startswith("sees") else f"{each[0].upper()}{each[1:]}." for each in clauses)


def learned_sentence(learned: Learned, what: str, settings: TaskSettings) -> str:
    """What was learned, what it promises, and what to look at."""
    if not learned.images:
        return (
            f"Nothing new for '{learned.task}': it knew these pictures already, and is as it was, of "
            f"{learned.total_images} images."
        )
    sentences = [what, promise(learned, settings)]
    if learned.not_ready:
        sentences.append(f"It is not ready to judge: {learned.not_ready}")
    if learned.suspects:
        count = len(learned.suspects)
        sentences.append(f"{count} picture{'s' * (count != 1)} may not belong there; look at them.")
    if count := len(learned.near_duplicates):
        show = "s show" if count != 1 else " shows"
        sentences.append(f"{count} picture{show} nearly the same as another one; take one of each part.")
    return " ".join(filter(None, [*sentences, missed_sentence(learned.task, learned.gallery_missed)]))


def missed_sentence(task: str, missed: Sequence[str]) -> str:
    """The confirmed defects that would pass from now on; empty without any."""
    if not missed:
        return ""
    named = ", ".join(printable(each.replace("\\", "/").rpartition("/")[2], 80) for each in missed[:NAMED])
    more = f" and {len(missed) - NAMED} more" if len(missed) > NAMED else ""
    return (
        f"{len(missed)} confirmed defect{'s' * (len(missed) != 1)} of '{task}' would pass now ({named}{more}); undo "
        "takes the change back."
    )


def learned_json(learned: Learned, settings: TaskSettings) -> dict[str, Any]:
    """What the page shows of a product that was taught."""
    return {
        "task": learned.task,
        "images": learned.images,
        "total_images": learned.total_images,
        "bytes": learned.bytes,
        "threshold": learned.threshold,
        "threshold_before": learned.threshold_before,
        "promise": promise(learned, settings),
        "promised_rate": learned.promised_rate,
        "images_needed": learned.images_needed,
        "calibrated": learned.calibrated,
        "position": learned.position,
        "not_ready": learned.not_ready,
        "suspects": [asdict(each) for each in learned.suspects],
        "rejected": [asdict(each) for each in learned.rejected],
        "duplicates": list(learned.duplicates),
        "gallery_missed": list(learned.gallery_missed),
        "settings": asdict(settings),
    }


def set_sentence(changed: Changed) -> str:
    """What other settings are."""
    before, after = changed.before, changed.after
    words = [
        f"threshold {before.threshold:.3g} -> {after.threshold:.3g}" * (before.threshold != after.threshold),
        f"inspects {after.inspected:.0%} of the picture" * (before.inspected != after.inspected),
        f"smallest area {after.smallest_area} pixels" * (before.smallest_area != after.smallest_area),
    ]
    said = ", ".join(filter(None, words)) or "as it was"
    sentences = [f"'{changed.task}' is set anew: {said}."]
    sentences += [f"Note: {changed.note}."] if changed.note else []
    sentences += [f"It is not ready to judge: {changed.not_ready}"] if changed.not_ready else []
    return " ".join(filter(None, [*sentences, missed_sentence(changed.task, changed.gallery_missed)]))
