"""The report as files: complete, self-contained, the same every time, and small enough to send."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from report_factory import cell, grid

from dinosaur_ad.bench.places import open_place
from dinosaur_ad.bench.report import write_report
from dinosaur_ad.bench.results import CellResult, FailedCell
from dinosaur_ad.bench.scenarios import open_scenario
from dinosaur_ad.errors import InputError

VOID = {"img", "meta", "br", "hr", "input", "link"}


class Balance(HTMLParser):
    """Notes every element that is not closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def page(out: Path) -> str:
    return (out / "report.html").read_text("utf-8")


def tiny_cell(seed: int = 0) -> CellResult:
    """A full result on the real images of the smallest scenario."""
    scenario = open_scenario("synthetic-tiny", None, seed)
    made = cell(scenario="synthetic-tiny", seed=seed, tasks=len(scenario.tasks), maps=True)
    rng = np.random.default_rng(0)
    final = []
    for task, scores in zip(scenario.tasks, made.final, strict=True):
        labels = np.array([sample.label for sample in task.test], np.int8)
        final.append(
            replace(
                scores,
                labels=labels,
                kinds=tuple(sample.kind for sample in task.test),
                scores=(10 + 5 * labels + rng.normal(0, 0.1, len(labels))).astype(np.float32),
                own_thresholds=np.full(len(labels), 12, np.float32),
                names=tuple(sample.name for sample in task.test),
                maps=rng.normal(8, 1, (len(labels), 4, 4)).astype(np.float16),
            )
        )
    tasks = [about | {"name": task.name} for about, task in zip(made.tasks, scenario.tasks, strict=True)]
    return replace(made, final=final, tasks=tasks)


def test_three_files_with_every_table(tmp_path: Path) -> None:
    files = write_report([cell(scenario="mtd-color"), cell(scenario="synthetic")], tmp_path / "new" / "folder")
    titles = ["Continuous drift (the paper's Tables 2 and 3)", "Other scenarios", "What is missing", "Cost and storage"]
    for path in (files.html, files.markdown, files.latex):
        text = path.read_text("utf-8").replace("&#x27;", "'")
        assert [title for title in titles if title not in text] == []


def test_charts_come_before_the_tables_and_show_one_form_of_each_method(tmp_path: Path) -> None:
    results = [
        cell(method, scenario)
        for method in ("dne", "dne:original", "dinosaur")
        for scenario in ("mtd-color", "mtd-blur")
    ]
    write_report(results, tmp_path)
    text = page(tmp_path)
    chart = text.index('aria-label="mtd-color: AUROC by tasks learned"')
    assert chart < text.index('<table class="results">')
    assert text[chart : text.index("</svg>", chart)].count('<path class="line') == 2
    forgetting = text.index("AUROC at the end against AUROC just learned")
    assert text[forgetting : text.index("</svg>", forgetting)].count("<circle") == 4  # two methods, two scenarios
    assert "AUROC against storage in all, MiB" in text


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    results = [cell(seed=seed) for seed in (0, 1)]
    one = write_report(results, tmp_path / "one")
    two = write_report(results[::-1], tmp_path / "two")
    for name in ("html", "markdown", "latex"):
        assert getattr(one, name).read_bytes() == getattr(two, name).read_bytes()


def test_the_page_is_well_formed_and_fetches_nothing(tmp_path: Path) -> None:
    write_report([cell(), tiny_cell()], tmp_path)
    parser = Balance()
    parser.feed(page(tmp_path))
    assert parser.wrong == []
    assert parser.open == []
    anchors = {source[1:] for source in parser.sources if source.startswith("#")}
    assert all(f'id="{anchor}"' in page(tmp_path) for anchor in anchors)
    assert [source for source in parser.sources if not source.startswith(("#", "data:image/webp;"))] == []
    assert "<script" not in page(tmp_path)


def test_only_the_first_seed_is_charted_and_the_page_says_so(tmp_path: Path) -> None:
    write_report([cell(seed=seed) for seed in (1, 2, 3)], tmp_path)
    assert page(tmp_path).count('class="matrix dense"') == 1
    assert "charts of seed 1" in page(tmp_path)
    assert "the tables above average all of them" in page(tmp_path)


