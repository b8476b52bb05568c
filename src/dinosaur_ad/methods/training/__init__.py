"""The training loop that the trained methods share: epochs, checkpoints, resuming."""
