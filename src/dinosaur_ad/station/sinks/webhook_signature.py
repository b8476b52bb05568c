"""The signature of webhook messages. Receivers can copy this file: it needs the standard library alone.

A message has the headers ``X-Dinosaur-Timestamp`` (seconds since 1970, at the sending of this very try),
``X-Dinosaur-Signature`` (``sha256=`` and the HMAC-SHA256 of timestamp, a dot and the body, in hexadecimal) and
``X-Dinosaur-Key`` (the same each time a message is sent: keep the last ones to tell repeats).
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping

TIMESTAMP, SIGNATURE, KEY = "X-Dinosaur-Timestamp", "X-Dinosaur-Signature", "X-Dinosaur-Key"
TOLERANCE = 300.0
"""Seconds that the clocks may differ; an older message is a replay."""


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The signature of a body that is sent at ``timestamp``.

    >>> sign("key", "1700000000", b"{}")
    'sha256=9d713ed406bb7076d4123f0dc2c39d2df5c654ed4b0cd56b52c8b4c940bd63ae'
    """
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, now: float | None = None, tolerance: float = TOLERANCE
) -> bool:
    """Whether a message comes from somebody who has the secret, and is not older than ``tolerance`` seconds.

    ``body`` are the bytes as they were received, before any parsing.

    >>> headers = {"X-Dinosaur-Timestamp": "1700000000", "X-Dinosaur-Signature": sign("key", "1700000000", b"{}")}
    >>> verify("key", headers, b"{}", now=1700000003), verify("key", headers, b"{ }", now=1700000003)
    (True, False)
    """
    found = {name.lower(): value for name, value in headers.items()}
    timestamp, signature = found.get(TIMESTAMP.lower(), ""), found.get(SIGNATURE.lower(), "")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        return False
    return hmac.compare_digest(sign(secret, timestamp, body).encode(), signature.encode("utf-8", "replace"))
