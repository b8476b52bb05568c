"""The paper's IUF, which reconstructs pixels: its loss, its constrained updates, its scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from iuf_helpers import LESSONS, TESTS, step_of, taught, tiny, torch
from numpy.typing import NDArray

from dinosaur_ad.methods import get_method
from dinosaur_ad.methods.iuf import rules
from dinosaur_ad.methods.iuf.iuf_config import PixelIUFConfig
from dinosaur_ad.methods.iuf.pixel_learner import PixelLearner


def pixel_learner(**settings: Any) -> PixelLearner:
    learner = taught(lessons=LESSONS[:1], **settings).learner
    assert isinstance(learner, PixelLearner)
    return learner


def test_the_papers_loss_is_the_weighted_sum_of_its_parts() -> None:
    learner, step = pixel_learner(), step_of(LESSONS[0].train[:4])
    learner.begin(0, ())
    loss = learner.loss(step)
    made = learner.module(step.images, classify=True)
    logits, latent = made.logits.detach().numpy(), made.tokens.detach().mean(1).numpy()
    reconstruction = np.abs(step.images.numpy() - made.images.detach().numpy()).mean()
    discrimination = np.mean(np.log(np.exp(logits).sum(1)) - logits[:, 0])
    compression = np.linalg.svd(latent, compute_uv=False)[1:].sum()
    assert loss.item() == pytest.approx(reconstruction + 0.5 * discrimination + 8 * compression, rel=1e-4)
    parts = learner.after_epoch(0)
    assert parts["discrimination"] == pytest.approx(discrimination, rel=1e-4)
    assert parts["compression"] == pytest.approx(compression, rel=1e-3)


@pytest.mark.parametrize("normalise", [True, False])
def test_gradients_of_later_tasks_are_damped_and_pulled_back(normalise: bool) -> None:
    learner = pixel_learner(normalised=normalise)
    step, config = step_of(LESSONS[1].train[:4]), learner.config
    learner.begin(1, ())
    before = {name: value.detach().clone() for name, value in learner.module.named_parameters()}
    with torch.no_grad():
        for value in learner.module.parameters():
            value += 0.01
    learner.loss(step).backward()
    raw = {name: value.grad.clone() for name, value in learner.module.named_parameters() if value.grad is not None}
    learner.before_step(step)
    vh = learner.kept()["directions"].float()
    weights = torch.arange(1, 9).log() / (math.log(8) if normalise else 1)
    for name, value in learner.module.named_parameters():
        if name not in raw:
            assert name.startswith("decoder.patches")  # counted, never used
            continue
        expected = raw[name]
        if name.startswith(("encoder.", "decoder.", "to_pixels.")):
            if expected.shape[-1] == config.width:
                expected = ((expected @ vh.T) * weights) @ vh
            expected = expected + 0.5 * (value - before[name])
        np.testing.assert_allclose(value.grad, expected.detach(), rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_first_task_is_not_constrained() -> None:
    learner = tiny().learner
    learner.begin(0, ())
    step = step_of(LESSONS[0].train[:4])
    learner.loss(step).backward()
    raw = {name: value.grad.clone() for name, value in learner.module.named_parameters() if value.grad is not None}
    learner.before_step(step)
    for name, value in learner.module.named_parameters():
        if name in raw:
            np.testing.assert_array_equal(value.grad, raw[name])


def test_the_pull_keeps_the_weights_near_those_of_before() -> None:
    def moved(pull: float) -> float:
        learner = taught(lessons=LESSONS[:1], pull=pull).learner
        before = {name: value.detach().clone() for name, value in learner.constrained().items()}  # type: ignore[attr-defined]
        method = tiny(pull=pull)
        for lesson in LESSONS:
            method.learn(lesson)
        after = method.learner.constrained()  # type: ignore[attr-defined]
        return sum(float((after[name].detach() - value).square().sum()) for name, value in before.items()) ** 0.5

    assert moved(1e6) < 0.9 * moved(0.0)


def test_the_reconstruction_teaches_the_discriminator_nothing_but_needs_it() -> None:
    learner, images = pixel_learner(), step_of(LESSONS[0].train[:2]).images
    made = learner.module(images)
    made.images.abs().sum().backward()
    parts = {name.split(".")[0] for name, value in learner.module.named_parameters() if value.grad is not None}
    assert parts == {"encoder", "decoder", "to_pixels"}
    with torch.no_grad():
        learner.module.discriminator.blocks[0].mlp[2].bias += 1
        other = learner.module(images)
    assert (other.images - made.images).abs().max() > 1e-6


def test_directions_come_from_the_very_last_batch() -> None:
    learner = pixel_learner(batch=4)
    latent = learner.extra["latent"]
    assert latent[:2].abs().max() > 0  # ten images in fours: two are left for the last
    assert latent[2:].abs().max() == 0
    np.testing.assert_array_equal(learner.kept()["directions"], rules.directions_of_rows(latent))


def test_image_scores_of_pixels() -> None:
    def scores(kind: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        found = taught(lessons=LESSONS[:1], image_score=kind).score(TESTS[:3])
        assert found.maps is not None
        return found.image, found.maps

    patches = scores("max")[1].reshape(3, 4, 16, 4, 16).mean((2, 4))
    np.testing.assert_allclose(scores("max")[0], patches.max((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(scores("sum")[0], 3 * scores("sum")[1].sum((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(scores("mean")[0], scores("mean")[1].mean((1, 2)), rtol=1e-5)
    assert get_method("iuf:as-published").config == PixelIUFConfig(normalised=False, image_score="sum")
