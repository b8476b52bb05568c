"""Profiles as tables: measured figures and the paper's never mix, several machines stand side by side."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from profile_helpers import made_up_method, made_up_profile

from dinosaur_ad.bench.paper import paper
from dinosaur_ad.errors import InputError
from dinosaur_ad.profile.document import check_profile, not_measured, read_profile, write_profile
from dinosaur_ad.profile.profile_tables import efficiency_table, profile_page, profile_tables, to_text


def cells(profiles: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """The entries of the efficiency table by row and flat header."""
    table = efficiency_table(profiles)
    headers = [column.flat for column in table.columns]
    return {
        row[0].text: dict(zip(headers, (cell.text for cell in row), strict=True))
        for block in table.blocks
        for row in block.rows
    }


def test_the_papers_figures_are_the_papers_and_stand_apart() -> None:
    rows = cells([made_up_profile(made_up_method("dinosaur", 50.0), made_up_method("iuf", 70.0))])
    jetson, pi = paper().devices["jetson"], paper().devices["pi"]
    row = rows["dinosaur"]
    assert row["test box (measured) Inf. (ms)"] == "50.0 ± 1.0"
    assert row["test box (measured) FPS"] == "20.0"
    assert (
        row["Jetson Orin Nano (paper) Inf. (ms)"]
        == f"{jetson.latency['dinosaur'].ms} ± {jetson.latency['dinosaur'].std}"
    )
    assert row["Raspberry Pi 5 (paper) FPS"] == str(pi.latency["dinosaur"].fps)
    assert (row["Params (M)"], row["Params (M) paper"]) == ("22.0", "21.6")
    assert (row["Storage/Task (MiB)"], row["Storage/Task (MiB) paper"]) == ("8.0", "7.1")
    assert rows["iuf"]["Jetson Orin Nano (paper) Inf. (ms)"] == "OOM"
    assert rows["iuf"]["Storage/Task (MiB) paper"] == "–"


def test_rows_come_in_the_papers_order_and_the_fastest_is_bold() -> None:
    methods = [made_up_method("dinosaur", 50.0), made_up_method("mine", 45.0), made_up_method("dne", 90.0)]
    (block,) = efficiency_table([made_up_profile(*methods)]).blocks
    assert [row[0].text for row in block.rows] == ["dne", "dinosaur", "mine"]
    assert [[cell.text for cell in row if cell.bold] for row in block.rows] == [[], [], ["45.0 ± 1.0"]]


def test_what_has_no_numbers_says_why() -> None:
    killed = not_measured("iuf", "failed", "its process was killed by SIGKILL, most likely because memory ran out.")
    text = to_text([made_up_profile(made_up_method(), killed)])
    assert re.search(r"\| iuf .*\| failed", text)
    assert "iuf: its process was killed by SIGKILL, most likely because memory ran out.\n" in text


def test_notes_are_shown_with_their_method() -> None:
    noted = made_up_method("dne", notes=["random weights: speed only", "learning is 1 epoch, measured"])
    text = to_text([made_up_profile(noted)])
    assert "dne: random weights: speed only." in text
    assert "dne: learning is 1 epoch, measured." in text


def test_what_is_true_of_several_methods_is_said_once() -> None:
    random = "random weights: speed only"
    methods = [made_up_method(name, notes=[random]) for name in ("dne", "ucad")] + [made_up_method("dinosaur")]
    profile = made_up_profile(*methods)
    assert to_text([profile]).count(random) == 1
    assert "dne, ucad: random weights: speed only." in to_text([profile])
    table = efficiency_table([profile])
    (mark,) = [note.mark for note in table.notes if random in note.text]
    marks = {row[0].text: row[0].mark.split(",") for block in table.blocks for row in block.rows}
    assert {name for name, of in marks.items() if mark in of} == {"dne", "ucad"}


def test_one_table_can_be_asked_for() -> None:
    assert to_text([made_up_profile()], only="machine").startswith("## The machines")
    with pytest.raises(InputError, match=r"no table 'speed' in these profiles; those there are: efficiency, latency"):
        to_text([made_up_profile()], only="speed")


def test_the_other_tables_show_what_was_measured() -> None:
    tables = {table.key: table for table in profile_tables([made_up_profile()])}
    assert list(tables) == ["efficiency", "latency", "resources", "learning", "floor", "machine"]
    text = to_text([made_up_profile()])
    assert "Energy on test box: not measurable here: no counters." in text
    assert re.search(r"\| dinosaur \| 443 \| – \| 30\.00 \| 26\.00 \| 0\.50 \| 3\.50 \| 1\.7 \|", text)
    assert re.search(r"\| dinosaur \| 9\.00 \| 40\.0 \| 44\.0 \| 1\.10 \| float32 \|", text)
    assert "| throttling | not seen: the firmware says 0x0 |" in text
    assert "| load | 0.5 before, 1.5 after |" in text


def test_it_says_how_it_was_measured() -> None:
    text = to_text([made_up_profile(complete=False)])
    assert (
        "test box: 3 rounds over all methods, in random order and each in a new process; in a round 5 images to warm "
        "up and 40 timed; 443 images learned; images: drawn ones. It was interrupted: some methods are missing.\n"
        in text
    )


def test_learning_that_was_skipped_is_not_shown_as_fast() -> None:
    learning = made_up_method()["learning"] | {
        **{"images": 0, "seconds": None, "parts": {}, "coreset_share": None},
        "skipped": "learning needs about 10.4 GiB of memory",
    }
    text = to_text([made_up_profile(made_up_method("iuf", learning=learning))])
    assert re.search(r"\| iuf \| – \| – \| – \| – \|", text)
    assert "learning was skipped, because learning needs about 10.4 GiB of memory" in text


def test_several_machines_side_by_side() -> None:
    first = made_up_profile(made_up_method("dinosaur", 50.0), device="bench")
    second = made_up_profile(made_up_method("dinosaur", 300.0), made_up_method("dne", 80.0), device="Pi in the lab")
    rows = cells([first, second])
    assert rows["dinosaur"]["bench (measured) Inf. (ms)"] == "50.0 ± 1.0"
    assert rows["dinosaur"]["Pi in the lab (measured) Inf. (ms)"] == "300.0 ± 1.0"
    assert rows["dne"]["bench (measured) Inf. (ms)"] == "–"
    assert rows["dne"]["Pi in the lab (measured) FPS"] == "12.5"
    latency = next(table for table in profile_tables([first, second]) if table.key == "latency")
    assert [block.title for block in latency.blocks] == ["bench", "Pi in the lab"]


def test_machines_of_one_name_are_numbered() -> None:
    first, second = made_up_profile(made_up_method(ms=50.0)), made_up_profile(made_up_method(ms=25.0))
    row = cells([first, second])["dinosaur"]
    assert (row["test box (1) (measured) FPS"], row["test box (2) (measured) FPS"]) == ("20.0", "40.0")


def test_the_page_is_whole_and_escapes_names() -> None:
    html = profile_page([made_up_profile(device="<script>alert(1)</script>")])
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert not re.search(r"(?:src|href)=|@import|url\(", html)
    assert "Raspberry Pi 5 (paper)" in html


def test_latex_is_a_table_for_input() -> None:
    text = to_text([made_up_profile(device="box_1")], latex=True)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 6
    assert r"box\_1 (measured)" in text


# --- files ---


def test_a_profile_comes_back_as_it_was_written(tmp_path: Path) -> None:
    document = made_up_profile()
    write_profile(tmp_path / "new" / "a.json", document)
    assert read_profile(tmp_path / "new" / "a.json") == document


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is damaged or no JSON"),
        ("[1, 2]", "is no profile of dinosaur-ad"),
        ('{"format": "something else", "version": 1}', "is no profile of dinosaur-ad"),
        ('{"format": "dinosaur-profile", "version": 99}', "is a profile of version 99"),
        ('{"format": "dinosaur-profile", "version": 1}', "its 'machine' is missing"),
        (b"\xff\xfe\x00", "is damaged or no JSON"),
    ],
)
def test_anything_else_is_refused_in_one_sentence(tmp_path: Path, content: str | bytes, sentence: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as refused:
        read_profile(path)
    assert sentence in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_profile(tmp_path / "none.json")


def test_every_field_a_table_needs_is_checked() -> None:
    """Whatever is taken out of a profile: it is refused in words, or shown without; it never breaks the tables."""
    whole = made_up_profile(made_up_method(), not_measured("dne", "skipped", "no torch"))
    assert check_profile(whole) is None
    for place in _places(whole):
        document = copy.deepcopy(whole)
        *way, last = place
        target: Any = document
        for step in way:
            target = target[step]
        del target[last]
        if check_profile(document) is None:
            to_text([document])
            profile_page([json.loads(json.dumps(document))])


def _places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every key below."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = []
    for step, below in steps:
        found += [(*way, step)] if isinstance(value, dict) else []
        found += _places(below, (*way, step))
    return found
