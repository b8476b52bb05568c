"""Bad usage: one line that says what is wrong, what was perhaps meant and where the help is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_helpers import assert_refused

from dinosaur_ad.cli import _console, main
from dinosaur_ad.cli._parser import share

Capture = pytest.CaptureFixture[str]
COMMANDS = Path(__file__).parents[2] / "docs" / "commands.md"


def usage_error(capsys: Capture, *argv: str) -> str:
    with pytest.raises(SystemExit) as exit_:
        main(list(argv))
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["inspct", "x"], "dinosaur: there is no verb 'inspct', did you mean inspect? See: dinosaur --help"),
        (["bench", "reprt"], "dinosaur bench: there is no verb 'reprt', did you mean report? See: dinosaur bench"),
        (["weights", "lst"], "there is no verb 'lst', did you mean list?"),
        (
            ["fly"],
            "there is no verb 'fly'; choose from: learn, update, forget, undo, redo, rename, recalibrate, defect, "
            "check, tasks, inspect, ",
        ),
        (["inspect", "x", "--stor", "s"], "there is no option --stor, did you mean --store?"),
        (["inspect", "x", "--store", "s", "--false-alarm", "1%"], "did you mean --false-alarms?"),
        (["inspect", "x", "--store", "s", "--false-alarm=1%"], "did you mean --false-alarms?"),
        (["--versio"], "did you mean --version?"),
        (["tasks", "--store", "s", "--nothing-like-it"], "there is no option --nothing-like-it; see: dinosaur tasks"),
        (["undo", "a", "--store", "s", "x"], "it is not clear what 'x' should mean; see: dinosaur undo --help"),
        (
            ["export", "cap", "--out", "o"],
            "what 'cap' should mean; a product is named by --task 'cap'; see: dinosaur export",
        ),
        (["inspect", "x", "--store", "s", "--engine", "spark"], "--engine cannot be 'spark'; choose from: local, ray"),
    ],
)
def test_what_was_perhaps_meant(capsys: Capture, argv: list[str], sentence: str) -> None:
    assert sentence in usage_error(capsys, *argv)


@pytest.mark.parametrize(
    "argv",
    [["v" * 5000], ["tasks", "--" + "o" * 5000], ["inspect", "x", "--store", "s", "--seed", "9" * 5000], ["s" * 5000]],
)
def test_a_long_value_is_not_repeated_whole(capsys: Capture, argv: list[str]) -> None:
    assert len(usage_error(capsys, *argv)) < 700


@pytest.mark.parametrize("text", ["0.05", "5%", "5 %", " 5.0% ", ".05", "5e-2"])
def test_a_share_may_be_written_in_percent(text: str) -> None:
    assert share(text) == pytest.approx(0.05)


def test_shares_do_what_they_say(capsys: Capture, store: Path, normals: Path) -> None:
    for text in ("5%", "5 %", "0.05"):
        argv = ["inspect", str(normals / "001.png"), "--store", str(store), "--json", "--false-alarms", text]
        assert main(argv) == 0
        assert '"false_alarms": 0.05' in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    ["1e-300", "0", "1", "nan", "inf", "-0.1", "51%", "0.9", "five", "5%%", "%", "5% of", "0,05", "", "9" * 5000],
)
@pytest.mark.parametrize("verb", ["inspect", "export"])
def test_a_share_that_cannot_be_meant_is_one_sentence(
    capsys: Capture, store: Path, defect: Path, text: str, verb: str
) -> None:
    words = {"inspect": ["inspect", str(defect)], "export": ["export", "--out", "o"]}[verb]
    argv = [*words, "--store", str(store), f"--false-alarms={text}"]
    assert_refused(capsys, argv, "rate is a share such as 0.025 or 2.5%, from 0.000001 to 0.5, got '", store)


@pytest.mark.parametrize("text", ["0", "-1", "1025", "99999999999999999999", "many", "1.5", "9" * 5000])
def test_a_number_of_threads_that_no_machine_has_is_refused(
    capsys: Capture, store: Path, defect: Path, text: str
) -> None:
    argv = ["inspect", str(defect), "--store", str(store), f"--threads={text}"]
    assert_refused(capsys, argv, "The number of threads must be at least 1 and at most 1024, got '", store)


# --- exit codes ---


def test_the_page_about_the_commands_has_the_exit_codes_of_the_help(capsys: Capture) -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", COMMANDS.read_text(), flags=re.M)
    assert {int(code): meaning for code, meaning in rows} == _console.EXIT_CODES
    assert _console.PRECEDENCE in " ".join(COMMANDS.read_text().replace("`", "").split())
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    for code, meaning in _console.EXIT_CODES.items():
        assert f"  {code:<5}{meaning}\n" in out


def test_the_page_about_the_commands_has_all_of_them(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    verbs = re.findall(r"^    (\w+)  ", capsys.readouterr().out, flags=re.M)
    assert len(verbs) > 9
    for verb in verbs:
        assert f"`dinosaur {verb}" in COMMANDS.read_text(), verb
