"""``dinosaur report``: one's own images as one HTML page."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import assert_refused, make_defect, tree_hash
from PIL import Image

from dinosaur_ad import Dinosaur
from dinosaur_ad.cli import main
from dinosaur_ad.inspection import Inspection, Rejected, WorstPatch
from dinosaur_ad.page import image_page as pages
from dinosaur_ad.page import image_results
from dinosaur_ad.page.image_results import ImageResults

Capture = pytest.CaptureFixture[str]


class Reader(HTMLParser):
    """The text of a page, and where its pictures come from."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.text = ""
        self.sources: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for key, value in attrs if key in {"src", "href", "srcset"}]

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def seen(score: float, verdict: str = "", path: str = "a.png", **fields: object) -> Inspection:
    """An inspection without an image; the threshold is 1."""
    given = {
        "task": "screw", "threshold": 1.0, "p_value": 0.1, "false_alarms": 0.025, "normal_level": 0.2,
        "worst": WorstPatch(0, 0, (0, 0, 10, 10), score, "", 0, 0), "asked": {}, "encoder": "tiny", "ms": {},
        "map": np.full((7, 7), score, np.float32), "image_size": (70, 70),
    } | fields  # fmt: skip
    verdict = verdict or ("anomalous" if score > 1 else "normal")
    return Inspection(path=path, score=score, verdict=verdict, **given)  # type: ignore[arg-type]


def test_the_page_counts_sorts_and_explains(capsys: Capture, tmp_path: Path, store: Path, normals: Path) -> None:
    images = tmp_path / "line" / "today"
    images.mkdir(parents=True)
    bad = make_defect(normals / "001.png", images / "bad.png")
    (images / "good.png").write_bytes((normals / "002.png").read_bytes())
    (images / "broken.png").write_bytes(b"no image")
    before = tree_hash(store)
    code = main(["report", str(images), "--store", str(store), "--out", str(tmp_path / "out" / "page.html")])
    out, err = capsys.readouterr()
    assert (code, out) == (3, f"{tmp_path / 'out' / 'page.html'}\n")
    assert "1 of 2 images is anomalous." in err
    assert tree_hash(store) == before
    markup = (tmp_path / "out" / "page.html").read_text()
    page = Reader(markup)
    assert page.sources
    assert all(source.startswith("data:image/") for source in page.sources)
    assert not re.search(r"https?:|url\(|@import|<script", markup)
    assert page.text.index("bad.png") < page.text.index("good.png")
    assert "good parts would look this odd" in page.text
    assert "broken.png' is not an image" in page.text
    assert re.search(r"encoder tiny-dinov2 .*preset tiny; seed 0", page.text)
    found = Dinosaur.load(store).inspect(bad)
    assert f"score {found.score:.3f}, threshold {found.threshold:.3f}" in page.text
    assert "nearest normal" in page.text


def test_known_good_and_bad_images_check_the_verdicts(
    capsys: Capture, tmp_path: Path, store: Path, normals: Path, defect: Path
) -> None:
    out = tmp_path / "page.html"
    bad = tmp_path / "bad"
    bad.mkdir()
    make_defect(normals / "003.png", bad / "hole.png")
    (bad / "looks-good.png").write_bytes((normals / "004.png").read_bytes())
    argv = ["report", str(defect), "--good", str(normals), "--bad", str(bad), "--store", str(store), "--out", str(out)]
    assert main(argv) == 0
    capsys.readouterr()
    text = Reader(out.read_text()).text
    assert "50.0 % defects caught" in text
    assert re.search(r"false alarms\s+good images called anomalous: \d of 24;", text)
    missed = text[text.index("Missed ") :]
    assert missed.index("looks-good.png") < missed.index("Worst first")
    assert "of 27 images" in text


def test_a_part_in_unusual_light_is_said_on_its_card(
    capsys: Capture, tmp_path: Path, store: Path, normals: Path
) -> None:
    images = tmp_path / "today"
    images.mkdir()
    (images / "usual.png").write_bytes((normals / "001.png").read_bytes())
    pixels = np.asarray(Image.open(normals / "002.png"))
    Image.fromarray((0.3 * pixels).astype(np.uint8)).save(images / "dark.png")
    assert main(["report", str(images), "--store", str(store), "--out", str(tmp_path / "page.html")]) in (0, 4)
    capsys.readouterr()
    text = Reader((tmp_path / "page.html").read_text()).text
    assert text.count("times darker than every normal image learned") == 1


def test_an_image_cannot_be_good_and_bad(capsys: Capture, tmp_path: Path, store: Path, normals: Path) -> None:
    argv = ["report", "--good", str(normals), "--bad", str(normals / "000.png"), "--store", str(store)]
    assert_refused(capsys, [*argv, "--out", str(tmp_path / "x.html")], "below both --good and --bad", store)


def test_no_images_are_a_sentence(capsys: Capture, tmp_path: Path, store: Path) -> None:
    out = str(tmp_path / "x.html")
    assert_refused(capsys, ["report", "--store", str(store), "--out", out], "No images were given", store)
    assert_refused(capsys, ["report", str(tmp_path / "no"), "--store", str(store), "--out", out], "no", store)


def test_only_an_earlier_report_is_replaced(capsys: Capture, tmp_path: Path, store: Path, defect: Path) -> None:
    out = tmp_path / "page.html"
    argv = ["report", str(defect), "--store", str(store), "--out"]
    assert main([*argv, str(out)]) == 0
    first = out.read_text()
    assert main([*argv, str(out)]) == 0
    assert len(out.read_text()) > 0.9 * len(first)
    out.write_text("<!DOCTYPE html><title>thesis</title>")
    assert_refused(capsys, [*argv, str(out)], "was not made by dinosaur report and is left alone", store)
    assert out.read_text().endswith("thesis</title>")
    assert_refused(capsys, [*argv, str(tmp_path)], "is a folder; give --out a file", store)
    assert_refused(capsys, [*argv, str(store / "page.html")], "lies in the store", store)
    assert_refused(capsys, [*argv, str(defect / "page.html")], "choose another --out", store)
    (tmp_path / "link.html").symlink_to(tmp_path / "nowhere.html")
    assert_refused(capsys, [*argv, str(tmp_path / "link.html")], "left alone", store)