def test_every_cell_of_the_matrix_is_shown_and_those_ahead_are_marked(tmp_path: Path) -> None:
    result = cell(tasks=4)
    write_report([result], tmp_path)
    shown = re.findall(r'<td style="[^"]*" class="(ahead )?(?:strong|weak)">([\d.]+)</td>', page(tmp_path))
    assert [value for _, value in shown] == [f"{value:.3f}" for value in result.auroc.ravel()]
    assert sum(bool(ahead) for ahead, _ in shown) == 6


def test_failed_cells_are_listed_with_their_error(tmp_path: Path) -> None:
    failed = [FailedCell("ucad", "mtd-geo", 2, "It needs <more> memory.")]
    files = write_report([cell()], tmp_path, failed=failed)
    assert "It needs &lt;more&gt; memory." in page(tmp_path)
    assert "and 1 that failed" in page(tmp_path)
    assert r"- ucad on mtd-geo, seed 2: It needs \<more\> memory." in files.markdown.read_text("utf-8")


def test_a_run_in_which_everything_failed_still_has_a_report(tmp_path: Path) -> None:
    write_report([], tmp_path, failed=[FailedCell("ucad", "mtd-geo", 2, "Out of memory.")])
    assert "Out of memory." in page(tmp_path)


def test_nothing_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to report"):
        write_report([], tmp_path)


def test_an_out_that_is_a_file_gives_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(InputError, match="choose another --out"):
        write_report([cell()], tmp_path / "taken")


def test_a_full_result_shows_pictures_with_what_they_are(tmp_path: Path) -> None:
    write_report([tiny_cell()], tmp_path)
    assert page(tmp_path).count('<article class="card">') >= 4
    assert "typical normal: 0.83× threshold" in page(tmp_path)
    assert "typical catch: 1.25× threshold" in page(tmp_path)


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (cell(), "This is a compact result, which holds no maps"),
        (replace(cell(), pixel=None), "The method makes no maps."),
        (cell(scenario="synthetic-tiny", maps=True), "The data found is not that of this result"),
    ],
)
def test_no_pictures_are_explained(result: CellResult, sentence: str, tmp_path: Path) -> None:
    write_report([result], tmp_path)
    assert sentence in page(tmp_path)
    assert "<article" not in page(tmp_path)


def test_missing_data_is_explained_and_the_rest_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DINOSAUR_DATA", raising=False)
    write_report([cell(maps=True)], tmp_path / "out", data=tmp_path)
    assert "The images could not be read." in page(tmp_path / "out")
    assert "ROC curves" in page(tmp_path / "out")


def test_scores_without_a_usable_threshold_are_explained(tmp_path: Path) -> None:
    plain = cell()
    final = [replace(task, own_thresholds=None) for task in plain.final]
    write_report([replace(plain, thresholds=np.full((3, 3), np.nan), final=final)], tmp_path)
    assert "No task has a positive threshold" in page(tmp_path)


def test_nan_and_single_class_tasks_do_not_stop_the_report(tmp_path: Path) -> None:
    plain = cell(tasks=2)
    silent = replace(plain.final[0], scores=np.full_like(plain.final[0].scores, np.nan))
    normal = replace(plain.final[1], labels=np.zeros_like(plain.final[1].labels))
    lost = replace(plain, final=[silent, normal], auroc=np.array([[0.5, 0.5], [0.5, np.nan]]))
    files = write_report([lost], tmp_path)
    assert "| dinosaur:paper ¹ | none | 1 | – | – | **0.928** | – |" in files.markdown.read_text("utf-8")


def test_sixty_compact_cells_stay_small(tmp_path: Path) -> None:
    scenarios = [f"synthetic-{number}" for number in range(6)]
    results = [cell(f"method{m}", scenario, tasks=10) for m in range(10) for scenario in scenarios]
    files = write_report(results, tmp_path)
    assert files.html.stat().st_size < 5e6
    assert page(tmp_path).count("<details>") == 60  # all folded


def test_grids_among_the_results_are_reported(tmp_path: Path) -> None:
    for part in grid((0.1,), (0, 3), {"mtd-color": [[0.7, 0.8]], "mtd-blur": [[0.5, 0.6]]}).parts:
        part.save(open_place(tmp_path / "in" / "deep"))
    files = write_report([], tmp_path / "out", folders=[str(tmp_path / "in")])
    assert "| 10 % | 0.600 | 0.787 | −0.187 | 0.700 | 0.801 | −0.101 |" in files.markdown.read_text("utf-8")
