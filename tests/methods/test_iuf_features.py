"""The published IUF, which reconstructs features: its stages, its constrained updates, its scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from iuf_helpers import LESSONS, TESTS, draw, step_of, taught, torch

from dinosaur_ad.methods import Lesson
from dinosaur_ad.methods.iuf import rules
from dinosaur_ad.methods.iuf.feature_learner import HISTORY, FeatureLearner, image_score, jittered
from dinosaur_ad.methods.iuf.iuf_config import FeatureIUFConfig
from dinosaur_ad.methods.iuf.iuf_networks import ObjectNetwork


def feature_learner(lessons: Sequence[Lesson] = LESSONS[:1], **settings: Any) -> FeatureLearner:
    learner = taught("iuf:original-resnet50", lessons, **settings).learner
    assert isinstance(learner, FeatureLearner)
    return learner


def test_jitter_grows_with_the_length_of_a_token() -> None:
    features = torch.ones(2, 500, 40) * torch.tensor([1.0, 5.0])[:, None, None]
    torch.manual_seed(0)
    noise = jittered(features, 20) - features
    for n, value in enumerate((1.0, 5.0)):
        assert noise[n].std().item() == pytest.approx(20 * value * math.sqrt(40) / 40, rel=0.02)
    assert torch.equal(jittered(features, 0.0), features)


def test_stages_differ_in_optimizer_and_loss() -> None:
    config = FeatureIUFConfig()
    base, later = config.schedule(0), config.schedule(1)
    assert (base.optimizer, base.rate, base.decay) == ("adamw", 1e-4, 1e-4)
    assert (later.optimizer, later.rate, later.decay) == ("sgd", 1.0, 0.0)
    learner = feature_learner(jitter=0.0, dropout=0.0)
    step = step_of(LESSONS[0].train[:4])
    for task, weight in ((0, 10.0), (1, 0.0)):
        learner.begin(task, LESSONS[0].train)
        loss = learner.loss(step)
        parts = learner.after_epoch(0)
        expected = parts["reconstruction"] + parts["discrimination"] + weight * parts["compression"]
        assert loss.item() == pytest.approx(expected, rel=1e-5)
        assert (parts["compression"] > 0) == (task == 0)


def test_the_published_compression_looks_at_the_epoch_so_far() -> None:
    learner = feature_learner(batch=4)
    learner.begin(0, LESSONS[0].train)
    rows = draw(1, 10, 8) * torch.tensor([9.0, 5, 1, 0.05, 0.04, 0.03, 0.02, 0.01])  # two layers: one is a middle one
    losses = [learner._compression(rows[:, 4 * n : 4 * n + 4], n).item() for n in range(3)]
    literal = [rules.share_of_small_singular_values(rows[0, :seen], 0.1 / 8).item() for seen in (4, 8, 10)]
    assert len({round(loss, 5) for loss in literal}) == 3
    assert losses == pytest.approx(literal, abs=1e-6)
    again = learner._compression(rows[:, :4], 0).item()  # the next epoch begins with none
    assert again == pytest.approx(literal[0], abs=1e-6)
    learner._compression(rows[:, :4], 1000)  # more than are kept: the oldest go
    assert learner.extra["history"].shape == (1, HISTORY, 8)


def test_the_published_compression_reaches_the_weights() -> None:
    learner = feature_learner()
    learner.begin(0, LESSONS[0].train)
    step = step_of(LESSONS[0].train[:4])
    _, _, middle = learner.module(step.images, learner._table_NLF[:4])
    rows = torch.stack([each.mean(1) for each in middle])
    share = rules.share_of_small_singular_values(rows[0], 0.4)
    assert 0 < share.item() < 1  # some count and some do not; all of them together are 1 whatever the weights
    share.backward()
    assert learner.module.reconstructor.encoder[0].mlp.down.weight.grad.abs().max() > 1e-6


def test_what_is_kept_is_the_gram_matrix_of_mean_outputs_over_all_tasks_and_no_hook_stays() -> None:
    learner = feature_learner()
    damped = learner.module.reconstructor.damped()
    assert set(learner.kept()) == set(damped)
    assert len(damped) == 4  # two layers, encoder and decoder
    assert all(not layer._forward_hooks for layer in damped.values())
    name = "reconstructor.encoder.1.mlp.down"
    learner.begin(0, LESSONS[0].train)
    outputs: list[Any] = []
    handle = damped[name].register_forward_hook(lambda _m, _i, out: outputs.append(out.detach().mean(1)))
    for row, photo in enumerate(LESSONS[0].train):
        learner.module.eval()(step_of([photo]).images, learner._table_NLF[row : row + 1])
    handle.remove()
    literal = sum(np.outer(out[0], out[0]) for out in outputs)
    np.testing.assert_allclose(learner.kept()[name], literal, rtol=1e-3, atol=1e-6)
    learner.end(LESSONS[0].train)
    np.testing.assert_allclose(learner.kept()[name], 2 * literal, rtol=1e-3, atol=1e-6)  # added, not replaced


def test_later_updates_are_limited_then_damped_then_mixed_with_the_old_weights() -> None:
    learner = feature_learner()
    learner.begin(1, LESSONS[1].train)
    step = step_of(LESSONS[1].train[:4])
    before = {name: value.clone() for name, value in learner.module.state_dict().items()}
    learner.loss(step).backward()
    norm = math.sqrt(sum(float(value.grad.square().sum()) for value in learner.module.parameters()))
    assert norm > 0.1
    raw = {name: value.grad.clone() * 0.1 / norm for name, value in learner.module.named_parameters()}
    learner.before_step(step)
    weights = torch.tensor([math.log(k + 1) / math.log(8) for k in range(8)], dtype=torch.float64)
    for name, value in learner.module.named_parameters():
        expected = raw[name]
        if ".mlp.down." in name and name.startswith("reconstructor."):
            vh = rules.directions_of_gram(learner.kept()[name.rsplit(".", 1)[0]])
            expected = (vh.T @ torch.diag(weights) @ vh @ expected.double()).float()
        np.testing.assert_allclose(value.grad, expected, rtol=1e-3, atol=1e-6, err_msg=name)
    with torch.no_grad():
        for value in learner.module.parameters():
            value += 1
    learner.after_step(step)
    for name, value in learner.module.named_parameters():
        np.testing.assert_allclose(value.detach(), 0.05 * before[name] + 0.95 * (before[name] + 1), atol=1e-5)


@pytest.mark.parametrize("attention", ["rows", "image"])
def test_rows_see_each_other_only_when_the_whole_image_attends(attention: str) -> None:
    config = FeatureIUFConfig(size=32, width=8, heads=2, layers=2, object_side=4, object_attention=attention)  # type: ignore[arg-type]
    network = ObjectNetwork(config).eval()
    images = draw(1, 3, 32, 32)
    changed = images.clone()
    changed[:, :, 24:] += 1
    one, other = (network(each)[1][-1][:, :, 0] for each in (images, changed))
    assert torch.equal(one, other) == (attention == "rows")


def test_image_scores_of_features_are_those_of_the_map_at_full_size() -> None:
    small = draw(2, 4, 4).abs()
    full = torch.nn.functional.interpolate(small[:, None], size=64, mode="bilinear", align_corners=True)[:, 0].numpy()
    np.testing.assert_allclose(image_score(small, "mean", 64), full.mean((1, 2)), rtol=1e-5)
    np.testing.assert_allclose(image_score(small, "std", 64), full.std((1, 2)), rtol=1e-4)
    windows = np.lib.stride_tricks.sliding_window_view(full, (16, 16), axis=(1, 2)).mean((3, 4))
    np.testing.assert_allclose(image_score(small, "max", 64), windows.max((1, 2)), rtol=1e-5)


def test_the_map_is_the_length_of_what_is_missing() -> None:
    method = taught("iuf:original-resnet50", LESSONS[:1])
    learner, photos = method.learner, TESTS[:2]
    assert isinstance(learner, FeatureLearner)
    step = step_of(photos)
    given = learner.backbone(step.pixels)
    with torch.no_grad():
        made = learner.module.eval()(step.images, given)[0]
    literal = np.sqrt(((made - given).numpy() ** 2).sum(2)).reshape(2, 4, 4)
    np.testing.assert_allclose(method.score(photos).maps, literal, rtol=1e-4)
