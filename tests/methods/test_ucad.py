"""UCAD as a whole: its sizes against the paper's, that it learns, and what it tells and refuses."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from plates import PLATES, SPOTTED, interrupted
from ucad_helpers import LESSONS, SCENARIO, TESTS, taught, tiny, torch

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Workbench, get_method
from dinosaur_ad.methods.ucad import UCAD
from dinosaur_ad.methods.ucad import contrastive_loss as losses

# --- sizes ---


def test_parameters_and_storage_are_the_papers() -> None:
    method = get_method("ucad").build(Workbench())
    assert isinstance(method, UCAD)
    counted = method.parameters()
    assert (counted.total, counted.trainable) == (36_034_560, 3_840)
    prompt, width = math.prod(method._features.prompt_shape), method._features.channels
    stored = 4 * (prompt + width * (method.config.keys + method.config.knowledge))
    assert stored == 1_219_584  # printed as 1.2 MB


def test_what_a_task_takes_is_its_keys_knowledge_and_prompt() -> None:
    method = taught()
    assert method.storage_bytes() == 2 * 4 * (12 * 16 + 12 * 16 + 5 * 16)


def test_the_original_has_its_own_numbers() -> None:
    config = get_method("ucad:original").config
    assert (config.epochs, config.batch, config.rate, config.decay, config.clip) == (25, 8, 5e-4, 0.0, 1.0)  # type: ignore[attr-defined]
    method = get_method("ucad:original").build(Workbench())
    assert isinstance(method, UCAD)
    assert (method._features.channels, method._features.prompt_shape) == (1024, (6, 2, 768))


# --- learning ---


@pytest.mark.parametrize("name", ["ucad", "ucad:as-published", "ucad:original"])
def test_the_loss_falls_and_defects_are_found_on_one_static_task(name: str) -> None:
    method = tiny(name, epochs=20, rate=0.03)
    method.learn(PLATES)
    record = method.info()["tasks"][0]
    assert record["last_loss"] < record["first_loss"] - 0.2
    assert record["losses_not_finite"] == 0
    assert auroc(method.score(SPOTTED).image, [0, 1] * 8) > 0.9


@pytest.mark.parametrize(("name", "loss"), [("ucad", "contrast"), ("ucad:original", "exponential_contrast")])
def test_a_training_stopped_in_the_middle_of_an_epoch_ends_the_same(name: str, loss: str, tmp_path: Path) -> None:
    whole, resumed = interrupted(name, {"epochs": 3, "batch": 4}, tmp_path, losses, loss)
    np.testing.assert_array_equal(resumed.image, whole.image)
    np.testing.assert_array_equal(resumed.thresholds, whole.thresholds)


def test_two_products_are_told_apart() -> None:
    routes = taught(size=64).score(TESTS).routes
    assert routes is not None
    truth = [task.name for task in SCENARIO.tasks for _ in task.test]
    assert np.mean([one == other for one, other in zip(routes, truth, strict=True)]) > 0.9


def test_what_it_is_can_be_written_as_json() -> None:
    info = taught().info()
    json.dumps(info, allow_nan=False)
    assert "in the place of Segment-Anything" in info["regions"]
    assert "substitute for ViT-B/16" in info["description"]


def test_memories_of_other_settings_are_refused(tmp_path: Path) -> None:
    method = tiny()
    method.learn(LESSONS[0])
    method.save(tmp_path)
    with pytest.raises(InputError, match="was made with"):
        tiny(blocks=3).load(tmp_path)


@pytest.mark.parametrize("name", ["ucad:no-prompt", "ucad:original-no-prompt"])
def test_without_a_prompt_nothing_is_trained_and_the_plain_features_are_kept(name: str) -> None:
    method = taught(name)
    assert method.parameters().trainable == 0
    assert "nothing is trained" in method.info()["prompt"]
    assert method.info()["regions"] == "none"
    assert all("loss" not in record for record in method.info()["tasks"])
    photos = LESSONS[0].train
    with torch.inference_mode():
        plain_PC = method._features(method._images(photos)).flatten(0, 1)
    for memory in (method._tasks[0].keys_KC, method._tasks[0].knowledge.bank_MC):
        apart_KP = torch.cdist(memory, plain_PC, compute_mode="donot_use_mm_for_euclid_dist")
        assert apart_KP.amin(1).max() < 1e-4  # every vector kept is a feature of a training image


def test_the_ablation_differs_from_its_method_in_the_prompt_alone() -> None:
    for name in ("ucad", "ucad:original"):
        whole, plain = get_method(name).config, get_method(f"ucad:{'original-' if ':' in name else ''}no-prompt").config
        assert dataclasses.replace(plain, prompt=whole.prompt) == whole  # type: ignore[attr-defined,call-arg]
