"""CutPaste makes what it should: area, shape, place, colours, and nothing but from its generator."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (it comes with the extra 'bench')")

from dinosaur_ad.methods.dne import cutpaste as dne_cutpaste  # noqa: E402


def test_a_patch_has_the_right_area_and_shape_and_lies_in_the_image() -> None:
    generator = torch.Generator().manual_seed(0)
    areas, aspects = [], []
    for _ in range(400):
        patch = dne_cutpaste.draw_patch(224, 160, generator)
        for top, left in (patch.cut, patch.paste):
            assert 0 <= top <= 224 - patch.height
            assert 0 <= left <= 160 - patch.width
        areas.append(patch.height * patch.width / (224 * 160))
        aspects.append(patch.width / patch.height)
    whole = [
        area for area, aspect in zip(areas, aspects, strict=True) if 1 / 3 < aspect < 3
    ]  # none of these is cut off
    assert 0.019 < min(whole) < 0.03
    assert 0.13 < max(areas) < 0.153
    assert min(aspects) < 0.3
    assert max(aspects) > 3
    assert max(aspects) < 10.6
    assert abs(np.mean(np.log(aspects))) < 0.15  # as often wide as tall


def test_cutpaste_changes_one_rectangle_and_nothing_else() -> None:
    images = torch.rand(10, 3, 40, 48, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    patches = [dne_cutpaste.draw_patch(40, 48, generator) for _ in images]
    pasted = dne_cutpaste.cut_paste(images, patches, [dne_cutpaste.draw_recolouring(generator) for _ in images])
    for image, patch, found in zip(images, patches, pasted, strict=True):
        (top, left), (to_top, to_left) = patch.cut, patch.paste
        inside = torch.zeros(40, 48, dtype=torch.bool)
        inside[to_top : to_top + patch.height, to_left : to_left + patch.width] = True
        assert torch.equal(found[:, ~inside], image[:, ~inside])
        piece = image[:, top : top + patch.height, left : left + patch.width]
        arrived = found[:, to_top : to_top + patch.height, to_left : to_left + patch.width]
        assert arrived.shape == piece.shape
        assert (arrived.mean() - piece.mean()).abs() < 0.2  # the same piece, a little recoloured
        assert not torch.equal(arrived, piece)


def literally_recoloured(image: torch.Tensor, colours: dne_cutpaste.Recolouring) -> torch.Tensor:
    """One image (3, H, W), one change after the other, the hue by colorsys."""
    for change in colours.order:
        if change == dne_cutpaste.HUE:
            pixels = image.clone()
            for row in range(image.shape[1]):
                for column in range(image.shape[2]):
                    hue, saturation, value = colorsys.rgb_to_hsv(*image[:, row, column].tolist())
                    moved = colorsys.hsv_to_rgb((hue + colours.shift) % 1, saturation, value)
                    pixels[:, row, column] = torch.tensor(moved)
            image = pixels
            continue
        grey = 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]
        base = (torch.zeros(()), grey.mean(), grey)[change]
        image = (base + colours.factors[change] * (image - base)).clamp(0, 1)
    return image


def test_a_batch_is_recoloured_and_pasted_like_its_images_one_by_one() -> None:
    images = torch.rand(8, 3, 12, 10, generator=torch.Generator().manual_seed(7))
    plain, pasted = dne_cutpaste.two_views(images, torch.Generator().manual_seed(8))
    generator = torch.Generator().manual_seed(8)
    expected = [literally_recoloured(image, dne_cutpaste.draw_recolouring(generator)) for image in images]
    with_piece = []
    for image in expected:
        patch, colours = dne_cutpaste.draw_patch(12, 10, generator), dne_cutpaste.draw_recolouring(generator)
        (top, left), (to_top, to_left) = patch.cut, patch.paste
        piece = literally_recoloured(image[:, top : top + patch.height, left : left + patch.width], colours)
        with_piece.append(image.clone())
        with_piece[-1][:, to_top : to_top + patch.height, to_left : to_left + patch.width] = piece
    degrees = (2 * torch.rand(16, generator=generator) - 1) * dne_cutpaste.TURN
    turned = dne_cutpaste.turn(torch.stack([*expected, *with_piece]), degrees)
    torch.testing.assert_close(plain, turned[:8], rtol=0, atol=1e-5)
    torch.testing.assert_close(pasted, turned[8:], rtol=0, atol=1e-5)


def test_the_hue_moves_as_in_colorsys() -> None:
    colours = torch.rand(3, 1, 50, generator=torch.Generator().manual_seed(2))
    colours[:, 0, 0] = 0.4  # grey has no hue
    found = dne_cutpaste.shift_hue(colours[None], torch.full((1, 1, 1, 1), 0.07))[0]
    for n in range(50):
        h, s, v = colorsys.rgb_to_hsv(*colours[:, 0, n].tolist())
        np.testing.assert_allclose(found[:, 0, n], colorsys.hsv_to_rgb((h + 0.07) % 1, s, v), atol=1e-5)


def test_turning_by_a_right_angle_moves_every_pixel() -> None:
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    turned = dne_cutpaste.turn(images, torch.tensor([0.0, 90.0]))
    assert torch.equal(turned[0], images[0])
    assert any(torch.equal(turned[1], torch.rot90(images[1], times, (1, 2))) for times in (1, 3))
    assert (dne_cutpaste.turn(torch.ones(1, 3, 8, 8), torch.tensor([45.0]))[:, :, 0, 0] == 0).all()


def test_views_come_from_the_generator_alone_and_stay_images() -> None:
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(4))
    plain, pasted = dne_cutpaste.two_views(images, torch.Generator().manual_seed(5))
    again = dne_cutpaste.two_views(images, torch.Generator().manual_seed(5))
    assert torch.equal(plain, again[0])
    assert torch.equal(pasted, again[1])
    assert not torch.equal(plain, dne_cutpaste.two_views(images, torch.Generator().manual_seed(6))[0])
    for view in (plain, pasted):
        assert view.shape == images.shape
        assert view.min() >= 0
        assert view.max() <= 1
