"""The choice of the fastest provider and precision that is right on this machine."""
