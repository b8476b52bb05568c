"""Automatic masks of a Segment-Anything model.

The model is prompted with a grid of points. Of its three masks for each point, those with a predicted IoU above
``MIN_IOU`` and a stability above ``MIN_STABILITY`` are kept, then reduced by non-maximum suppression of their boxes,
with the published values. The pipeline of ``transformers`` needs torchvision for one function, so it is not used.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dinosaur_ad._atomic import sha256_file
from dinosaur_ad.encoders.base import IMAGE_MEAN, IMAGE_STD
from dinosaur_ad.errors import EncoderError
from dinosaur_ad.methods.ucad.regions import POINTS, Labels, most_frequent

AT_ONCE = 64  # points
MOBILE_SUFFIX = ".pt"
MIN_IOU, MIN_STABILITY, SAME_BOX = 0.88, 0.95, 0.7


class SamRegions:
    """Regions by a Segment-Anything model: a folder with the files of ``transformers``, or MobileSAM's checkpoint."""

    def __init__(self, folder: Path, device: str, *, points: int = POINTS) -> None:
        self._folder, self._device, self._points = folder, device, points
        self._is_mobile = folder.suffix == MOBILE_SUFFIX

    @cached_property
    def recipe(self) -> str:
        """The hash of the weights, and the number of points."""
        path = self._folder if self._is_mobile else self._folder / "model.safetensors"
        if not path.is_file():
            raise EncoderError(f"The Segment-Anything model in {self._folder} has no {path.name}; put it there.")
        return f"regions-{'mobile-' if self._is_mobile else ''}sam-v1-{self._points}-{sha256_file(path)}"

    @property
    def description(self) -> str:
        """The model and the beginning of its weights' hash."""
        model = "MobileSAM" if self._is_mobile else f"the Segment-Anything model '{self._folder.name}'"
        return f"masks of {model} (sha256 {self.recipe[-64:-52]}..., {self._points}x{self._points} points)"

    def __call__(self, pixels: NDArray[np.uint8], grid: tuple[int, int]) -> Labels:
        """Labels (N, H, W) of prepared images (N, S, S, 3); 0 where there is no mask."""
        with torch.inference_mode():
            return np.stack([most_frequent(paint(self._masks(image)), grid) for image in pixels])

    def _masks(self, image: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """The masks (K, S, S) of one image, by falling predicted IoU."""
        side = self._model.config.vision_config.image_size
        raw = torch.from_numpy(image.astype(np.float32) / 255).to(self._device)
        mean, deviation = (torch.tensor(each, device=self._device) for each in (IMAGE_MEAN, IMAGE_STD))
        normalised = ((raw - mean) / deviation).permute(2, 0, 1)[None]
        resized = torch.nn.functional.interpolate(normalised, size=(side, side), mode="bilinear", antialias=True)
        embedding = self._model.get_image_embeddings(resized)
        ticks = (torch.arange(self._points, device=self._device) + 0.5) * (side / self._points)
        points_P2 = torch.cartesian_prod(ticks, ticks)
        predictions = [self._predict(embedding, each, image.shape[:2]) for each in points_P2.split(AT_ONCE)]
        masks_KSS, iou_K = (torch.cat(part) for part in zip(*predictions, strict=True))
        kept = suppress_repeats(boxes(masks_KSS), iou_K, SAME_BOX)
        masks: NDArray[np.bool_] = masks_KSS[kept].cpu().numpy()
        return masks

    def _predict(
        self, embedding: torch.Tensor, points_P2: torch.Tensor, shape: tuple[int, ...]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The good masks (K, S, S) at some points, and their predicted IoU (K,)."""
        output = self._model(image_embeddings=embedding, input_points=points_P2[None, :, None], multimask_output=True)
        iou_K = output.iou_scores.flatten()
        logits_KSS = output.pred_masks.flatten(0, 2)
        inner, outer = ((logits_KSS > edge).sum((1, 2)) for edge in (1.0, -1.0))
        is_good = (iou_K > MIN_IOU) & (inner >= MIN_STABILITY * outer) & (inner > 0)
        full = torch.nn.functional.interpolate(logits_KSS[is_good][:, None], size=shape, mode="bilinear")
        return full[:, 0] > 0, iou_K[is_good]

    @cached_property
    def _model(self) -> Any:
        if self._is_mobile:
            from dinosaur_ad.methods.ucad.regions_mobile_sam import load_mobile_sam

            return load_mobile_sam(self._folder, self._device)
        import transformers

        try:
            model = transformers.SamModel.from_pretrained(self._folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise EncoderError(f"The Segment-Anything model in {self._folder} cannot be loaded ({error}).") from error
        return model.eval().requires_grad_(False).to(self._device)


def boxes(masks_KSS: torch.Tensor) -> torch.Tensor:
    """The bounding box (K, 4) of each mask: left, top, right, bottom, the last two exclusive."""
    sides = []
    for axis in (1, 2):  # columns, then rows
        is_hit_KS = masks_KSS.any(axis)
        length = is_hit_KS.shape[1]
        first_K = is_hit_KS.int().argmax(1)
        last_K = length - is_hit_KS.flip(1).int().argmax(1)
        sides.append((first_K, last_K))
    (left, right), (top, bottom) = sides
    return torch.stack([left, top, right, bottom], dim=1)


def suppress_repeats(boxes_K4: torch.Tensor, iou_K: torch.Tensor, same: float) -> list[int]:
    """Non-maximum suppression: indices of boxes by falling predicted IoU, none overlapping another above ``same``."""
    chosen: list[int] = []
    values = boxes_K4.double().cpu().numpy()
    areas = (values[:, 2] - values[:, 0]) * (values[:, 3] - values[:, 1])
    for index in np.argsort(-iou_K.cpu().numpy(), kind="stable").tolist():
        others = values[chosen]
        width = np.minimum(others[:, 2], values[index, 2]) - np.maximum(others[:, 0], values[index, 0])
        height = np.minimum(others[:, 3], values[index, 3]) - np.maximum(others[:, 1], values[index, 1])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        if (shared <= same * (areas[chosen] + areas[index] - shared)).all():
            chosen.append(index)
    return chosen


def paint(masks_KSS: NDArray[np.bool_]) -> Labels:
    """Masks as one image of labels (S, S): the largest is painted first, smaller ones over it; 0 is background."""
    labels = np.zeros(masks_KSS.shape[1:], np.int64)
    for number, index in enumerate(np.argsort(-masks_KSS.sum((1, 2)), kind="stable"), start=1):
        labels[masks_KSS[index]] = number
    return labels
