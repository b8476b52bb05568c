"""DNE: a fine-tuned ViT and one Gaussian for the CLS tokens of all tasks; see :mod:`.dne_method`."""

from dinosaur_ad.methods.dne.dne_method import DNE, DNEConfig

__all__ = ["DNE", "DNEConfig"]
