"""The verb profile: what it prints and writes, and what it refuses before it works."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from profile_helpers import made_up_method, made_up_profile

from dinosaur_ad.cli import profile_command as verb
from dinosaur_ad.errors import DinosaurError
from dinosaur_ad.methods import list_methods
from dinosaur_ad.profile import profiling as profile
from dinosaur_ad.profile.document import read_profile, write_profile

TINY = [
    *("--set", "dinosaur.encoder=tiny-dinov2", "--set", "dinosaur.layers=0+1", "--set", "dinosaur.size=70"),
    *("--learn-images", "4", "--repeats", "1", "--runs", "2", "--warm-up", "1", "--threads", "1"),
]


def run(*argv: str | Path) -> int:
    """As ``dinosaur`` would, but errors are raised."""
    parser = argparse.ArgumentParser()
    verb.add_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args([str(each) for each in argv])
    code: int = arguments.run(arguments)
    return code


def test_a_profile_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, html = tmp_path / "new" / "box.json", tmp_path / "box.html"
    assert run("profile", "--device-name", "my box", "--out", out, "--html", html, *TINY) == 0
    printed, said = capsys.readouterr()
    speed, learning, memory, encoder, *hint = printed.splitlines()
    assert re.fullmatch(r"one image in [\d.]+ ms \([\d.]+ a second\).*", speed)
    assert re.fullmatch(r"learning 4 images takes [\d.]+ s", learning)
    assert re.fullmatch(r"memory \d+ MB inspecting, \d+ MB learning; first result [\d.]+ s after the start", memory)
    assert encoder == "encoder tiny-dinov2 on onnx-cpu in float32, 1 thread"
    assert len(hint) <= 1
    assert "inspecting, turn 1 of 1: dinosaur (1 of 1)" in said
    assert f"dinosaur profile compare {out}" in said
    document = read_profile(out)
    assert document["device_name"] == "my box"
    assert document["settings"]["encoder_options"] == {"threads": 1}
    assert "my box (measured)" in html.read_text()
    assert run("profile", "compare", out) == 0
    assert "my box (measured)" in capsys.readouterr().out


def test_tables_and_json_are_printed_on_demand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = made_up_profile(made_up_method(), device="my box")
    monkeypatch.setattr(profile.Profiler, "run", lambda self: measured)
    write_profile(tmp_path / "box.json", measured)
    assert run("profile", "compare", tmp_path / "box.json") == 0
    tables = capsys.readouterr().out
    assert run("profile", "--tables", *TINY) == 0
    assert capsys.readouterr().out == tables
    assert run("profile", "--json", *TINY) == 0
    assert json.loads(capsys.readouterr().out) == measured


def test_several_profiles_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, name, ms in zip(paths, ("here", "there"), (50.0, 80.0), strict=True):
        write_profile(path, made_up_profile(made_up_method(ms=ms), device=name))
    assert run("profile", "compare", *paths, "--html", tmp_path / "both.html") == 0
    printed = capsys.readouterr().out
    assert "here (measured)" in printed
    assert "there (measured)" in printed
    assert "there" in (tmp_path / "both.html").read_text()
    assert run("profile", "compare", *paths, "--latex") == 0
    assert capsys.readouterr().out.startswith(r"\begin{table}")


def test_all_is_one_of_each_that_can_be_deployed_and_the_papers_form() -> None:
    arguments = argparse.Namespace(methods=["all"], set=[])
    names = [choice.name for choice in verb._methods(arguments)]
    assert names == [*(name for name in list_methods() if name != "photometer"), "dinosaur:paper"]


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--methods", "all,dinosaur"], "all or names, not both"),
        (["--methods", "nothing"], "There is no method 'nothing'"),
        (["--methods", "dinosaur:swift"], "has no variant 'swift'"),
        (["--set", "dinosaur.colour=red"], "There is no setting 'dinosaur.colour'"),
        (["--learn-images", "1"], "--learn-images must be at least 2, got 1"),
        (["--repeats", "0"], "--repeats must be at least 1, got 0"),
        (["--runs", "0"], "--runs must be at least 1"),
        (["--threads", "0"], "threads must be at least 1"),
        (["--store", "no-such-store"], "There is no store 'no-such-store'"),
        (["--images", "no-such-folder"], "no-such-folder"),
        (["--device", "tpu"], "There is no device 'tpu'"),
        (["--out", "."], "'.' is a folder; give --out a file"),
        (["--html", __file__ + "/page.html"], "is a file"),
        (["compare", "no-such.json"], "The profile 'no-such.json' cannot be read"),
        (["compare", __file__], "is damaged or no JSON"),
    ],
)
def test_what_cannot_be_meant_is_refused(argv: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "run_child", lambda *given, **more: pytest.fail("it has begun to work"))
    with pytest.raises(DinosaurError) as refused:
        run("profile", *argv)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_interrupted_it_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*given: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(profile, "run_child", interrupted)
    out = tmp_path / "box.json"
    with pytest.raises(KeyboardInterrupt, match="measured so far is in"):
        run("profile", "--out", out, *TINY)
    assert json.loads(out.read_text())["complete"] is False
    assert [method["status"] for method in read_profile(out)["methods"]] == ["partial"]
    assert [path.name for path in tmp_path.iterdir()] == ["box.json"]


KILLED = """
import os, signal, sys
from dinosaur_ad.cli import main
from dinosaur_ad.profile import profiling as run
run.run_child = lambda *given, **more: os.kill(os.getpid(), signal.SIGTERM)
code = main(sys.argv[1:])
print("as before" if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else "changed")
sys.exit(code)
"""


def test_a_polite_kill_is_an_interruption(tmp_path: Path) -> None:
    """In a process of its own: others in this one, Ray for example, have their own idea of the signal."""
    command = [sys.executable, "-c", KILLED, "profile", "--out", str(tmp_path / "box.json"), *map(str, TINY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 130
    assert "measured so far is in" in done.stderr
    assert done.stdout.strip() == "as before"


def test_a_method_that_failed_shows_in_the_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing(job: dict[str, Any], *given: Any, **more: Any) -> dict[str, Any]:
        return {"flops_a_second": 1e9} if job["kind"] == "rate" else {"error": "it broke."}

    monkeypatch.setattr(profile, "run_child", failing)
    out = tmp_path / "box.json"
    assert run("profile", "--out", out, *TINY) == 2
    assert read_profile(out)["methods"][0]["reason"] == "it broke"
