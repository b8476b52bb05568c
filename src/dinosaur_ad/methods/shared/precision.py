"""The precision in which networks train and score, and GPU settings under which results can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from dinosaur_ad.methods.shared.torch_tools import import_torch


class PrecisionSettings(Protocol):
    """The two settings of a method or schedule that decide its precision."""

    @property
    def mixed(self) -> bool:
        """Train in bfloat16 where torch holds that safe."""
        ...

    @property
    def tf32(self) -> bool:
        """Round products to TF32."""
        ...


def precision_words(config: PrecisionSettings, device: str) -> str:
    """The precision of training, in words.

    >>> from dinosaur_ad.methods.training import Schedule
    >>> precision_words(Schedule(mixed=True, tf32=True), "cuda"), precision_words(Schedule(mixed=True), "cpu")
    ('bfloat16 where safe, else tf32, in training', 'float32')
    """
    if not device.startswith("cuda") or not (config.mixed or config.tf32):
        return "float32"
    exact = "tf32" if config.tf32 else "float32"
    return f"bfloat16 where safe, else {exact}, in training" if config.mixed else "tf32 in training"


def uses_tf32(config: PrecisionSettings, device: str) -> bool:
    """Whether products are rounded to TF32 with these settings on this device; only GPUs do."""
    return config.tf32 and device.startswith("cuda")


def scoring_words(config: PrecisionSettings, device: str) -> str:
    """The precision of scoring, which never uses bfloat16, in words.

    >>> from dinosaur_ad.methods.training import Schedule
    >>> scoring_words(Schedule(mixed=True, tf32=True), "cuda:0"), scoring_words(Schedule(tf32=True), "cpu")
    ('tf32 on cuda:0', 'float32 on cpu')
    """
    return f"{'tf32' if uses_tf32(config, device) else 'float32'} on {device}"


@contextmanager
def deterministic(*, tf32: bool = False) -> Iterator[None]:
    """Deterministic cuDNN algorithms, and products rounded to TF32 only if ``tf32``; restored afterwards."""
    torch = import_torch()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
