"""Passwords as argon2id hashes, with their salt and parameters (RFC 9106)."""

from __future__ import annotations

import secrets
import threading
import unicodedata

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError


class PasswordHashing:
    """Hashes and compares passwords, one at a time: each takes 64 MB and a part of a second of one core, and many at
    once would slow the judging down."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher(time_cost=3, memory_cost=65536, parallelism=1, type=Type.ID)
        self._lock = threading.Lock()
        self._nobody = ""

    def hashed(self, password: str) -> str:
        """What is stored of a password."""
        with self._lock:
            return self._hasher.hash(unicodedata.normalize("NFC", password))

    def matches(self, stored: str, password: str) -> bool:
        """Whether a password is the one that was stored."""
        with self._lock:
            try:
                return self._hasher.verify(stored, unicodedata.normalize("NFC", password))
            except (VerificationError, InvalidHashError):
                return False

    def is_old(self, stored: str) -> bool:
        """Whether a hash was made with other parameters than today's, so that it should be made anew."""
        return self._hasher.check_needs_rehash(stored)

    def of_nobody(self) -> str:
        """A hash that no password has, to compare with where there is no account: it takes as long."""
        if not self._nobody:
            self._nobody = self.hashed(secrets.token_urlsafe(32))
        return self._nobody
