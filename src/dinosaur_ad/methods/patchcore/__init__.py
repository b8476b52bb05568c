"""PatchCore with replay: one flat memory of patch features for all tasks; see :mod:`.patchcore_method`."""

from dinosaur_ad.methods.patchcore.patchcore_method import PatchCore, PatchCoreConfig

__all__ = ["PatchCore", "PatchCoreConfig"]
