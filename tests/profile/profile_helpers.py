"""What the tests of profiles share: small plans, and documents made up of plain numbers."""

from __future__ import annotations

from typing import Any

from dinosaur_ad.methods import get_method
from dinosaur_ad.profile.document import FORMAT, VERSION
from dinosaur_ad.profile.profiling import ProfilePlan
from dinosaur_ad.profile.stages import spread


def tiny_plan(*names: str, **changes: Any) -> ProfilePlan:
    """A plan that takes seconds: tiny networks, a few small images, one round, one thread."""
    methods = tuple(get_method(name).tiny() for name in names)
    small: dict[str, Any] = {
        **{"learn_images": 4, "repeats": 1, "runs": 3, "warm_up": 1, "batch_sizes": (1, 2), "batch_images": 2},
        **{"image_size": 64, "options": {"threads": 1}, "rate_seconds": 0.0},
    }
    return ProfilePlan(methods, "test box", **(small | changes))


def made_up_method(name: str = "dinosaur", ms: float = 50.0, **changes: Any) -> dict[str, Any]:
    """A method that was measured, with numbers that nobody measured."""
    stages = {"decode": 1.0, "resize": 1.0, "encode": ms - 6, "route": 0.5, "score": 2.0, "map": 1.0, "rest": 0.5}
    return {
        "name": name,
        "status": "measured",
        "reason": None,
        "notes": [],
        "parameters": {"total": 22_000_000, "trainable": 0},
        "storage": {"task_bytes": 8 * 2**20, "words": "bank and prototype", "files": {}, "tasks": 1},
        "made_with": {"description": "a made-up encoder", "provider": "onnx-cpu", "precision": "float32"},
        "cold_start": {"seconds": 1.25, "values": [1.25], "parts": {}},
        "latency_ms": {**spread([ms - 1, ms, ms + 1]), "fps": 1000 / ms, "values": [ms - 1, ms, ms + 1]},
        "stages_ms": {stage: spread([value]) for stage, value in stages.items()},
        "batches": [{"size": 1, "images_a_second": 19.0, "values": [19.0]}],
        "memory": {"before_bytes": 2**24, "inspect_peak_bytes": 2**28, "learn_peak_bytes": 2**29},
        "learning": {
            **{"images": 443, "epochs": None, "seconds": 30.0, "values": [30.0], "skipped": None},
            **{"parts": {"encode": 26.0, "memory": 0.5, "rest": 3.5}, "coreset_share": 0.5 / 30},
        },
        "energy": {"joules_an_image": None, "source": None, "reason": "not measurable here: no counters"},
        "floor": {"encoder_flops": 9_000_000_000, "ms": 40.0, "encode_ms": 44.0, "times_the_floor": 1.1},
        **changes,
    }


def made_up_profile(*methods: dict[str, Any], device: str = "test box", **changes: Any) -> dict[str, Any]:
    """A whole profile of such methods."""
    state = {"load": 0.5, "governors": ["performance"], "megahertz": [2400.0], "hottest_celsius": 51.5}
    return {
        "format": FORMAT,
        "version": VERSION,
        "device_name": device,
        "made": "2026-01-02T03:04:05+00:00",
        "complete": True,
        "seconds": 12.0,
        "machine": {
            **{"board": "Raspberry Pi 5", "processor": "Cortex-A76", "cores": 4, "features": ["neon", "dot product"]},
            **{"memory_bytes": 8 * 2**30, "container": {"cores": None, "memory_bytes": None}, "system": "Linux arm64"},
            **{"python": "3.11.2", "dinosaur-ad": "0.1.0", "revision": None, "packages": {"numpy": "2.0"}},
        },
        "before": state,
        "after": state | {"load": 1.5},
        "throttling": {"seen": False, "words": "the firmware says 0x0"},
        "settings": {
            **{"repeats": 3, "runs": 40, "warm_up": 5, "batch_sizes": [1], "learn_images": 443, "learn_repeats": 1},
            **{"images": {"words": "drawn ones"}, "order": [["dinosaur"]]},
        },
        "float32_flops_a_second": 2.25e11,
        "methods": list(methods) or [made_up_method()],
        **changes,
    }
