"""IUF: one network reconstructs normal images of all tasks; see :mod:`.iuf_method`."""

from dinosaur_ad.methods.iuf.iuf_method import IUF

__all__ = ["IUF"]
