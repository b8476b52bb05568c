"""Datasets as ordered tasks: folders and public sets in, samples out."""

from __future__ import annotations

from dinosaur_ad.datasets.btad import btad_scenario
from dinosaur_ad.datasets.drawn_drift import DriftKind, draw_drift, draw_replay_drift
from dinosaur_ad.datasets.folder import folder_task
from dinosaur_ad.datasets.loco import loco_scenario
from dinosaur_ad.datasets.mpdd import mpdd_scenario
from dinosaur_ad.datasets.mtd import mtd_scenario
from dinosaur_ad.datasets.mvtec import mvtec_scenario
from dinosaur_ad.datasets.mvtec_ad2 import mvtec_ad2_scenario
from dinosaur_ad.datasets.real_iad import real_iad_scenario
from dinosaur_ad.datasets.samples import DriftedSample, FileSample, Sample
from dinosaur_ad.datasets.tasks import Scenario, Task
from dinosaur_ad.datasets.transforms import BlurDrift, ColorDrift, Drift, GeometricDrift
from dinosaur_ad.datasets.visa import visa_scenario

__all__ = [
    "BlurDrift",
    "ColorDrift",
    "Drift",
    "DriftKind",
    "DriftedSample",
    "FileSample",
    "GeometricDrift",
    "Sample",
    "Scenario",
    "Task",
    "btad_scenario",
    "draw_drift",
    "draw_replay_drift",
    "folder_task",
    "loco_scenario",
    "mpdd_scenario",
    "mtd_scenario",
    "mvtec_ad2_scenario",
    "mvtec_scenario",
    "real_iad_scenario",
    "visa_scenario",
]
