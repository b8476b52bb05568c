"""The five lines that a profile prints first."""

from __future__ import annotations

import pytest
from profile_helpers import made_up_method, made_up_profile

from dinosaur_ad.encoders import providers
from dinosaur_ad.profile.summary import summary

FAILED = {"name": "iuf", "status": "failed", "reason": "its process was killed by SIGKILL", "notes": []}


def lines(*methods: dict[str, object], **options: object) -> list[str]:
    profile = made_up_profile(*methods)
    profile["settings"]["encoder_options"] = options
    return summary(profile)


def test_one_method_is_five_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "openvino_capabilities", lambda: frozenset())
    made = {"encoder": "dinov2s-focus", "provider": "onnx-cpu", "precision": "float32", "threads": 2}
    found = lines(made_up_method(made_with=made))
    assert found[:4] == [
        "one image in 50 ms (20 a second): encode 44, score 2, read 2, map 1",
        "learning 443 images takes 30 s",
        "memory 268 MB inspecting, 537 MB learning; first result 1.2 s after the start",
        "encoder dinov2s-focus on onnx-cpu in float32, 2 threads",
    ]
    assert found[4].startswith("probably faster here: --provider auto (openvino")


def test_no_hint_where_a_provider_was_named() -> None:
    assert len(lines(made_up_method(), provider="onnx-cpu")) == 4


def test_a_fallback_is_named() -> None:
    made = {"encoder": "tiny", "provider": "onnx-cpu", "precision": "float32", "fallback": "no cuda here"}
    assert "(instead of what was asked for: no cuda here)" in lines(made_up_method(made_with=made))[3]


def test_several_methods_have_their_name_before_every_line() -> None:
    found = lines(made_up_method(), made_up_method("patchcore", ms=7.25), FAILED)
    assert [line.partition(":")[0] for line in found] == ["dinosaur"] * 2 + ["patchcore"] * 2 + ["iuf"]
    assert "one image in 7.2 ms (138 a second)" in found[2]
    assert found[4] == "iuf: failed: its process was killed by SIGKILL"


def test_learning_that_was_skipped_says_why() -> None:
    learning = {"images": 0, "epochs": None, "seconds": None, "skipped": "it needs 10 GiB", "parts": {}}
    assert "learning was not measured: it needs 10 GiB" in lines(made_up_method(learning=learning))
