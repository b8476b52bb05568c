"""Photographs on a page: the picture with its heat map, the worst patch beside the nearest normal one, the scale."""

from __future__ import annotations

import numpy as np
from PIL import Image

from dinosaur_ad.images.drawing import close_up, draw_box, heat_layer, legend, nearest_normal, outline
from dinosaur_ad.images.loading import Mask, Pixels
from dinosaur_ad.inspection import Inspection
from dinosaur_ad.page.html import Html, element, image


def marks(
    pixels: Pixels, inspection: Inspection, mask: Mask | None = None, *, heat: bool = True, zoom: float = 1.0
) -> Pixels:
    """What is drawn over an image, RGBA uint8 ``(H, W, 4)``: the heat map, the boxed worst patch, the true defect.

    The worst patch is boxed unless the verdict is "normal" or "unknown"; ``mask`` outlines the true defect.
    ``zoom`` is the size of the layer relative to the image; lines stay thin at any size.
    """
    height, width = (max(1, round(side * zoom)) for side in pixels.shape[:2])
    layer = np.zeros((height, width, 4), np.uint8)
    if heat:
        drawn = Image.fromarray(heat_layer(inspection, height, width))
        if inspection.verdict not in ("normal", "unknown"):
            draw_box(drawn, inspection.worst.box, zoom)
        layer = np.asarray(drawn)
    if mask is not None:
        layer = outline(layer, np.asarray(Image.fromarray(mask).resize((width, height))))
    return layer


def photo(pixels: Pixels, layer: Pixels, alternative: str, caption: object = "") -> Html:
    """The photograph with a layer of marks on top; pointing at it or focusing it shows the bare photograph.

    The photograph is shrunk to the size of the layer if that is smaller.
    """
    size = (layer.shape[1], layer.shape[0])
    if size[0] < pixels.shape[1]:
        pixels = np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))
    pictures = [image(pixels, alternative)]
    if layer[..., 3].any():
        pictures.append(image(layer, "", class_="layer"))
    below = element("figcaption", caption) if caption else ""
    return element("figure", element("div", *pictures, class_="stack", tabindex=0), below)


def patch_pair(pixels: Pixels, inspection: Inspection) -> Html:
    """The worst patch beside the normal patch nearest to it.

    Empty if that training image is gone or has changed, and for an image of no learned product, which has no nearest.
    """
    like = None if inspection.verdict == "unknown" else nearest_normal(inspection)
    if like is None:
        return Html("")
    here = close_up(pixels, inspection.map.shape, inspection.worst.row, inspection.worst.column)
    return element(
        "div",
        element("figure", image(here, "worst patch"), element("figcaption", "worst patch")),
        element("figure", image(like, "nearest normal patch"), element("figcaption", "nearest normal")),
        class_="pair",
    )


def heat_key() -> Html:
    """The colour scale of the heat maps."""
    bar = element("span", image(np.asarray(legend(340, 22)), "colour scale"), class_="heat")
    return element("p", "usual", bar, "far beyond (the mark is the threshold)", class_="key")
