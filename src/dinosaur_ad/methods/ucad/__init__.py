"""UCAD: a frozen ViT with a trained prompt and two small memories for each task; see :mod:`.ucad_method`."""

from dinosaur_ad.methods.ucad.ucad_method import UCAD, UCADConfig

__all__ = ["UCAD", "UCADConfig"]
