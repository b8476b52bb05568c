"""The page of ``dinosaur report``: how many images are normal, how their scores spread, and the worst of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from dinosaur_ad._text import odds, percent, printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import read_image
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.page.charts import histogram
from dinosaur_ad.page.html import Html, element, join, number, page, section, table, tile
from dinosaur_ad.page.image_results import ANOMALOUS, NORMAL, NOT_READY, UNKNOWN, ImageResults, ImageRow
from dinosaur_ad.page.photo_cards import heat_key, marks, patch_pair, photo
from dinosaur_ad.page.sequence_page import interval

TITLE = "DINOSaur report"
MOST_ROWS = 10_000
_SIDE = 480  # longest side of a picture on the page, in pixels
_COLOURS = (
    "Colour is absolute: clear where a patch is as usual, orange at the threshold, magenta far beyond. Point at a "
    "picture to see it without colour."
)

Progress = Callable[[int, int], object]


def image_page(
    results: ImageResults, made_by: Mapping[str, Any], progress: Progress = lambda done, total: None
) -> Html:
    """The whole page. ``made_by`` is what the provenance line prints; ``progress`` gets (pictures drawn, of all)."""
    return page(
        TITLE,
        _head(results),
        _notices(results),
        _tasks(results),
        _scores(results),
        *_galleries(results, progress),
        _all_images(results),
        _unreadable(results),
        _how_to_read(results),
        element("p", _provenance(results, made_by), class_="key"),
        generator=TITLE,
    )


def headline(results: ImageResults) -> str:
    """The result in one sentence."""
    total, found = len(results.rows), results.count(ANOMALOUS)
    if not total:
        return "None of the images could be read."
    if found == 0:
        return f"None of {_count(total, 'image')} {'is' if total == 1 else 'are'} anomalous."
    if found == total:
        return "The image is anomalous." if total == 1 else f"All {total} images are anomalous."
    return f"{found} of {total} images {'is' if found == 1 else 'are'} anomalous."


def _head(results: ImageResults) -> Html:
    judged = results.count(NORMAL) + results.count(ANOMALOUS)
    lowest, highest = results.false_alarms()
    expected = results.expected_alarms()
    by_chance = f"about {expected:.0f}" if expected >= 1 else "fewer than one"
    tiles = [
        tile(str(results.count(ANOMALOUS)), "anomalous", "score above the threshold of the task"),
        tile(str(results.count(NORMAL)), "normal", "score at most the threshold"),
        tile(str(results.count(UNKNOWN)), "unknown", "none of the learned products; this does not mean good"),
        tile(str(results.count(NOT_READY)), "not ready", "the task cannot judge yet; this does not mean good"),
        tile(str(len(results.rejected)), "unreadable", "files that could not be read; not judged"),
    ]
    if results.labelled(0):
        share = results.alarms(0)
        tiles.append(tile(percent(share.rate, 1), "false alarms", f"good images called anomalous: {interval(share)}"))
    if results.labelled(1):
        share = results.alarms(1)
        tiles.append(tile(percent(share.rate, 1), "defects caught", f"bad images called anomalous: {interval(share)}"))
    if aurocs := results.aurocs():
        note = "mean of the tasks" if len(aurocs) > 1 else "how well scores rank bad above good; 1 is perfect"
        tiles.append(tile(f"{sum(aurocs.values()) / len(aurocs):.3f}", "image AUROC", note))
    rates = f"{100 * lowest:.3g} %" if lowest == highest else f"{100 * lowest:.3g} to {100 * highest:.3g} %"
    allowed = f"The threshold{'s' * (lowest != highest)} allow{'s' * (lowest == highest)} {rates} false alarms"
    lead = (
        f"{allowed}: if all {judged} judged images were good, {by_chance} of them would be called anomalous by chance."
    )
    return element(
        "header",
        element("p", TITLE, class_="eyebrow"),
        element("h1", headline(results)),
        element("p", lead, class_="lead") if judged else "",
        element("div", *tiles, class_="tiles"),
    )


def _notices(results: ImageResults) -> Html:
    """What a reader must know before trusting the verdicts: damaged tasks, tasks that cannot judge, a fallback, a light
    or a camera that changed."""
    found = [f"Not compared with the damaged task {printable(name)}; see: dinosaur tasks --verify." for name in
             sorted(results.left_out)]  # fmt: skip
    # What an unknown image differs by stands beside it.
    judging = (row for row in results.rows if row.verdict != UNKNOWN)
    found += dict.fromkeys(printable(row.reason, 2000) for row in judging if row.reason)
    found += [printable(each, 2000) for each in results.warnings]
    if results.fallback:
        found.append(f"The encoder did not run as asked: {printable(results.fallback, 2000)}")
    return element("ul", *(element("li", each) for each in found), class_="notices") if found else Html("")


def _tasks(results: ImageResults) -> Html:
    if not results.rows:
        return Html("")
    return section(
        "Task by task",
        "The task of an image is the one whose normal images it resembles most, unless it was given.",
        table(
            ("task", "images", "anomalous", "normal", "unknown", "not ready", "threshold", "highest score"),
            _task_lines(results),
        ),
    )


def _task_lines(results: ImageResults) -> list[tuple[object, ...]]:
    lines: list[tuple[object, ...]] = []
    for task in results.tasks():
        own = [row for row in results.rows if row.task == task]
        counts = [sum(row.verdict == verdict for row in own) for verdict in (ANOMALOUS, NORMAL, UNKNOWN)]
        counts.append(len(own) - sum(counts))
        limit = own[-1].threshold
        numbers = (len(own), *counts)
        lines.append(
            (
                printable(task),
                *(number(str(each)) for each in numbers),
                number(limit if math.isfinite(limit) else None),
                number(max(row.score for row in own)),
            )
        )
    return lines


def _scores(results: ImageResults) -> Html:
    rows = [row for row in results.rows if row.judged and not math.isnan(row.relative)]
    if not rows:
        return Html("")
    values = [row.relative for row in rows]
    reach = (max(0.0, min(0.5, min(values))), max(2.0, min(max(values), 4.0)))
    labelled = any(row.label is not None for row in rows)
    plots = []
    for task in results.tasks():
        own = [row for row in rows if row.task == task and (row.label is not None or not labelled)]
        if own:
            plots.append(_plot(printable(task, 40), own, reach, labelled=labelled))
    normal = element("span", "good" if labelled else "normal", class_="normal")
    anomalous = element("span", "bad" if labelled else "anomalous", class_="anomalous")
    lead = (
        (normal, " images above the line, ", anomalous, " ones below it")
        if labelled
        else (normal, " or ", anomalous, " by verdict")
    )
    return section(
        "How the scores spread",
        join(
            (
                "Number of images by score, in units of the threshold of their task (dashed): ",
                *lead,
                ". Scores beyond the axis are counted at its end.",
            )
        ),
        element("div", *plots, class_="plots"),
    )


def _plot(title: str, rows: Sequence[ImageRow], reach: tuple[float, float], *, labelled: bool) -> Html:
    def values(name: str, wanted: object) -> list[float]:
        return [row.relative for row in rows if getattr(row, name) == wanted]

    if labelled:
        return histogram(title, {"normal": values("label", 0)}, {"anomalous": values("label", 1)}, reach)
    return histogram(title, {each: values("verdict", each) for each in (NORMAL, ANOMALOUS)}, {}, reach)


def _galleries(results: ImageResults, progress: Progress) -> list[Html]:
    shown = results.shown()
    wrong = sum((row.label, row.verdict) == (0, ANOMALOUS) for row in results.rows)
    missed = sum((row.label, row.verdict) == (1, NORMAL) for row in results.rows)
    rest = len(results.rows) - len(shown.false_alarms) - len(shown.missed)
    groups = [
        ("False alarms", shown.false_alarms, wrong, "Good images that were called anomalous, the highest score first."),
        ("Missed", shown.missed, missed, "Bad images that were called normal, the lowest score first."),
        (
            "Worst first",
            shown.others,
            rest,
            "Anomalous images, then unknown and not ready, then normal ones, by score.",
        ),
    ]
    total, done = sum(map(len, shown)), 0
    made: list[Html] = []
    names = _names(results)
    for title, indices, count, rule in groups:
        cards = []
        for index in indices:
            cards.append(_card(results.rows[index], results.inspections[index], names[results.rows[index].path]))
            done += 1
            progress(done, total)
        if cards:
            lead, key = f"{rule} {len(cards)} of {count} shown.", Html("")
            if not made:
                lead, key = f"{lead} {_COLOURS}", heat_key()
            made.append(section(title, lead, key, element("div", *cards, class_="gallery wide")))
    return made


def _card(row: ImageRow, inspection: Inspection, name: str) -> Html:
    truth = {0: " (a good one)", 1: " (a bad one)"}.get(-1 if row.label is None else row.label, "")
    lines = [
        element("b", element("span", row.verdict, class_=f"badge {_class(row)}"), f" {_task(row)}{truth}"),
        element("span", name, class_="path"),
        element("span", _score_words(row)),
        element("span", printable(row.reason, 300) if row.reason else odds(row.p_value)),
        *([element("span", f"The image is {row.light}.")] if row.light else []),
    ]
    try:
        pixels = read_image(row.path)
    except InputError as error:
        gone = element("p", f"The picture could not be read again: {printable(error)}", class_="lead")
        return element("article", gone, element("p", *lines), class_="card")
    zoom = min(1.0, _SIDE / max(pixels.shape[:2]))
    figure = photo(pixels, marks(pixels, inspection, zoom=zoom), f"{row.verdict}: {name}")
    return element("article", figure, element("p", *lines), patch_pair(pixels, inspection), class_="card")


def _task(row: ImageRow) -> str:
    return f"{'nearest: ' * (row.verdict == UNKNOWN)}{printable(row.task, 60)}"


def _score_words(row: ImageRow) -> str:
    if math.isnan(row.relative):
        return f"score {row.score:.3f}"
    return f"score {row.score:.3f}, threshold {row.threshold:.3f}"


def _all_images(results: ImageResults) -> Html:
    if not results.rows:
        return Html("")
    rows, names = sorted(results.rows, key=lambda row: row.rank), _names(results)
    lines = (
        (
            element("span", row.verdict, class_=_class(row)),
            printable(row.task),
            number(row.score),
            number(row.threshold if math.isfinite(row.threshold) else None),
            printable(row.reason, 300)
            if row.reason
            else odds(row.p_value).removesuffix(" good parts would look this odd"),
            names[row.path],
        )
        for row in rows[:MOST_ROWS]
    )
    header = ("verdict", "task", "score", "threshold", "good parts this odd", "image")
    cut = f" The first {MOST_ROWS}; dinosaur inspect --json lists all." if len(rows) > MOST_ROWS else ""
    return section(
        "All images",
        f"{_count(len(rows), 'image')}, the worst first.{cut} Folder: {printable(_root(results))}",
        element("details", element("summary", "Show the table"), table(header, lines)),
    )


def _unreadable(results: ImageResults) -> Html:
    if not results.rejected:
        return Html("")
    lines = [element("li", printable(each.reason, 2000)) for each in results.rejected[:MOST_ROWS]]
    return section("Unreadable", "These files were not judged.", element("ul", *lines))


def _how_to_read(results: ImageResults) -> Html:
    notes = [
        "A score is the distance from the normal images of the task; above the threshold the verdict is anomalous.",
        "“1 in 40 good parts would look this odd” is the p-value in words. It comes from the training images of the "
        "task; of scores above all of theirs a model of their spread says how rare they are.",
        "An unknown image shows none of the learned products: all of it differs from the nearest one, which is named.",
    ]
    if results.labelled(0) or results.labelled(1):
        notes.append("Good and bad are as the folders given with --good and --bad say; nothing was learned from them.")
    return section("How to read this", "", element("ul", *(element("li", note) for note in notes)))


def _provenance(results: ImageResults, made_by: Mapping[str, Any]) -> str:
    facts = [f"{name} {printable(value)}" for name, value in made_by.items()]
    times = [row.ms for row in results.rows if not math.isnan(row.ms)]
    return "; ".join(facts + ([f"{median(times):.0f} ms an image (median)"] if times else [])) + "."


def _names(results: ImageResults) -> dict[str, str]:
    """What each image is called: its path below the folder that all images share."""
    root = _root(results)
    return {row.path: printable(os.path.relpath(_absolute(row.path), root)) for row in results.rows}


def _root(results: ImageResults) -> str:
    if not results.rows:
        return ""
    return os.path.commonpath([Path(_absolute(row.path)).parent for row in results.rows])


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - without following links: the name that was given


def _class(row: ImageRow) -> str:
    return row.verdict if row.judged else "unsure"


def _count(total: int, noun: str) -> str:
    return f"{total} {noun}{'s' * (total != 1)}"
