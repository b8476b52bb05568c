"""``--provider auto``: the fastest candidate that is right, whatever the others do, remembered for this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dinosaur_ad.encoders import auto, load_encoder
from dinosaur_ad.encoders.auto import choice_file, choose, sample_images
from dinosaur_ad.encoders.opening import Request
from dinosaur_ad.encoders.providers import UnavailableError
from dinosaur_ad.errors import EncoderError

REQUEST = Request("tiny-dinov2", (0, "final"), 70)
REFERENCE = ("onnx-cpu", "float32")
OTHER = ("openvino", "bfloat16")

# A candidate without an encoder: its tokens are pixels, times CHANGE; its seconds are SECONDS.
OBEDIENT = """
import json, sys, numpy as np
order = json.load(sys.stdin)
patches = np.load(order["images"])[:, :4, :4].astype(np.float32) + 1
patches[0, 0, 0] *= CHANGE
np.savez(order["tokens"], cls=patches[:, 0, 0], patches=patches)
print(json.dumps({"seconds": SECONDS}), flush=True)
"""
MISCHIEF = {
    "aborts": ("import os; os.abort()", "was ended by SIGABRT"),
    "exits": ("raise SystemExit(3)", "ended with exit code 3"),
    "babbles": ("print('illegal instruction', flush=True)", "its process gave no result"),
    "writes no tokens": ("print('{\"seconds\": 0.001}')", "its process gave no result"),
    "says why": ('print(\'{"error": "no such kernel"}\', flush=True)', "no such kernel"),
    "is not finite": (OBEDIENT.replace("CHANGE", "np.nan").replace("SECONDS", "0.001"), "not all finite"),
    "is another": (OBEDIENT.replace("CHANGE", "-1").replace("SECONDS", "0.001"), "cosine at least -1.00000"),
    "crashes later": (
        OBEDIENT.replace("CHANGE", "1").replace("SECONDS", "__import__('os').abort()"),
        "was ended by SIGABRT",
    ),
}


def obedient(seconds: float) -> str:
    return OBEDIENT.replace("CHANGE", "1").replace("SECONDS", str(seconds))


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let scripts play the candidates; returns the list of those that were started."""

    def start(scripts: dict[tuple[str, str], str]) -> list[tuple[str, str]]:
        started: list[tuple[str, str]] = []
        here: dict[str, tuple[str, ...]] = {}
        for provider, precision in scripts:
            here[provider] = (*here.get(provider, ()), precision)

        def command(order: dict[str, Any]) -> list[str]:
            way = (order["provider"], order["precision"])
            started.append(way)
            return [sys.executable, "-c", scripts[way]]

        monkeypatch.setattr(auto, "available", lambda: here)
        monkeypatch.setattr(auto, "command", command)
        return started

    return start


def test_the_fastest_is_chosen_remembered_and_not_measured_again(play: Any, capsys: pytest.CaptureFixture[str]) -> None:
    started = play({REFERENCE: obedient(0.05), OTHER: obedient(0.02), ("openvino", "float32"): obedient(0.04)})
    first = choose(REQUEST)
    assert (first.provider, first.precision) == OTHER
    assert "openvino in bfloat16 takes 20.0 ms an image" in first.sentence
    assert "onnx-cpu float32 50.0" in first.sentence
    assert "once" in capsys.readouterr().err
    assert len(started) == 3
    again = choose(REQUEST)
    assert (again.provider, again.precision) == OTHER
    assert "(measured 2" in again.sentence
    assert len(started) == 3
    (kept,) = json.loads(choice_file().read_text())["choices"].values()
    assert kept["measured"]["onnx-cpu float32"]["seconds"] == 0.05
    assert kept["facts"]["encoder"] == load_encoder("tiny-dinov2", layers=(0, "final"), size=70).fingerprint


