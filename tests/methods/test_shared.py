"""What the trained methods share: the files of their state, the threshold, records of training, images, refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from method_helpers import build, grey, tiny

from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD
from dinosaur_ad.errors import InputError
from dinosaur_ad.methods import Lesson, Workbench, get_method
from dinosaur_ad.methods.shared.method_rules import require_normals, require_photos, training_threshold
from dinosaur_ad.methods.shared.state_files import StateFiles
from dinosaur_ad.methods.shared.torch_tools import cell_means, to_images
from dinosaur_ad.methods.training import EpochLog, finite_or_none, loss_record

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")
pytest.importorskip("transformers", reason="transformers is not installed (it comes with the extra 'bench')")

FILES = StateFiles("DNE")
TRAINED = ["dne", "iuf", "ucad", "efficientad"]


# --- the files of a state ---


def test_tensors_come_back_with_their_shapes_whatever_their_layout(tmp_path: Path) -> None:
    given = {"number": np.array(2.5), "turned": np.arange(6.0).reshape(2, 3).T, "none": np.zeros((0, 4), np.float32)}
    FILES.write(tmp_path, given, {"counts": [1, 2]})
    found, facts = FILES.read(tmp_path)
    assert {name: (value.shape, value.dtype) for name, value in found.items()} == {
        name: (value.shape, value.dtype) for name, value in given.items()
    }
    for name, value in given.items():
        np.testing.assert_array_equal(found[name], value)
    assert facts == {"counts": [1, 2]}


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    for _ in range(2):  # a second state takes the place of the first
        FILES.write(tmp_path / "state", {"a": np.zeros(1)}, {})
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == ["dne.json", "dne.safetensors"]


@pytest.mark.parametrize("error", [KeyError("mean"), TypeError("no mapping"), ValueError("no JSON"), OSError("gone")])
def test_what_a_damaged_file_raises_becomes_one_sentence(error: Exception, tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"There is no readable DNE in .*; learn it again\.") as caught,
        FILES.reading(tmp_path),
    ):
        raise error
    assert caught.value.__cause__ is error


def test_a_mistake_of_the_program_keeps_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), FILES.reading(tmp_path):
        raise ZeroDivisionError


def test_a_state_of_other_settings_is_refused_with_both(tmp_path: Path) -> None:
    method = tiny("photometer").build(Workbench())
    method.learn(Lesson("plain", (grey(90, "a"), grey(99, "b"))))
    method.save(tmp_path)
    build("photometer").load(tmp_path)
    with pytest.raises(InputError, match=r"was made with \{.*'signed': False.*\}, not with \{.*True.*\}; load it"):
        build("photometer:signed").load(tmp_path)


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("facts", ["[]", "{}", "null", '{"made_with": 1, "threshold": {}}', "half of a fi"])
def test_foreign_facts_beside_whole_tensors_get_a_sentence(name: str, facts: str, tmp_path: Path) -> None:
    method = tiny(name).with_settings({"epochs": 1}).build(Workbench())
    method.learn(Lesson("plain", (grey(90, "a"), grey(99, "b"))))
    method.save(tmp_path)
    written = json.loads((tmp_path / f"{name}.json").read_text())
    assert "made_with" in written
    (tmp_path / f"{name}.json").write_text(facts)
    with pytest.raises(InputError, match=rf"(?i)no readable {name} in .*; learn it again\."):
        build(name).load(tmp_path)


# --- thresholds, records, photos ---


def test_the_threshold_lies_between_the_scores_where_the_percentile_does() -> None:
    assert training_threshold(np.array([0.0, 10.0], np.float32)) == pytest.approx(9.75)
    assert training_threshold(np.array([3.0])) == 3.0


def test_a_record_of_training_can_be_written_as_json() -> None:
    logs = [EpochLog(n, loss, n, {}, 0.0) for n, loss in enumerate((math.nan, 1.0, math.inf))]
    record = loss_record(logs)
    assert json.loads(json.dumps(record, allow_nan=False)) == {
        "epochs": 3, "first_loss": None, "last_loss": None, "losses_not_finite": 3
    }  # fmt: skip
    assert finite_or_none(-math.inf) is None


def test_images_are_the_literal_ones_with_the_channels_last_in_memory() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 6, 5, 3), dtype=np.uint8)
    images = to_images(pixels, "cpu")
    literal = (pixels.astype(np.float64) / 255 - IMAGE_MEAN) / IMAGE_STD
    np.testing.assert_allclose(images.numpy(), literal.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-6)
    # The layout decides how convolutions compute: stored results were made with this one.
    assert images.is_contiguous(memory_format=torch.channels_last)
    turned = np.asfortranarray(pixels)  # as a cache may hand them out
    assert torch.equal(to_images(turned, torch.device("cpu")), images)


def test_no_images_are_refused() -> None:
    require_normals("bolts", [grey(90, "a")])
    require_photos([grey(90, "a")])
    with pytest.raises(InputError, match="'bolts' has no training images"):
        require_normals("bolts", ())
    with pytest.raises(InputError, match="at least one image to score"):
        require_photos(())


@pytest.mark.parametrize("name", TRAINED)
def test_scoring_too_early_does_no_harm_to_learning(name: str) -> None:
    method, photos = tiny(name).with_settings({"epochs": 1}).build(Workbench()), (grey(90, "a"), grey(99, "b"))
    with pytest.raises(InputError, match="no task yet"):
        method.score(photos)
    method.learn(Lesson("plain", photos))
    assert method.score(photos).image.shape == (2,)


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize(("size", "side", "padding"), [(13, 2, 0), (13, 2, 1), (12, 2, 1), (12, 2, 0), (24, 8, 0)])
def test_means_of_cells_are_those_of_torch_and_so_are_their_gradients(
    size: int, side: int, padding: int, last: bool
) -> None:
    layout = torch.channels_last if last else torch.contiguous_format
    maps = torch.rand(2, 3, size, size + 1, generator=torch.Generator().manual_seed(size))
    ours, theirs = (maps.clone(memory_format=layout).requires_grad_() for _ in range(2))
    found = cell_means(ours, side, padding=padding)
    expected = torch.nn.functional.avg_pool2d(theirs, side, side, padding)
    torch.testing.assert_close(found, expected)
    weights = torch.rand(expected.shape, generator=torch.Generator().manual_seed(1))
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert not last or found.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", TRAINED)
def test_a_cpu_never_claims_to_round_as_gpus_do(name: str) -> None:
    method = get_method(name).tiny().with_settings({"tf32": True, "epochs": 1}).build(Workbench())
    method.learn(Lesson("grey", tuple(grey(10 * n, f"tf32-{n}") for n in range(4))))
    assert "float32 on cpu" in method.info()["scoring"]
    assert method.info()["precision"] == "float32"
    assert torch.get_float32_matmul_precision() == "highest"
