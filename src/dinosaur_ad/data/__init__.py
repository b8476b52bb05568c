"""Datasets as ordered tasks: files, folders and public sets in, samples out."""

from __future__ import annotations

from dinosaur_ad.data.drift import DriftKind, draw_drift, draw_replay_drift
from dinosaur_ad.data.folder import folder_task
from dinosaur_ad.data.images import Mask, Pixels, find_images, image_size, read_image, read_many, read_mask
from dinosaur_ad.data.loco import loco_scenario
from dinosaur_ad.data.mtd import mtd_scenario
from dinosaur_ad.data.mvtec import mvtec_scenario
from dinosaur_ad.data.samples import DriftedSample, FileSample, Sample
from dinosaur_ad.data.tasks import Scenario, Task
from dinosaur_ad.data.transforms import BlurDrift, ColorDrift, Drift, GeometricDrift

__all__ = [
    "BlurDrift",
    "ColorDrift",
    "Drift",
    "DriftKind",
    "DriftedSample",
    "FileSample",
    "GeometricDrift",
    "Mask",
    "Pixels",
    "Sample",
    "Scenario",
    "Task",
    "draw_drift",
    "draw_replay_drift",
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