@pytest.mark.skipif(sys.platform != "linux", reason="not every file system takes such names")
def test_foreign_names_cannot_become_markup_or_break_the_page(
    capsys: Capture, tmp_path: Path, store: Path, normals: Path
) -> None:
    folder = tmp_path / "<b onclick=x>"
    folder.mkdir()
    image = make_defect(normals / "001.png", folder / 'x"><img src=y onerror=z>.png')
    os.link(image, folder / os.fsdecode(b"\xff\x1b[2J.png"))
    out = tmp_path / "page.html"
    assert main(["report", str(folder), str(normals), "--store", str(store), "--out", str(out)]) == 3
    capsys.readouterr()
    markup = out.read_text()
    assert "<b onclick" not in markup
    assert "<img src=y" not in markup
    assert "\x1b" not in markup
    text = Reader(markup).text
    assert text.count("<img src=y onerror=z>.png") >= 2
    assert "\\x1b[2J.png' has a name that is not UTF-8" in text


def test_verdicts_that_are_no_judgement_are_told_apart_and_their_reason_is_shown(capsys: Capture) -> None:
    results = ImageResults()
    results.add(seen(0.5))
    results.add(seen(0.7, "not ready", "b.png", threshold=float("inf"), reason="Too few images; teach more."))
    results.add(seen(3.0, path="c.png", task="<i>", left_out=("nut",), fallback="cuda was asked for"))
    results.add(Rejected("d.png", "'d.png' is no image."))
    assert [results.count(verdict) for verdict in ("anomalous", "normal", "not ready")] == [1, 1, 1]
    assert [results.rows[index].path for index in results.shown().others] == ["c.png", "b.png", "a.png"]
    markup = pages.image_page(results, {"encoder": "<u>"})
    assert not re.search("<[iu]>", markup)
    text = Reader(markup).text
    assert "Too few images; teach more." in text
    assert "damaged task nut" in text
    assert "cuda was asked for" in text
    assert "The picture could not be read again" in text  # there are no such files


def test_what_chance_would_flag_is_counted_with_the_rate_of_each_task() -> None:
    results = ImageResults()
    for rate in (0.01, 0.25, 0.25, 0.25, 0.25):
        results.add(replace(seen(0.5), false_alarms=rate))
    text = Reader(pages.image_page(results, {})).text
    assert "The thresholds allow 1 to 25 % false alarms" in text
    assert "about 1 of them would be called anomalous by chance" in text


def test_a_changed_light_stands_on_the_page(
    capsys: Capture, tmp_path: Path, store: Path, normals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = sorted(normals.iterdir())[:12]
    lamp = [seen(9.0, path=str(each), level_ratio=1.6) for each in files]
    monkeypatch.setattr(Dinosaur, "stream", lambda *_, **__: iter(lamp))
    out = tmp_path / "page.html"
    assert main(["report", *map(str, files), "--out", str(out), "--store", str(store)]) == 0
    warning = "Warning: nearly all images of 'screw' differ from those learned all over"
    assert warning in Reader(out.read_text()).text
    assert warning in capsys.readouterr().err
    known = [word for each in files for word in ("--bad", str(each))]
    assert main(["report", *known, "--out", str(out), "--store", str(store)]) == 0
    assert warning not in Reader(out.read_text()).text  # told to be defects


def test_nothing_readable_still_makes_a_page() -> None:
    results = ImageResults()
    results.add(Rejected("d.png", "'d.png' is no image."))
    text = Reader(pages.image_page(results, {})).text
    assert "None of the images could be read." in text
    assert "'d.png' is no image." in text


def test_only_the_maps_of_shown_images_are_kept_and_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_results, "MOST_SHOWN", 5)
    monkeypatch.setattr(image_results, "MOST_WRONG", 2)
    rng = np.random.default_rng(0)
    scores = rng.uniform(0, 2, 500)
    results = ImageResults()
    for number, score in enumerate(scores):
        results.add(seen(float(score), path=f"{number}.png"), label=number % 3 if number % 3 < 2 else None)
        assert len(results.inspections) <= 4 * 9
    shown = results.shown()
    assert len(results.rows) == 500
    assert {index for group in shown for index in group} <= results.inspections.keys()
    good, bad = np.arange(500) % 3 == 0, np.arange(500) % 3 == 1
    order = np.argsort(-scores)
    assert shown.false_alarms == [at for at in order if good[at]][:2]
    assert shown.missed == [at for at in order[::-1] if bad[at]][:2]
    assert shown.others == [at for at in order if at not in shown.false_alarms][:5]
    assert results.alarms(1).count == int((scores[bad] > 1).sum())


def test_large_photographs_are_shrunk(capsys: Capture, tmp_path: Path, store: Path, defect: Path) -> None:
    large = tmp_path / "large.png"
    with Image.open(defect) as image:
        image.resize((3000, 3000)).save(large)
    out = tmp_path / "page.html"
    assert main(["report", str(large), "--store", str(store), "--task", "screw", "--out", str(out)]) == 0
    capsys.readouterr()
    widths = {int(width) for width in re.findall(r'<img [^>]*width="(\d+)"', out.read_text())}
    assert max(widths) <= 480
