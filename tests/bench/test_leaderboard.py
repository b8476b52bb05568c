"""The leaderboard: one JSON document that fits its schema, and a page made from it that needs nothing else."""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from row_helpers import run_photometer

from dinosaur_ad.bench.leaderboard import DOCUMENT, MEASURES, leaderboard, schema
from dinosaur_ad.bench.report import table_makers, to_markdown
from dinosaur_ad.bench.report.leaderboard_page import leaderboard_page
from dinosaur_ad.bench.results import find_results
from dinosaur_ad.bench.submitted_row import pack_row
from dinosaur_ad.errors import InputError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_photometer(tmp_path_factory.mktemp("board"))


@pytest.fixture(scope="module")
def tiny(results: Path) -> dict[str, Any]:
    return leaderboard([str(results)])


@pytest.fixture(scope="module")
def stored() -> dict[str, Any]:
    """Trained and untrained methods, on one scenario of the paper."""
    return leaderboard([str(ROOT / "results" / "bench" / "mvtec-loco")])


@pytest.mark.parametrize("name", ["tiny", "stored"])
def test_the_document_fits_its_schema_and_the_schema_can_fail(name: str, request: pytest.FixtureRequest) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    rules, document = json.loads(schema()), request.getfixturevalue(name)
    jsonschema.Draft202012Validator.check_schema(rules)
    jsonschema.validate(json.loads(json.dumps(document, allow_nan=False)), rules)
    for spoil in (
        lambda each: each.update(format=2),
        lambda each: each["rows"][0]["entries"][0].pop("encoder"),
        lambda each: each["rows"][0]["entries"][0]["measures"].pop("image_auroc"),
        lambda each: each["rows"][0].update(more=1),
    ):
        wrong = copy.deepcopy(document)
        spoil(wrong)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, rules)


def test_the_schema_names_every_measure() -> None:
    assert set(json.loads(schema())["$defs"]["entry"]["properties"]["measures"]["required"]) == set(MEASURES)


def test_an_entry_has_seeds_numbers_and_origin(tiny: dict[str, Any]) -> None:
    (row,) = tiny["rows"]
    (entry,) = row["entries"]
    assert (row["method"], row["control"], entry["seeds"], entry["exact"]) == ("photometer", True, [0, 1], True)
    auroc = entry["measures"]["image_auroc"]
    assert auroc["mean"] == pytest.approx(sum(auroc["by_seed"]) / 2)
    assert auroc["spread"] is not None
    assert entry["training"] is None
    assert entry["measures"]["pixel_auroc"]["mean"] is None  # it has no maps
    assert len(entry["package_sha256"][0]) == len(entry["method_sha256"][0]) == 64


def test_its_numbers_are_those_of_the_report(stored: dict[str, Any]) -> None:
    finished, failed = find_results([str(ROOT / "results" / "bench" / "mvtec-loco")])
    overview = to_markdown(table_makers(finished, [], failed)["overview"]())
    for row in stored["rows"]:
        mean = row["entries"][0]["measures"]["image_auroc"]["mean"]
        assert re.search(rf"\| {re.escape(row['label'])}[ |].*{mean:.3f}", overview), row["method"]


def test_the_page_says_encoder_seeds_and_share_of_the_schedule_of_every_row(stored: dict[str, Any]) -> None:
    page = leaderboard_page(stored, DOCUMENT)
    body = page.partition("The table")[2].partition("The paper")[0]
    lines = re.findall(r"<tr>(.*?)</tr>", body)[1:]
    assert len(lines) == len(stored["rows"])
    for row, line in zip(stored["rows"], lines, strict=True):
        entry = row["entries"][0]
        assert f">{row['label']}<sup>" in line
        assert f"seed{'s' * (len(entry['seeds']) > 1)} {', '.join(map(str, entry['seeds']))}" in line
        assert ("not trained" in line) == (entry["training"] is None)
        assert f'data-value="{entry["measures"]["image_auroc"]["mean"]:.6f}"' in line
    assert "840 steps of 12 images, 10 % of its schedule" in body
    assert "not the released DINOv2." in body


