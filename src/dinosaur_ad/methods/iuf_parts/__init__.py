"""The networks and rules of IUF. Its modules import torch; this package, and whoever lists the methods, does not."""
