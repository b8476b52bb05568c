"""``bench verify`` on the row of a stranger: each way to be wrong is one sentence, and none is a traceback."""

from __future__ import annotations

import json
import random
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from row_helpers import CELL, declare, edit_arrays, edit_json, forge, raw, run_photometer, unpacked

from dinosaur_ad.bench import row_files
from dinosaur_ad.bench.published_data import collect, known_data
from dinosaur_ad.bench.results import find_results
from dinosaur_ad.bench.row_files import LARGEST_ARRAYS, LARGEST_TEXT, MANIFEST
from dinosaur_ad.bench.submitted_row import pack_row
from dinosaur_ad.bench.verify import Verified, verify
from dinosaur_ad.errors import InputError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return pack_row([str(run_photometer(tmp_path_factory.mktemp("row"), seeds=(0,)))]).content


@pytest.fixture
def row(good: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "row.zip"
    path.write_bytes(good)
    return path


@pytest.fixture
def files(row: Path) -> dict[str, bytes]:
    return unpacked(row)


def refusal(row: Path, content: bytes) -> str:
    """The one sentence that an archive is refused with."""
    row.write_bytes(content)
    found = verify([str(row)])
    assert not found.equal
    assert not found.rows
    (sentence,) = found.unreadable
    assert "\n" not in sentence
    assert str(row) in sentence
    return sentence


def faults(found: Verified) -> list[str]:
    return [fault for each in found.checked for fault in each.faults]


# --- the container ---


@pytest.mark.parametrize(
    "name",
    ["../result.json", "/etc/passwd", "results/../../x", "C:/x.json", "a\\b.json", "NUL", "results/con.json",
     "results/a.", "results/a ", "results//a", "results/a\n", "lpt1/x"],
)  # fmt: skip
def test_a_name_that_no_row_has_is_refused(name: str, row: Path, files: dict[str, bytes]) -> None:
    sentence = refusal(row, raw([*files.items(), (name, b"x")]))
    assert "no plain relative name" in sentence or "no name that every system can have" in sentence


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFCHR, stat.S_IFIFO])
def test_links_folders_and_devices_are_refused(kind: int, row: Path, files: dict[str, bytes]) -> None:
    entry = zipfile.ZipInfo("results/strange")
    entry.external_attr = (kind | 0o777) << 16
    assert "is no plain file" in refusal(row, raw([*files.items(), (entry, b"/etc/passwd")]))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", [MANIFEST, f"{CELL}/result.json", f"{CELL}/RESULT.json"])
def test_two_files_of_one_name_are_refused(name: str, row: Path, files: dict[str, bytes]) -> None:
    assert "is in it twice" in refusal(row, raw([*files.items(), (name, b"{}")]))


@pytest.mark.parametrize("size", [2**28, 2**32 - 2])
def test_a_huge_size_is_refused_before_it_is_unpacked(size: int, row: Path, good: bytes) -> None:
    assert "would unpack to more than" in refusal(row, declare(good, size))


def test_a_bomb_inside_an_array_file_is_refused(row: Path, files: dict[str, bytes]) -> None:
    def inflate(arrays: dict[str, Any]) -> None:
        arrays["0/maps"] = np.zeros(LARGEST_ARRAYS + 1, np.uint8)

    assert "its arrays would unpack to more than" in refusal(row, forge(edit_arrays(files, inflate)))


def test_endless_json_is_refused(row: Path, files: dict[str, bytes]) -> None:
    files[f"{CELL}/result.json"] += b" " * LARGEST_TEXT
    assert f"more than {LARGEST_TEXT} bytes" in refusal(row, forge(files))


def test_too_many_files_and_too_large_a_file_are_refused(
    row: Path, files: dict[str, bytes], good: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "MOST_FILES", 2)
    assert "it has 3 files, more than the 2" in refusal(row, good)
    monkeypatch.setattr(row_files, "LARGEST_ROW", 100)
    assert "longer than 100 bytes" in refusal(row, good)


