"""Files written whole or not at all, and their hashes."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dinosaur_ad.errors import EncoderError


def write_atomic(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` so that a crash leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def explain_os_errors(action: str, advice: str) -> Iterator[None]:
    """Turn a full, read-only or missing disk into one sentence: what failed, why, what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise EncoderError(f"Could not {action}: {reason}; {advice}.") from error
