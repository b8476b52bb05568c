"""EfficientAD with replay: a student and an autoencoder imitate a frozen teacher; see :mod:`.efficientad_method`."""

from dinosaur_ad.methods.efficientad.efficientad_method import EfficientAD, EfficientADConfig

__all__ = ["EfficientAD", "EfficientADConfig"]
