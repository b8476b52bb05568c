"""The leaderboard as one self-contained page: charts, then a table that sorts by any column, then where rows come from.

It is made from the document of :mod:`~dinosaur_ad.bench.leaderboard` alone. Everything can be read without script; the
few lines of it only sort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from dinosaur_ad.bench.effort import from_to, in_percent
from dinosaur_ad.bench.report.curves import COLOURS
from dinosaur_ad.bench.report.ranking_chart import RankedRow, ranking_chart
from dinosaur_ad.bench.report.report_rows import chosen_words, geometry_words
from dinosaur_ad.bench.report.table import figure
from dinosaur_ad.page.html import Html, element, join, page, section, table

TITLE = "DINOSaur leaderboard"
_CAUTION = (
    "Rows of one column share their images, not their effort: encoder, length of training and number of seeds differ.",
    "That numbers follow from stored scores does not show that the method gave those scores; running it again does.",
    "A spread over seeds covers neither other products nor other test images.",
)


def leaderboard_page(document: Mapping[str, Any], data_file: str) -> Html:
    """The page of a leaderboard; ``data_file`` is the name of the JSON file beside it."""
    head = files("dinosaur_ad.bench.report")
    styles = "".join(head.joinpath(name).read_text("utf-8") for name in ("report.css", "leaderboard.css"))
    script = head.joinpath("leaderboard.js").read_text("utf-8")
    made = page(
        TITLE,
        element("header", element("p", TITLE, class_="eyebrow"), element("h1", _headline(document))),
        _charts(document),
        _ranking(document),
        _paper(document),
        _made_with(document),
        _scenarios(document),
        section("What not to conclude", "", element("ul", *(element("li", each) for each in _cautions(document)))),
        element(
            "p",
            "All of this as JSON: ",
            element("a", data_file, href=data_file),
            f". Made with {document['made_with']} after every number was computed again from its scores.",
            class_="lead",
        ),
        Html(f"<script>{script}</script>"),
    )
    return Html(made.replace("</head>", f"<style>{styles}</style></head>", 1))


def _headline(document: Mapping[str, Any]) -> str:
    rows, scenarios = document["rows"], document["scenarios"]
    cells = sum(len(entry["seeds"]) for row in rows for entry in row["entries"])
    return (
        f"{_count(len(rows), 'row')} of continual anomaly detectors, their variants and controls, on "
        f"{_count(len(scenarios), 'scenario')}: {_count(cells, 'run')}."
    )


# --- charts ---


def _charts(document: Mapping[str, Any]) -> Html:
    styles = _styles(document["rows"])
    printed = {row["key"]: row["image_auroc"] for row in document["paper"]}
    charts = []
    for scenario in document["scenarios"]:
        name = scenario["name"]
        ranked = []
        for row in document["rows"]:
            entry = _entry(row, name)
            if entry is not None and (measured := entry["measures"]["image_auroc"])["mean"] is not None:
                method = row["method"]
                paper = printed.get(method.partition(":")[0], {}).get(name)
                ranked.append(RankedRow(row["label"], measured["mean"], measured["spread"], paper, styles[method]))
        if ranked:
            charts.append(element("div", element("h3", _scenario_title(scenario)), ranking_chart(ranked, name)))
    lead = (
        "Image AUROC after the last task, averaged over tasks and seeds; 1 is perfect, 0.5 (dashed) is chance. Bars "
        "show the spread over seeds, hollow diamonds what the paper prints for the method. One colour a method with "
        "all its variants, grey for controls."
    )
    notes = [element("li", each) for each in geometry_words([each["name"] for each in document["scenarios"]])]
    return section(
        "Image AUROC by scenario",
        lead,
        element("div", *charts, class_="charts ranks"),
        element("ul", *notes, class_="notes") if notes else "",
    )


def _styles(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """A colour a family of methods (``patchcore:vit`` is of ``patchcore``), grey for controls."""
    families = list(dict.fromkeys(row["method"].partition(":")[0] for row in rows if not row["control"]))
    return {
        row["method"]: "soft" if row["control"] else f"c{families.index(row['method'].partition(':')[0]) % COLOURS}"
        for row in rows
    }


# --- tables ---


def _ranking(document: Mapping[str, Any]) -> Html:
    names = [scenario["name"] for scenario in document["scenarios"]]
    best = {name: _best(document["rows"], name) for name in names}
    encoders = list(dict.fromkeys(encoder for row in document["rows"] for encoder in _encoders(row)))
    heads = [
        element("th", name, scope="col", class_="number" if name in names else None)
        for name in ("method", *names, "training a task", "source")
    ]
    body = (element("tr", *_ranking_cells(row, best, encoders)) for row in document["rows"])
    notes = (element("li", element("sup", number), text) for number, text in enumerate(encoders, start=1))
    return section(
        "The table",
        "Image AUROC with its standard deviation over seeds, and which seeds; best of a column in bold. A dash was not "
        "measured. Numbers behind a method name its encoder, below. Click a column to sort by it.",
        element(
            "div",
            element(
                "table", element("thead", element("tr", *heads)), element("tbody", *body), class_="results sortable"
            ),
            class_="scroll",
        ),
        element("ul", *notes, class_="notes"),
    )


def _ranking_cells(row: Mapping[str, Any], best: Mapping[str, float], encoders: Sequence[str]) -> Iterable[Html]:
    marks = ", ".join(str(encoders.index(encoder) + 1) for encoder in _encoders(row))
    yield element("td", row["label"], element("sup", marks))
    for name, highest in best.items():
        entry = _entry(row, name)
        value = None if entry is None else entry["measures"]["image_auroc"]["mean"]
        if entry is None or value is None:
            yield element("td", "–", class_="number")
            continue
        spread = entry["measures"]["image_auroc"]["spread"]
        text = figure(value, float("nan") if spread is None else spread).cell.text
        shown = element("b", text) if round(value, 3) == highest else text
        yield element("td", shown, element("small", _seeds(entry["seeds"])), class_="number", data_value=f"{value:.6f}")
    yield element("td", _training(row["entries"]), class_="words")
    yield element("td", _source(row["entries"]), class_="words")


def _paper(document: Mapping[str, Any]) -> Html:
    names = [scenario["name"] for scenario in document["scenarios"] if scenario["tasks_in_paper"] is not None]
    if not names:
        return Html("")
    head = element("tr", element("th", "method"), *(element("th", name, class_="number") for name in names))
    body = (
        element(
            "tr",
            element("td", row["method"]),
            *(
                element("td", figure(row["image_auroc"].get(name, float("nan"))).cell.text, class_="number")
                for name in names
            ),
        )
        for row in document["paper"]
    )
    return section(
        "The paper's own numbers",
        "As printed, on its encoder and all its tasks; rows above are not like for like where a scenario has fewer "
        "tasks here.",
        element("div", element("table", element("thead", head), *body, class_="results"), class_="scroll"),
    )


def _made_with(document: Mapping[str, Any]) -> Html:
    rows = (
        (row["label"], row["summary"] + (" (a control)" if row["control"] else ""), _settings(row))
        for row in document["rows"]
    )
    return section(
        "What the methods are",
        "Settings are those of the run, of all scenarios where they are the same.",
        element(
            "details",
            element("summary", "Show them"),
            table(("method", "what it is", "settings"), rows),
            class_="facts",
        ),
    )


def _scenarios(document: Mapping[str, Any]) -> Html:
    rows = (
        (
            scenario["name"],
            _task_count(scenario),
            f"{sum(task['train'] for task in scenario['tasks'])}",
            f"{sum(task['test_normal'] for task in scenario['tasks'])} normal, "
            f"{sum(task['test_anomalous'] for task in scenario['tasks'])} anomalous",
            f"{scenario['description']} Licence: {scenario['licence'] or 'not stated'}",
        )
        for scenario in document["scenarios"]
    )
    return section(
        "Scenarios",
        "Tasks are learned one after another; all are tested after the last one.",
        table(("scenario", "tasks", "training images", "test images", "data and licence"), rows),
    )


# --- words ---


def _cautions(document: Mapping[str, Any]) -> Iterable[str]:
    chosen = {row["label"]: row["chosen_on"] for row in document["rows"] if row["chosen_on"]}
    return (*_CAUTION, *([chosen_words(chosen)] if chosen else []))


def _encoders(row: Mapping[str, Any]) -> list[str]:
    """The encoders of a row, each once."""
    return list(dict.fromkeys(f"{str(entry['encoder']).rstrip('.')}." for entry in row["entries"]))


def _training(entries: Sequence[Mapping[str, Any]]) -> str:
    """The range over all scenarios: steps, images a step, share of the method's own schedule."""
    trained = [entry["training"] for entry in entries if entry["training"] is not None]
    if not trained:
        return "not trained"
    every = [step for each in trained for step in each["steps"]]
    steps = from_to(f"{min(every):,}", f"{max(every):,}")
    sizes = [each["batch"] for each in trained if each["batch"]]
    batch = f" of {from_to(str(min(sizes)), str(max(sizes)))} image{'s' * (max(sizes) > 1)}" if sizes else ""
    shares = [each["share"] for each in trained if each["share"] is not None]
    whole = len(shares) == len(trained)
    share = f", {from_to(in_percent(min(shares)), in_percent(max(shares)))} of its schedule" if whole else ""
    return f"{steps} steps{batch}{share}"


