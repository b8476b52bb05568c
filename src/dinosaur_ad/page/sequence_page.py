"""The page of a sequence: what was learned, what was caught, what was forgotten, and what that does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dinosaur_ad._text import odds, percent
from dinosaur_ad.page.charts import histogram, matrix_scale, matrix_table
from dinosaur_ad.page.examples import Example, ShownRows
from dinosaur_ad.page.html import Html, element, join, number, page, section, table, tile
from dinosaur_ad.page.photo_cards import heat_key, marks, patch_pair, photo
from dinosaur_ad.page.sequence_results import SequenceRow, SequenceRun, Share, Summary, Taught, auroc_of, last_rows

_WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def sequence_page(
    title: str,
    run: SequenceRun,
    choice: ShownRows,
    examples: Mapping[SequenceRow, Example],
    notes: Sequence[str],
    commands: str,
) -> Html:
    """The whole page. ``examples`` holds every row of ``choice``; ``notes`` say what the numbers do not show."""
    summary, rows = run.summary, last_rows(run.rows)
    return page(
        title,
        _head(title, run, summary),
        _showcase(run.taught, choice, examples),
        _matrix(summary),
        _scores(summary, rows),
        _outcomes(choice, examples, summary),
        _kinds(rows),
        section("What the numbers do not show", "Read these before quoting any of the above.", _list(notes)),
        section("Now with your own images", "A folder of normal images is all it needs.", element("pre", commands)),
        _provenance(run),
    )


def headline(run: SequenceRun, summary: Summary) -> str:
    """The result in one sentence."""
    count = len(summary.products)
    products = f"{_WORDS[count] if count < len(_WORDS) else count} product{'s' * (count != 1)}"
    caught = f"{summary.recall.count} of {summary.recall.total} defects caught"
    lost = "" if summary.forgetting is None else f", {_lost(summary.forgetting)}"
    return (
        f"{products.capitalize()} learned one after another from normal images only, "
        f"{run.seconds_per_product:.1f} s each: {caught} without being told which product it is{lost}."
    )


def interval(share: Share) -> str:
    """Counts and the 95 % interval of a share.

    >>> interval(Share.of(3, 100))
    '3 of 100; 95 % interval 1.0–8.5 %'
    """
    return f"{share.count} of {share.total}; 95 % interval {100 * share.low:.1f}–{100 * share.high:.1f} %"


def _lost(forgetting: float) -> str:
    if abs(forgetting) < 0.0005:
        return "nothing forgotten"
    return f"{abs(forgetting):.3f} AUROC {'forgotten' if forgetting > 0 else 'gained'} along the way"


def _head(title: str, run: SequenceRun, summary: Summary) -> Html:
    auroc = "–" if summary.mean_auroc is None else f"{summary.mean_auroc:.3f}"
    lost = "–" if summary.forgetting is None else f"{summary.forgetting:.3f}"
    provider = str(run.detector["provider"]).removesuffix("ExecutionProvider")
    asked = f"{100 * run.asked:g} % asked for; {interval(summary.false_alarms)}"
    tiles = (
        tile(auroc, "image AUROC", f"mean of {len(summary.products)} products after the last was learned"),
        tile(lost, "forgetting", "AUROC that earlier products lost; 0 is none"),
        tile(percent(summary.recall.rate, 1), "defects caught", interval(summary.recall)),
        tile(percent(summary.false_alarms.rate, 1), "false alarms", asked),
        tile(percent(summary.routing.rate, 1), "routed right", "the product was never named"),
        tile(f"{summary.ms_per_image:.0f} ms", "to inspect an image", f"median, {provider}, file reading included"),
        tile(f"{run.seconds_per_product:.1f} s", "to learn a product", f"from {run.taught[0].images} normal images"),
        tile(run.detector["encoder"], "encoder", run.detector["description"]),
    )
    return element(
        "header",
        element("p", title, class_="eyebrow"),
        element("h1", headline(run, summary)),
        element("div", *tiles, class_="tiles"),
    )


def _showcase(taught: Sequence[Taught], choice: ShownRows, examples: Mapping[SequenceRow, Example]) -> Html:
    rows = []
    for product, (normal, defect) in zip(taught, choice.showcase, strict=True):
        kind, seen = _words(defect.kind), examples[defect]
        pictures = (
            _photo(examples[normal], f"normal {product.product}", heat=True, caption="normal"),
            _photo(seen, f"{product.product} with {kind}", heat=False, caption=f"defect: {kind}"),
            _photo(
                seen, f"{product.product} with heat", heat=True, truth=False, caption=f"score {defect.relative:.2f}×"
            ),
        )
        name = element("div", element("b", product.product), element("span", product.description), class_="name")
        rows.append(element("div", name, *pictures, class_="product"))
    return section(
        "What it saw",
        join(
            (
                "Of each product a normal part and a defect it was never shown (outlined in ",
                element("span", "cyan", class_="truth"),
                "), each the one with the median score of its group, and where DINOSaur looks. Colour is "
                "absolute: clear where a patch is as usual, orange at the threshold, magenta far beyond. A good part "
                "stays clean.",
            )
        ),
        heat_key(),
        element("div", *rows, class_="showcase"),
    )


def _photo(example: Example, alternative: str, *, heat: bool, caption: str = "", truth: bool = True) -> Html:
    layer = marks(example.pixels, example.inspection, example.mask if truth else None, heat=heat)
    return photo(example.pixels, layer, alternative, caption)


def _matrix(summary: Summary) -> Html:
    return section(
        "Did learning more hurt what came before?",
        "Image AUROC. Each line was measured after one more product was learned, on every product so far; read a "
        "column downwards to see whether a product suffered from those learned after it.",
        matrix_table([f"after {name}" for name in summary.products], summary.products, summary.matrix, "tested on"),
        matrix_scale(),
    )


def _scores(summary: Summary, rows: Sequence[SequenceRow]) -> Html:
    highest = max(row.relative for row in rows)
    reach = (min(0.5, min(row.relative for row in rows)), max(2.0, min(highest, 4.0)))
    plots = (
        histogram(
            product,
            {"normal": [row.relative for row in rows if row.product == product and not row.label]},
            {"anomalous": [row.relative for row in rows if row.product == product and row.label]},
            reach,
        )
        for product in summary.products
    )
    key = (
        element("span", "normal", class_="normal"),
        " above the line, ",
        element("span", "anomalous", class_="anomalous"),
    )
    return section(
        "How far apart normal and anomalous are",
        join(("Scores at the end, in units of the threshold (dashed): ", *key, " below it.")),
        element("div", *plots, class_="plots"),
    )


def _outcomes(choice: ShownRows, examples: Mapping[SequenceRow, Example], summary: Summary) -> Html:
    missed = summary.recall.total - summary.recall.count
    groups = (
        (
            "Caught",
            choice.hits,
            summary.recall.count,
            "The first of every product and defect kind, in turn; scores are in units of the threshold.",
        ),
        ("Missed", choice.misses, missed, "The lowest scores of every product first."),
        (
            "False alarms",
            choice.false_alarms,
            summary.false_alarms.count,
            "The highest scores first; nothing is wrong with these.",
        ),
    )
    return join(
        section(
            title,
            f"{len(shown)} of {total}. {rule}" if shown else "None.",
            element("div", *(_card(examples[row]) for row in shown), class_="gallery"),
        )
        for title, shown, total, rule in groups
    )


def _card(example: Example) -> Html:
    row = example.row
    routed = "" if row.task == row.product else f", taken for {row.task}"
    lines = (
        element("b", f"{row.product}: {_words(row.kind)}{routed}"),
        element("span", f"score {row.relative:.2f}× the threshold"),
        element("span", odds(row.p_value)),
    )
    figure = _photo(example, f"{row.product}, {row.kind}", heat=True)
    return element(
        "article", figure, element("p", *lines), patch_pair(example.pixels, example.inspection), class_="card"
    )


def _kinds(rows: Sequence[SequenceRow]) -> Html:
    tables = []
    for product in dict.fromkeys(row.product for row in rows):
        tested = [row for row in rows if row.product == product]
        kinds = dict.fromkeys(row.kind for row in tested if row.label)
        lines = (_kind_line(kind, tested) for kind in kinds)
        tables.append(element("div", element("h3", product), table(("defect", "caught", "AUROC"), lines)))
    return section(
        "Defect by defect",
        "Caught at the threshold, and image AUROC against the product's normal test images.",
        element("div", *tables, class_="plots"),
    )


def _kind_line(kind: str, tested: Sequence[SequenceRow]) -> tuple[object, ...]:
    defects = [row for row in tested if row.kind == kind]
    caught = f"{sum(row.alarm for row in defects)} of {len(defects)}"
    return _words(kind), number(caught), number(auroc_of([row for row in tested if not row.label] + defects))


def _provenance(run: SequenceRun) -> Html:
    detector = {key.replace("_", " "): value for key, value in run.detector.items()}
    facts = {"date": run.date, "false alarms asked": f"{100 * run.asked:g} %"} | detector | run.software
    return section("What made this", "Everything that decides the numbers.", table(("", ""), facts.items()))


def _list(items: Sequence[str]) -> Html:
    return element("ul", *(element("li", item) for item in items))


def _words(name: str) -> str:
    return name.replace("_", " ")