def test_a_row_without_results_is_refused(row: Path, files: dict[str, bytes]) -> None:
    assert "it holds no results" in refusal(row, forge({MANIFEST: files[MANIFEST]}))


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04", b"PK\x05\x06" + b"\0" * 18])
def test_what_is_no_archive_is_refused(content: bytes, row: Path) -> None:
    assert "is no row of the benchmark" in refusal(row, content)


def test_a_hidden_flag_is_refused(row: Path, good: bytes) -> None:
    at = good.index(b"PK\x01\x02")
    assert "encrypted" in refusal(row, good[: at + 8] + b"\x01" + good[at + 9 :])


# --- the manifest ---


def test_a_changed_file_is_named(row: Path, files: dict[str, bytes]) -> None:
    changed = edit_arrays(files, lambda arrays: arrays["0/scores"].__iadd__(1))
    assert f"'{CELL}/arrays.npz' was changed" in refusal(row, raw(list(changed.items())))


@pytest.mark.parametrize("name", [MANIFEST, f"{CELL}/result.json", f"{CELL}/arrays.npz"])
def test_a_missing_file_is_named(name: str, row: Path, files: dict[str, bytes]) -> None:
    del files[name]
    assert "is missing" in refusal(row, raw(list(files.items())))


def test_a_file_beside_the_manifest_is_named(row: Path, files: dict[str, bytes]) -> None:
    assert "'readme.txt' is not in its manifest" in refusal(row, raw([*files.items(), ("readme.txt", b"")]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "it is of format 2, and this version of dinosaur-ad reads formats up to 1"),
        ({"format": "1"}, "format: a text stands where a whole number"),
        ({"kind": "a store"}, "of another kind"),
        ({"method": "../x"}, "no name of a method"),
        ({"exact": 1}, "exact: true or false was expected"),
        ({"revisions": "abc"}, "revisions: a text stands where a list"),
        ({"files": {}}, "is not in its manifest"),
        ({"files": {"../x": "0" * 64}}, "no plain relative name"),
        ({"files": {"x": "00"}}, "a hash in it is none"),
    ],
)
def test_a_manifest_that_is_none_is_refused(
    change: dict[str, Any], words: str, row: Path, files: dict[str, bytes]
) -> None:
    files[MANIFEST] = json.dumps(json.loads(files[MANIFEST]) | change).encode()
    assert words in refusal(row, raw(list(files.items())))


# --- what is in it, with hashes that fit ---


def test_a_result_of_another_schema_is_one_sentence(row: Path, files: dict[str, bytes]) -> None:
    row.write_bytes(forge(edit_json(files, lambda document: document.update(format=2))))
    found = verify([str(row)])
    assert not found.equal
    (sentence,) = found.unreadable
    assert "was written in format 2 by another version" in sentence
    assert not any("belongs to none" in fault for fault in faults(found))  # one thing wrong is said once


def test_a_result_that_is_no_json_says_so_in_plain_words(row: Path, files: dict[str, bytes]) -> None:
    for content in (b"{nope", b"\xff\xfe\x00"):
        row.write_bytes(forge({**files, f"{CELL}/result.json": content}))
        (sentence,) = verify([str(row)]).unreadable
        assert "it is no JSON" in sentence
        assert "Expecting" not in sentence


def test_changed_scores_are_found_though_the_hashes_fit(row: Path, files: dict[str, bytes]) -> None:
    def better(arrays: dict[str, Any]) -> None:
        arrays["0/scores"][:] = arrays["0/labels"]
        arrays["0/history"][-1] = arrays["0/labels"]

    row.write_bytes(forge(edit_arrays(files, better)))
    found = verify([str(row)])
    assert any("image AUROC" in entry.what for each in found.cells for entry in each.differences)


