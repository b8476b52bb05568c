"""IUF: its rules against their literal definitions, its sizes against the paper's, and that both networks learn."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dinosaur_ad.core.metrics import auroc
from dinosaur_ad.errors import EncoderError, InputError
from dinosaur_ad.methods import Lesson, Photo, Workbench, get_method
from dinosaur_ad.methods.iuf import IUF
from dinosaur_ad.methods.iuf.config import FeatureIUFConfig, PixelIUFConfig

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")

from safetensors.torch import save_file  # noqa: E402

from dinosaur_ad.methods.iuf import efficientnet, rules  # noqa: E402
from dinosaur_ad.methods.iuf.attention import Attention  # noqa: E402
from dinosaur_ad.methods.iuf.backbone import AlignedFeatures  # noqa: E402
from dinosaur_ad.methods.iuf.features import HISTORY, FeatureLearner, image_score, jittered  # noqa: E402
from dinosaur_ad.methods.iuf.learner import normalised  # noqa: E402
from dinosaur_ad.methods.iuf.pixels import PixelLearner, PixelNetwork  # noqa: E402
from dinosaur_ad.methods.iuf.transformer import ObjectNetwork  # noqa: E402
from dinosaur_ad.methods.parts.training import Step  # noqa: E402


def waves(number: int, seed: int = 0, tilt: float = 9.0, *, broken: bool = False) -> Photo:
    """The same pattern every time but for noise; a broken one is turned inside out in one place."""
    generator = np.random.default_rng([seed, number, broken])
    y, x = np.mgrid[:64, :64]
    image = 128 + 60 * (np.sin(x / 5) * np.cos(y / tilt))[:, :, None] + generator.normal(0, 6, (64, 64, 3))
    if broken:
        row, column = generator.integers(0, 44, 2)
        place = np.s_[row : row + 20, column : column + 20]
        image[place] = 255 - image[place] + generator.normal(0, 40, (20, 20, 1))
    pixels = image.clip(0, 255).astype(np.uint8)
    return Photo(f"waves-{tilt}-{seed}-{number}-{broken}", lambda: pixels)


LESSONS = [Lesson("waves", tuple(map(waves, range(10)))), Lesson("other", tuple(waves(n, tilt=3.0) for n in range(6)))]
TESTS = [waves(n, seed=1, broken=broken) for broken in (False, True) for n in range(12)]
LABELS = [0] * 12 + [1] * 12


def tiny(name: str = "iuf", workbench: Workbench | None = None, **settings: Any) -> IUF:
    method = get_method(name).tiny().with_settings(settings).build(workbench or Workbench())
    assert isinstance(method, IUF)
    return method


def taught(name: str = "iuf", lessons: Sequence[Lesson] = LESSONS, **settings: Any) -> IUF:
    method = tiny(name, **settings)
    for lesson in lessons:
        method.learn(lesson)
    return method


def step_of(photos: Sequence[Photo], index: int = 0, size: int = 64) -> Step:
    pixels = np.stack([photo.pixels() for photo in photos])
    images = normalised(pixels, torch.device("cpu"))
    return Step(images, pixels, list(photos), 0, index, torch.Generator().manual_seed(0))


def draw(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- the rules, literally ---


@pytest.mark.parametrize("normalise", [True, False])
def test_a_damped_gradient_is_its_parts_along_the_directions_each_weighted(normalise: bool) -> None:
    rows, gradient = draw(5, 6).numpy(), draw(3, 6, seed=1).numpy()
    vh = np.linalg.svd(rows, full_matrices=True)[2]
    literal = np.zeros_like(gradient)
    for k in range(6):
        weight = math.log(k + 1) / (math.log(6) if normalise else 1)
        for i in range(3):
            literal[i] += weight * (gradient[i] @ vh[k]) * vh[k]
    matrix = rules.damping_matrix(torch.from_numpy(vh), rules.damping_weights(6, normalised=normalise))
    np.testing.assert_allclose(torch.from_numpy(gradient) @ matrix, literal, atol=1e-5)
    np.testing.assert_allclose(matrix @ torch.from_numpy(gradient.T), literal.T, atol=1e-5)
    assert np.abs(matrix.numpy() @ vh[0]).max() < 1e-6  # nothing moves along the first direction
    np.testing.assert_allclose(matrix.numpy() @ vh[5], vh[5] * (1 if normalise else math.log(6)), atol=1e-5)


def test_the_published_weights_are_the_same_counted_from_zero() -> None:
    literal = [math.log(k + 1) / math.log(256) for k in range(256)]
    np.testing.assert_allclose(rules.damping_weights(256), literal, rtol=1e-5)


def test_directions_are_singular_vectors_most_important_first_from_rows_or_their_gram_matrix() -> None:
    rows = draw(9, 5) * torch.tensor([5.0, 4, 3, 2, 1])
    expected = np.linalg.svd(rows.double().numpy())[2]
    for found in (rules.directions_of_rows(rows), rules.directions_of_gram(rows.T @ rows)):
        np.testing.assert_allclose(np.abs((found.numpy() * expected).sum(1)), 1, atol=1e-6)
    few = rules.directions_of_rows(draw(2, 5))
    np.testing.assert_allclose(few @ few.T, np.eye(5), atol=1e-12)  # as many as channels, however few rows


def test_padding_rows_with_zeros_leaves_the_directions_of_the_rows() -> None:
    rows = draw(3, 5)
    padded = rules.directions_of_rows(torch.cat([rows, torch.zeros(4, 5)]))
    np.testing.assert_allclose(np.abs((padded[:3] * rules.directions_of_rows(rows)[:3]).sum(1).numpy()), 1, atol=1e-6)


def test_the_papers_compression_is_the_sum_beyond_the_first_and_its_gradient_the_rest_of_the_decomposition() -> None:
    rows = draw(4, 6).requires_grad_()
    loss = rules.tail_of_singular_values(rows, 1)
    u, s, vh = np.linalg.svd(rows.detach().numpy(), full_matrices=False)
    assert loss.item() == pytest.approx(s[1:].sum(), rel=1e-5)
    loss.backward()
    np.testing.assert_allclose(rows.grad, u[:, 1:] @ vh[1:], atol=1e-5)


def test_the_papers_compression_takes_constant_and_broken_rows() -> None:
    same = torch.ones(4, 6, requires_grad=True)
    rules.tail_of_singular_values(same, 1).backward()
    assert torch.isfinite(same.grad).all()
    assert rules.tail_of_singular_values(torch.full((2, 3), math.nan), 1) == 0  # the reconstruction tells of it


def test_the_published_compression_is_the_share_of_small_singular_values_and_has_a_gradient() -> None:
    rows = (draw(8, 6) * torch.tensor([9.0, 5, 2, 0.5, 0.2, 0.1])).requires_grad_()
    loss = rules.share_of_small_singular_values(rows, 0.05)
    s = np.linalg.svd(rows.detach().numpy(), compute_uv=False)
    shares = s / s.sum()
    assert 0 < (shares < 0.05).sum() < 6
    assert loss.item() == pytest.approx(shares[shares < 0.05].sum(), rel=1e-4)
    loss.backward()
    assert rows.grad.abs().max() > 0
    assert rules.share_of_small_singular_values(torch.zeros(3, 6), 0.05) == 0


def test_attention_is_the_textbooks() -> None:
    attention, tokens, factor = Attention(6, 2), draw(1, 4, 6), draw(1, 4, 6, seed=2)
    q, k, v = (layer(tokens)[0].detach().numpy() for layer in (attention.query, attention.key, attention.value))
    q = q * factor[0].numpy()
    mixed = np.zeros((4, 6), np.float32)
    for head in (slice(0, 3), slice(3, 6)):
        scores = np.exp(q[:, head] @ k[:, head].T / math.sqrt(3))
        mixed[:, head] = scores / scores.sum(1, keepdims=True) @ v[:, head]
    expected = attention.out(torch.from_numpy(mixed)).detach()
    np.testing.assert_allclose(attention(tokens, tokens, tokens, factor)[0].detach(), expected, atol=1e-5)


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


# --- the paper's network ---


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


# --- the published network ---


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


def test_stages_differ_in_optimiser_and_loss() -> None:
    config = FeatureIUFConfig()
    base, later = config.schedule(0), config.schedule(1)
    assert (base.optimiser, base.rate, base.decay) == ("adamw", 1e-4, 1e-4)
    assert (later.optimiser, later.rate, later.decay) == ("sgd", 1.0, 0.0)
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


# --- features ---


def features(backbone: str, size: int, **settings: Any) -> AlignedFeatures:
    arguments = {"weights": "", "blocks": (0, 2), **settings}
    return AlignedFeatures(backbone, size=size, device=torch.device("cpu"), **arguments)


@pytest.mark.parametrize(("backbone", "size", "side"), [("tiny-resnet", 64, 4), ("tiny-dinov2", 70, 5)])
def test_any_backbone_gives_tokens_of_one_grid_and_says_that_it_stands_in(backbone: str, size: int, side: int) -> None:
    found = features(backbone, size)
    pixels = np.random.default_rng(0).integers(0, 256, (2, size, size, 3)).astype(np.uint8)
    tokens = found(pixels)
    assert tokens.shape == (2, side**2, found.channels)
    assert found.info()["substitute"] == f"{backbone} stands in for EfficientNet-B4"
    if backbone == "tiny-dinov2":
        np.testing.assert_allclose(tokens[..., :16].square().mean(-1), 1, rtol=1e-4)


def test_efficientnet_takes_the_hubs_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = features("tiny-efficientnet", 64)
    network = source._network
    assert isinstance(network, efficientnet.EfficientNetMaps)
    state = {f"efficientnet.{name}": value for name, value in network._model.state_dict().items()}
    save_file({**state, "classifier.weight": torch.zeros(3, 3)}, tmp_path / "model.safetensors")
    monkeypatch.setitem(efficientnet.ARCHITECTURES, "efficientnet-b4", efficientnet.ARCHITECTURES["tiny-efficientnet"])
    pixels = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3)).astype(np.uint8)
    for place in (tmp_path, tmp_path / "model.safetensors"):
        loaded = features("efficientnet-b4", 64, weights=str(place))
        np.testing.assert_array_equal(loaded(pixels), source(pixels))
        info = loaded.info()
        assert (info["substitute"], len(info["weights_sha256"])) == ("", 64)
    assert source(pixels).std(0).mean() > 0.01  # random, but not blind
    save_file({"other": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(EncoderError, match=r"has no 'embeddings.convolution.weight' .* not EfficientNet-B4"):
        features("efficientnet-b4", 64, weights=str(tmp_path)).info()
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(EncoderError, match="cannot be read as safetensors"):
        features("efficientnet-b4", 64, weights=str(tmp_path)).info()


def test_missing_weights_are_answered_with_where_to_get_them_and_what_can_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    with pytest.raises(EncoderError, match=r"hf download google/efficientnet-b4 .*iuf.backbone=resnet50-v1"):
        get_method("iuf:original").build(Workbench()).info()
    with pytest.raises(EncoderError, match="no weights of EfficientNet-B4 in"):
        tiny("iuf:original", backbone="efficientnet-b4", weights=str(tmp_path / "absent")).info()
    with pytest.raises(EncoderError, match="no backbone 'vgg' for IUF; choose one of: efficientnet-b4"):
        tiny("iuf:original", backbone="vgg").info()


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
    assert any("going on" in line and "epoch 2 of 2" in line for line in heard)
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


def test_a_size_that_leaves_no_grid_is_refused() -> None:
    with pytest.raises(InputError, match="multiple of 16 with tiny-resnet, got 72"):
        features("tiny-resnet", 72)


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