def test_the_charts_come_before_the_tables(stored: dict[str, Any]) -> None:
    page = leaderboard_page(stored, DOCUMENT)
    assert page.index("<svg") < page.index("<table")
    assert page.count('<circle class="dot') == len(stored["rows"])


def test_the_page_fetches_nothing(tiny: dict[str, Any]) -> None:
    page = leaderboard_page(tiny, DOCUMENT)
    assert set(re.findall(r'(?:src|href)\s*=\s*"([^"]*)"', page)) == {DOCUMENT}
    assert not re.findall(r"@import|url\(|https?://", page)
    assert page.count("<script>") == 1


def test_words_of_strangers_are_text(tiny: dict[str, Any]) -> None:
    hostile = copy.deepcopy(tiny)
    evil = "</td><script>alert(1)</script>\"'"
    row = hostile["rows"][0]
    row["summary"] = row["method"] = row["label"] = row["entries"][0]["encoder"] = evil
    row["entries"][0]["settings"] = {evil: evil}
    row["entries"][0]["revisions"] = [evil]
    hostile["scenarios"][0]["description"] = evil
    page = leaderboard_page(hostile, DOCUMENT)
    assert "alert(1)" in page
    assert page.count("<script>") == 1


def test_the_same_results_give_the_same_page(results: Path, tiny: dict[str, Any]) -> None:
    assert leaderboard_page(leaderboard([str(results)]), DOCUMENT) == leaderboard_page(tiny, DOCUMENT)


def test_a_row_that_was_sent_joins(results: Path, tmp_path: Path) -> None:
    other = run_photometer(tmp_path, ("photometer:signed",), (0,))
    (tmp_path / "row.zip").write_bytes(pack_row([str(other)]).content)
    joined = leaderboard([str(results), str(tmp_path / "row.zip")])
    assert [row["method"] for row in joined["rows"]] == ["photometer", "photometer:signed"]


def test_what_contradicts_its_scores_is_not_shown(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results, tmp_path / "results")
    path = next((tmp_path / "results").rglob("result.json"))
    document = json.loads(path.read_text())
    document["auroc"][-1][0] = 0.125
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"contradicts its own scores \(.*seed-0\); dinosaur bench verify names"):
        leaderboard([str(tmp_path / "results")])


def test_what_ran_another_schedule_is_a_row_of_its_own_and_bears_its_name_where_it_ran_it() -> None:
    document = leaderboard([str(ROOT / "results" / "bench" / each) for each in ("mvtec-ad", "mvtec-ad-bottle")])
    labels = {
        entry["scenario"]: row["label"]
        for row in document["rows"]
        for entry in row["entries"]
        if row["method"] == "efficientad:original"
    }
    assert labels == {"mvtec-ad": "efficientad:original-30ep", "mvtec-ad-bottle": "efficientad:original-20000steps"}


def test_rows_whose_settings_were_chosen_on_their_images_say_so(stored: dict[str, Any]) -> None:
    chosen = {row["label"]: row["chosen_on"] for row in stored["rows"] if row["chosen_on"]}
    assert chosen == {"patchcore:tuned": ["mvtec-loco"], "dinosaur": ["mvtec-loco"]}
    sentence = "Settings were chosen on these test images, so the rows are optimistic there: patchcore:tuned, dinosaur"
    assert sentence in leaderboard_page(stored, DOCUMENT)


def test_a_long_name_is_cut_in_the_chart_and_whole_in_its_title(stored: dict[str, Any]) -> None:
    long = copy.deepcopy(stored)
    long["rows"][0]["label"] = name = "a" * 60
    page = leaderboard_page(long, DOCUMENT)
    assert f">{'a' * 39}…<" in page
    assert f"<title>{name}: " in page
