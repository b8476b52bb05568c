"""IUF as a whole: its sizes against the paper's, that both networks learn, and what it keeps and refuses."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from iuf_helpers import LABELS, LESSONS, TESTS, taught, tiny, torch, waves

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.methods import Lesson, Workbench, get_method
from dinosaur_ad.methods.iuf import efficientnet
from dinosaur_ad.methods.iuf.iuf_config import PixelIUFConfig
from dinosaur_ad.methods.iuf.iuf_networks import PixelNetwork
from dinosaur_ad.methods.iuf.pixel_learner import PixelLearner
from dinosaur_ad.methods.training import Step

# --- sizes ---


@pytest.mark.parametrize(("tasks", "total"), [(15, 631_070_290), (10, 630_819_405), (5, 630_568_520)])
def test_the_papers_network_has_the_papers_parameters(tasks: int, total: int) -> None:
    config = PixelIUFConfig(max_tasks=tasks)
    assert PixelLearner(config, Workbench()).trainable() == total
    with torch.device("meta"):
        network = PixelNetwork(config)

    def count(part: str) -> int:
        return sum(value.numel() for name, value in network.named_parameters() if name.startswith(f"{part}."))

    assert [count(part) for part in ("encoder", "decoder", "discriminator")] == [261_824] * 3
    assert count("to_pixels") == 49_155
    assert count("head") == total - 3 * 261_824 - 49_155


def test_the_published_network_has_nine_million_on_seventeen_frozen() -> None:
    parameters = get_method("iuf:original").build(Workbench()).parameters()
    assert dataclasses.astuple(parameters) == (9_108_767 + 17_548_616, 9_108_767)
    with torch.device("meta"):
        model = efficientnet.build("efficientnet-b4").eval()
        maps = efficientnet.maps_of(model, torch.empty(1, 3, 224, 224))
    assert [tuple(each.shape[1:]) for each in maps] == [(24, 112, 112), (32, 56, 56), (56, 28, 28), (160, 14, 14)]


def test_what_is_pulled_needs_a_copy_of_encoder_and_decoder_only() -> None:
    learner = PixelLearner(PixelIUFConfig(), Workbench())
    with torch.device("meta"):
        learner._module = learner.build()
    assert sum(each.numel() for each in learner.constrained().values()) == 2 * 261_824 + 49_155


# --- the method ---


@pytest.mark.parametrize("name", ["iuf", "iuf:original", "iuf:original-resnet50"])
def test_it_learns_a_static_task_and_finds_what_is_broken(name: str) -> None:
    method = taught(name, [Lesson("waves", tuple(map(waves, range(16))))], epochs=12, rate=5e-3)
    (history,) = method.info()["training"]
    assert history["last_epoch"]["loss"] < 0.7 * history["first_epoch"]["loss"]
    assert history["last_epoch"]["reconstruction"] < 0.5 * history["first_epoch"]["reconstruction"]
    assert history["steps_skipped_not_finite"] == 0
    assert auroc(method.score(TESTS).image, LABELS) > 0.85


@pytest.mark.parametrize("name", ["iuf", "iuf:original"])
@pytest.mark.parametrize("task", [0, 1])
def test_stopped_in_the_middle_of_an_epoch_it_ends_in_the_same_scores(name: str, task: int, tmp_path: Path) -> None:
    expected = taught(name).score(TESTS)
    saved, scratch = tmp_path / "saved", tmp_path / "scratch"
    method = tiny(name, Workbench(scratch=scratch))
    if task:
        method.learn(LESSONS[0])
        saved.mkdir()
        method.save(saved)
    whole, seen = method.learner.loss, []

    def breaks(step: Step) -> Any:
        seen.append(step.index)
        if len(seen) == (4 if task else 5):  # in the second epoch, after its first step
            raise KeyboardInterrupt
        return whole(step)

    method.learner.loss = breaks  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        method.learn(LESSONS[task])
    heard: list[str] = []
    resumed = tiny(name, Workbench(scratch=scratch, say=heard.append))
    if task:
        resumed.load(saved)
    for lesson in LESSONS[task:]:
        resumed.learn(lesson)
    assert any("continuing after epoch 1 of 2" in line for line in heard)
    np.testing.assert_array_equal(resumed.score(TESTS).image, expected.image)
    np.testing.assert_array_equal(resumed.score(TESTS).thresholds, expected.thresholds)


@pytest.mark.parametrize("name", ["iuf", "iuf:original-resnet50"])
def test_a_single_image_is_a_task(name: str) -> None:
    method = taught(name, [Lesson("one", LESSONS[0].train[:1]), Lesson("two", LESSONS[1].train[:1])])
    assert np.isfinite(method.score(TESTS[:2]).image).all()


def test_the_threshold_is_a_percentile_of_the_task_learned_last() -> None:
    method = taught()
    own = method.score(LESSONS[1].train).image
    np.testing.assert_allclose(method.score(TESTS[:1]).thresholds, np.quantile(own, 0.975), rtol=1e-5)


def test_one_task_too_many_no_task_and_no_image_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"built for 1 tasks and 'other' is one more; .*iuf.max_tasks=2"):
        taught(max_tasks=1)
    with pytest.raises(InputError, match="'empty' has no training images"):
        tiny().learn(Lesson("empty", ()))
    with pytest.raises(InputError, match="no task yet"):
        tiny().score(TESTS)
    with pytest.raises(InputError, match="nothing to save"):
        tiny().save(tmp_path)


@pytest.mark.parametrize(
    ("name", "setting", "says"),
    [
        ("iuf", {"heads": 3}, "width must be a multiple of its heads"),
        ("iuf", {"patch": 60}, "size must be a multiple of its patch"),
        ("iuf", {"epochs": 0}, "epochs must be at least 1"),
        ("iuf", {"head_ratio": 0}, "head_ratio must be at least 1"),
        ("iuf:original", {"object_side": 60}, "size must be a multiple of its object_side"),
        ("iuf:original", {"width": 6}, "width must be a multiple of 4"),
    ],
)
def test_impossible_settings_are_refused(name: str, setting: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        tiny(name, **setting)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
@pytest.mark.parametrize("name", ["iuf", "iuf:original"])
def test_a_gpu_that_is_not_there_gets_a_sentence(name: str) -> None:
    with pytest.raises(EncoderError, match="torch sees no GPU here"):
        tiny(name, Workbench(device="cuda")).learn(LESSONS[0])


def test_a_network_of_other_settings_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no readable IUF"):
        tiny().load(tmp_path)
    taught(lessons=LESSONS[:1]).save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"iuf.safetensors", "iuf.json"}
    with pytest.raises(InputError, match=r"made with .*'width': 8.* not with .*'width': 16"):
        tiny(width=16).load(tmp_path)
    (tmp_path / "iuf.safetensors").write_bytes(b"short")
    with pytest.raises(InputError, match="no readable IUF"):
        tiny().load(tmp_path)


def test_info_tells_how_training_went_and_can_be_written_as_json() -> None:
    info = json.loads(json.dumps(taught().info()))
    assert [entry["task"] for entry in info["training"]] == ["waves", "other"]
    assert set(info["training"][0]["last_epoch"]) == {
        "loss", "reconstruction", "discrimination", "compression", "variety"
    }  # fmt: skip
    assert info["epochs_a_task"] == 2
    assert info["weights_sha256"] == ""


def test_storage_is_all_that_is_needed_to_go_on() -> None:
    method = taught(lessons=LESSONS[:1])
    assert method.storage_bytes() == 4 * method.parameters().trainable + 8 * 8 * 8  # and the directions, in float64
