"""Teaching from the tray: the guard applies, and what it refuses does not hold up the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dinosaur_ad.errors import DinosaurError, TeachingRefusedError
from dinosaur_ad.station.feedback_tray import TrayGroup
from dinosaur_ad.station.jobs import Job, Outcome

if TYPE_CHECKING:
    from dinosaur_ad.station.station_teaching import Teaching


def teach_groups(teaching: Teaching, job: Job, groups: Sequence[TrayGroup], force: bool) -> Outcome:
    """Teach the parts that people called fine, product by product.

    :raises TeachingRefusedError: the guard refused all of them.
    """
    sentences, results, refused = [], {}, 0
    for group in groups:
        outcome = _teach_group(teaching, job, group, force)
        sentences.append(outcome.sentence)
        results[group.task] = outcome.result
        refused += "learned" not in outcome.result
    if refused == len(groups):
        suspects = tuple(path for result in results.values() for path in result.get("refused", ()))
        raise TeachingRefusedError(" ".join(sentences), suspects)
    return Outcome(" ".join(sentences), {"products": results})


def _teach_group(teaching: Teaching, job: Job, group: TrayGroup, force: bool) -> Outcome:
    """Teach the pictures of one product; without those that the guard refuses, if others are left."""
    refused: list[str] = []
    sentences: list[str] = []
    while paths := [path for path in group.paths if path not in refused]:
        before = teaching.settings_of(group.task)
        try:
            learned = teaching.detector.update(group.task, paths, force=force, progress=teaching.queue.progress(job))
        except TeachingRefusedError as error:
            named = [path for path in error.paths if path in paths]
            gone = group.about(named) or group.about(paths)
            refused += [path for number in gone for path in group.pictures[number]]
            sentences.append(str(error))
            teaching.decide(gone, "refused", job.by, str(error))
            continue
        except DinosaurError as error:
            teaching.decide(group.about(paths), "refused", job.by, str(error))
            raise
        taught = group.about(paths)
        added = f"{learned.images} picture{'s' * (learned.images != 1)}"
        what = f"Updated '{group.task}' with {added}, now {learned.total_images}."
        outcome = teaching.told_learned("update", learned, what, job.by, before, {"feedback": taught})
        teaching.decide(taught, "taught", job.by, outcome.sentence)
        return Outcome(
            " ".join([outcome.sentence, *sentences]),
            {"learned": outcome.result, "refused": refused, "feedback": taught},
        )
    return Outcome(" ".join(sentences), {"refused": refused})
