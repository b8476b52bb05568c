"""The settings of IUF: those of the paper's network and those of the published one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Literal

from dinosaur_ad.errors import InputError
from dinosaur_ad.methods.contract import Config
from dinosaur_ad.methods.training import Schedule


@dataclass(frozen=True, kw_only=True)
class IUFConfig(Config, ABC):
    """What both networks need; ``mixed`` and ``tf32`` are those of the training's schedule."""

    size: int = 224
    width: int
    heads: int
    layers: int = 4
    max_tasks: int = 15
    epochs: int = 300
    batch: int = 12
    mixed: bool = False
    tf32: bool = False

    def __post_init__(self) -> None:
        names = ("size", "width", "heads", "layers", "max_tasks", "epochs", "batch")
        self.require_at_least("IUF", dict.fromkeys(names, 1))
        if self.width % self.heads:
            raise InputError(f"IUF's width must be a multiple of its heads, got {self.width} and {self.heads}.")

    @abstractmethod
    def schedule(self, task: int) -> Schedule:
        """The schedule of the task, counted from 0."""


@dataclass(frozen=True, kw_only=True)
class PixelIUFConfig(IUFConfig):
    """The paper's network. ``directions`` are the singular values that L_svd leaves alone, ``pull`` is beta."""

    width: int = 64
    heads: int = 4
    patch: int = 16
    head_ratio: int = 4
    rate: float = 7.5e-4
    decay: float = 1e-4
    reconstruction: float = 1.0
    discrimination: float = 0.5
    compression: float = 8.0
    directions: int = 1
    pull: float = 0.5
    normalised: bool = True
    image_score: Literal["max", "mean", "std", "sum"] = "max"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_ratio < 1:
            raise InputError(f"IUF's head_ratio must be at least 1, got {self.head_ratio}.")
        if self.patch < 1 or self.size % self.patch:
            raise InputError(f"IUF's size must be a multiple of its patch, got {self.size} and {self.patch}.")

    @property
    def side(self) -> int:
        """Patches a side."""
        return self.size // self.patch

    def schedule(self, task: int) -> Schedule:
        """The paper's, for every task."""
        return Schedule.of(self)


@dataclass(frozen=True, kw_only=True)
class FeatureIUFConfig(IUFConfig):
    """The published network. ``blocks`` is only for token encoders, ``mix`` the share of the old weights."""

    width: int = 256
    heads: int = 8
    batch: int = 24
    backbone: str = "efficientnet-b4"
    weights: str = field(default="", metadata={"place": True})
    blocks: tuple[int, ...] = (5, 8)
    rate: float = 1e-4
    decay: float = 1e-4
    later_rate: float = 1.0
    clip: float = 0.1
    compression: float = 10.0
    jitter: float = 20.0
    dropout: float = 0.1
    mix: float = 0.05
    object_side: int = 28
    object_attention: Literal["image", "rows"] = "image"
    image_score: Literal["max", "mean", "std"] = "max"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % 4:
            raise InputError(f"IUF's width must be a multiple of 4 with frozen features, got {self.width}.")
        if self.object_side < 1 or self.size % self.object_side:
            raise InputError(
                f"IUF's size must be a multiple of its object_side, got {self.size} and {self.object_side}."
            )

    def schedule(self, task: int) -> Schedule:
        """AdamW for the base stage, plain SGD for the incremental ones; the learner clips the gradient itself."""
        if task == 0:
            return Schedule.of(self, optimizer="adamw", clip=None)
        return Schedule.of(self, optimizer="sgd", rate=self.later_rate, decay=0.0, clip=None)
