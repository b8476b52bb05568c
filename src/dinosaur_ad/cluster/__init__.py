"""Work on several machines through Ray (extra ``ray``), which is imported only when it is used."""

from __future__ import annotations

from dinosaur_ad.cluster.connection import connected, first_line, machines, refuse_other_version, worker_environment
from dinosaur_ad.cluster.fleet import Fleet
from dinosaur_ad.cluster.listing import find_everywhere, is_address

__all__ = [
    "Fleet",
    "connected",
    "find_everywhere",
    "first_line",
    "is_address",
    "machines",
    "refuse_other_version",
    "worker_environment",
]