def _source(entries: Sequence[Mapping[str, Any]]) -> str:
    """The commits of a row, or of how many scenarios the source is exactly that of a commit."""
    exact = [entry for entry in entries if entry["exact"]]
    if len(exact) == len(entries):
        commits = sorted({revision for entry in entries for revision in entry["revisions"]})
        return f"commit{'s' * (len(commits) > 1)} {', '.join(commits)}"
    return f"{len(exact)} of {_count(len(entries), 'scenario')} from an exact commit"


def _settings(row: Mapping[str, Any]) -> Html:
    return _by_scenario(
        row, lambda entry: ", ".join(f"{key} {value}" for key, value in entry["settings"].items() if value is not None)
    )


def _by_scenario(row: Mapping[str, Any], words: Callable[[Mapping[str, Any]], str]) -> Html:
    """What is said of the entries of a row: once where all say the same, else with the scenarios it holds for."""
    said: dict[str, list[str]] = {}
    for entry in row["entries"]:
        said.setdefault(words(entry), []).append(entry["scenario"])
    if len(said) == 1:
        return Html(join(said))
    return join(element("div", f"{', '.join(names)}: {text}") for text, names in said.items())


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}"


def _scenario_title(scenario: Mapping[str, Any]) -> str:
    count = _task_count(scenario)
    return f"{scenario['name']}, {count} task{'s' * (count != '1')}"


def _task_count(scenario: Mapping[str, Any]) -> str:
    count, whole = len(scenario["tasks"]), scenario["tasks_in_paper"]
    return str(count) if whole in (None, count) else f"{count} of {whole}"


def _entry(row: Mapping[str, Any], scenario: str) -> Mapping[str, Any] | None:
    return next((entry for entry in row["entries"] if entry["scenario"] == scenario), None)


def _best(rows: Sequence[Mapping[str, Any]], scenario: str) -> float:
    entries = [entry for row in rows if (entry := _entry(row, scenario)) is not None]
    means = [entry["measures"]["image_auroc"]["mean"] for entry in entries]
    return max((round(mean, 3) for mean in means if mean is not None), default=float("nan"))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