def test_changed_labels_and_other_images_are_found(row: Path, files: dict[str, bytes]) -> None:
    def relabel(arrays: dict[str, Any]) -> None:
        arrays["0/labels"][:] = arrays["0/labels"][::-1].copy()

    row.write_bytes(forge(edit_arrays(files, relabel)))
    assert any("the labels of fabric are not the published ones" in fault for fault in faults(verify([str(row)])))
    row.write_bytes(forge(edit_json(files, lambda document: document["tasks"][1].update(checksum="0" * 64))))
    assert "synthetic-tiny, seed 0: the images of gear are not the published ones" in faults(verify([str(row)]))


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"exact": False}, "its manifest says another 'exact' than its results"),
        ({"revisions": ["ffffffffffff"]}, "its manifest says another 'revisions'"),
        ({"package_sha256": []}, "its manifest says another 'package_sha256'"),
        ({"method": "dinosaur"}, "its manifest says another 'method'"),
    ],
)
def test_a_manifest_that_says_more_than_the_results_is_found(
    about: dict[str, Any], words: str, row: Path, files: dict[str, bytes]
) -> None:
    row.write_bytes(forge(files, **about))
    assert any(words in fault for fault in faults(verify([str(row)])))


def test_pickled_arrays_are_never_loaded(row: Path, files: dict[str, bytes], tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
            return Path.touch, (tmp_path / "exploded",)

    def arm(arrays: dict[str, Any]) -> None:
        arrays["0/scores"] = np.asarray([Bomb()], object)

    row.write_bytes(forge(edit_arrays(files, arm)))
    (sentence,) = verify([str(row)]).unreadable
    assert "arrays.npz cannot be read" in sentence
    assert not (tmp_path / "exploded").exists()


def test_one_bad_row_does_not_end_it(row: Path, good: bytes, tmp_path: Path) -> None:
    (tmp_path / "other.zip").write_bytes(b"no")
    found = verify([str(tmp_path / "other.zip"), str(row)])
    assert (len(found.unreadable), len(found.rows), len(found.cells)) == (1, 1, 1)


def test_a_row_is_only_read(row: Path) -> None:
    from dinosaur_ad.bench.places import open_place

    with pytest.raises(InputError, match="is only read"):
        open_place(row).write("x", b"")


@pytest.mark.parametrize("start", range(0, 120, 40))
def test_flipped_bytes_are_sentences_and_never_tracebacks(start: int, row: Path, good: bytes) -> None:
    refused = 0
    for seed in range(start, start + 40):
        dice, content = random.Random(seed), bytearray(good)
        for _ in range(dice.randint(1, 4)):
            content[dice.randrange(len(content))] = dice.randrange(256)
        row.write_bytes(content[: dice.choice([len(content), dice.randrange(len(content))])])
        found = verify([str(row)])
        refused += not found.equal
        assert not [line for line in (*found.unreadable, *faults(found)) if "\n" in line]
    assert refused > 30  # a date of a file may change


# --- published data ---


def test_the_known_data_is_that_of_the_stored_results() -> None:
    """What the package says must never contradict results/bench; scripts/published_data.py writes it anew."""
    finished, _ = find_results([str(ROOT / "results" / "bench")])
    for scenario, seeds in collect(finished).items():
        known = [known_data(scenario, int(seed) if seed.isdigit() else 0) for seed in seeds]
        assert any(known), f"nothing is known of {scenario}; run: python scripts/published_data.py"
        for tasks, stored in zip(known, seeds.values(), strict=True):
            assert {name: stored[name] for name in tasks if name in stored} == {
                name: data for name, data in tasks.items() if name in stored
            }


def test_nothing_is_known_of_other_seeds_and_folders() -> None:
    assert known_data("mtd-color", 12345) == {}
    assert known_data("folder:photos", 0) == {}
    assert known_data("mvtec-ad", 12345) == known_data("mvtec-ad", 0) != {}
