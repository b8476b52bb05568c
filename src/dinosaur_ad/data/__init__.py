"""Datasets as ordered tasks: files, folders and public sets in, samples out."""

from __future__ import annotations

from dinosaur_ad.data.drift import BlurDrift, ColorDrift, Drift, DriftKind, GeometricDrift, draw_drift
from dinosaur_ad.data.folder import folder_task
from dinosaur_ad.data.images import Mask, Pixels, find_images, image_size, read_image, read_many, read_mask
from dinosaur_ad.data.loco import loco_scenario
from dinosaur_ad.data.mtd import mtd_scenario
from dinosaur_ad.data.mvtec import mvtec_scenario
from dinosaur_ad.data.tasks import FileSample, Sample, Scenario, Task

__all__ = [
    "BlurDrift",
    "ColorDrift",
    "Drift",
    "DriftKind",
    "FileSample",
    "GeometricDrift",
    "Mask",
    "Pixels",
    "Sample",
    "Scenario",
    "Task",
    "draw_drift",
    "find_images",
    "folder_task",
    "image_size",
    "loco_scenario",
    "mtd_scenario",
    "mvtec_scenario",
    "read_image",
    "read_many",
    "read_mask",
]
