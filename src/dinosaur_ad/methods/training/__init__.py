"""The training loop of the methods that train: epochs, optimizers, checkpoints, resuming."""

from dinosaur_ad.methods.training.training_data import EpochLog, Schedule, Step, finite_or_none, loss_record
from dinosaur_ad.methods.training.training_loop import train

__all__ = ["EpochLog", "Schedule", "Step", "finite_or_none", "loss_record", "train"]