@pytest.mark.parametrize("change", ["threads", "layers", "version", "cpu", "candidates"])
def test_what_could_change_the_choice_is_measured_anew(change: str, play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # all cores, until one is asked for
    scripts = {REFERENCE: obedient(0.05), OTHER: obedient(0.02)}
    started, request = play(scripts), REQUEST
    choose(request)
    if change == "threads":
        request = Request("tiny-dinov2", (0, "final"), 70, threads=1)
    elif change == "layers":
        request = Request("tiny-dinov2", (0,), 70)
    elif change == "version":
        monkeypatch.setattr(auto, "version", lambda _: "99")
    elif change == "cpu":
        monkeypatch.setattr(auto, "cpu_model", lambda: "another box with the same home")
    else:
        started = play(scripts | {("cuda", "float32"): obedient(0.001)})
    before = len(started)
    choose(request)
    assert len(started) > before
    assert len(json.loads(choice_file().read_text())["choices"]) == 2


@pytest.mark.parametrize("mischief", MISCHIEF)
def test_a_candidate_that_fails_is_passed_over_with_a_sentence(
    mischief: str, play: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    script, reason = MISCHIEF[mischief]
    play({REFERENCE: obedient(0.05), OTHER: script})
    choice = choose(REQUEST)
    assert (choice.provider, choice.precision) == REFERENCE
    (sentence,) = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert sentence.startswith("auto: left out openvino bfloat16: ")
    assert reason in sentence
    assert sentence.endswith(".")


def test_a_candidate_that_hangs_is_ended(
    play: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(auto, "TRIAL_SECONDS", 3.0)
    play({REFERENCE: obedient(0.05), OTHER: "import time; time.sleep(600)"})
    assert choose(REQUEST).provider == "onnx-cpu"
    assert "its process did not end within 3 seconds" in capsys.readouterr().err


def test_a_gain_that_may_be_noise_does_not_cost_exactness(play: Any) -> None:
    play({REFERENCE: obedient(0.0500), OTHER: obedient(0.0495)})
    choice = choose(REQUEST)
    assert (choice.provider, choice.precision) == REFERENCE


def test_int8_is_chosen_only_when_asked_for(play: Any) -> None:
    play({REFERENCE: obedient(0.05), ("onnx-cpu", "int8"): obedient(0.01)})
    assert choose(REQUEST).precision == "float32"
    assert choose(REQUEST, "int8").precision == "int8"


def test_the_callers_images_are_compared_too(play: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A candidate may be right on made-up pictures and wrong on theirs: here, on the fifth image."""
    wrong = obedient(0.001).replace("patches[0, 0, 0]", "patches[4:, 0, 0]").replace("*= 1", "*= -1")
    play({REFERENCE: obedient(0.05), OTHER: wrong})
    own = [np.random.default_rng(0).integers(0, 256, (90, 60, 3), np.uint8)]
    assert choose(REQUEST, images=own).provider == "onnx-cpu"
    assert "over 5 images" in capsys.readouterr().err


def test_when_no_candidate_is_right_there_is_a_fallback_or_a_refusal(
    play: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    play({REFERENCE: obedient(0.05), ("openvino", "int8"): MISCHIEF["aborts"][0]})
    with pytest.raises(UnavailableError, match="no candidate passed"):
        choose(REQUEST, "int8")
    options: dict[str, Any] = {"layers": (0, "final"), "size": 70, "provider": "auto", "precision": "int8"}
    with pytest.raises(EncoderError, match="auto cannot run in int8 here"):
        load_encoder("tiny-dinov2", **options, strict=True)
    encoder = load_encoder("tiny-dinov2", **options)
    assert (encoder.provider, encoder.precision) == REFERENCE
    assert "auto cannot run in int8 here" in str(encoder.fallback)
    assert not choice_file().exists()


def test_a_precision_that_nothing_offers_is_not_measured(play: Any) -> None:
    started = play({REFERENCE: obedient(0.05)})
    with pytest.raises(UnavailableError, match="no provider here offers it"):
        choose(REQUEST, "float16")
    assert started == []


def test_with_nothing_to_choose_from_nothing_is_measured(play: Any) -> None:
    started = play({REFERENCE: obedient(0.05)})
    assert "because nothing else is here" in choose(REQUEST).sentence
    assert started == []


def test_a_reference_that_fails_is_an_error(play: Any) -> None:
    play({REFERENCE: MISCHIEF["exits"][0], OTHER: obedient(0.02)})
    with pytest.raises(EncoderError, match="onnx-cpu float32 itself does not run here"):
        choose(REQUEST)


@pytest.mark.parametrize("content", ["{", "[]", '{"choices": 3}', '{"choices": {"KEY": {"provider": 1}}}'])
def test_a_damaged_file_of_choices_is_replaced(content: str, play: Any) -> None:
    started = play({REFERENCE: obedient(0.05), OTHER: obedient(0.02)})
    choose(REQUEST)
    (key,) = json.loads(choice_file().read_text())["choices"]
    choice_file().write_text(content.replace("KEY", key))
    assert choose(REQUEST).provider == "openvino"
    assert len(started) == 4
    assert key in json.loads(choice_file().read_text())["choices"]


def test_a_choice_that_cannot_be_kept_is_still_made(play: Any, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play({REFERENCE: obedient(0.05), OTHER: obedient(0.02)})
    home.write_text("a file where the folder should be")
    assert choose(REQUEST).provider == "openvino"
    assert "the next start measures again" in capsys.readouterr().err


def test_the_real_thing_in_real_processes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(auto, "available", lambda: {"onnx-cpu": ("float32", "int8")})
    encoder = load_encoder(
        "tiny-dinov2", layers=(0, "final"), size=70, provider="auto", precision="int8", threads=1, strict=True
    )
    assert (encoder.provider, encoder.precision, encoder.fallback) == ("onnx-cpu", "int8", None)
    err = capsys.readouterr().err.splitlines()
    assert err[0] == "auto: measuring onnx-cpu int8 on this machine, once."
    assert err[1].startswith("auto: onnx-cpu in int8 takes ")


def test_the_pictures_are_the_same_everywhere_and_differ() -> None:
    pictures = sample_images(70)
    np.testing.assert_array_equal(pictures, sample_images(70))
    assert len({picture.tobytes() for picture in pictures}) == 4
    assert pictures.std(axis=(1, 2, 3)).max() > 40
