"""DINOSaur as the benchmark runs it: its banks behind the contract of a method; see :mod:`.dinosaur_method`."""

from dinosaur_ad.methods.dinosaur.dinosaur_method import DinosaurConfig, DinosaurMethod

__all__ = ["DinosaurConfig", "DinosaurMethod"]
