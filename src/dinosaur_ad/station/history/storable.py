"""Values as every database takes them: PostgreSQL refuses NaN in JSON, NUL in text and text that is too long."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

KEY_LENGTH = 400
NAME_LENGTH = 200
_HASH_LENGTH = 64


def is_id(number: int) -> bool:
    """Whether a row can have this id; PostgreSQL refuses to look for larger numbers."""
    return 0 < number < 2**31


def storable_text(text: str) -> str:
    r"""Text without NUL and without halves of characters, which stand for bytes of a broken file name.

    >>> storable_text("a\x00b\udcff")
    'a\\x00b\\udcff'
    """
    if text.isprintable():  # nearly all text; surrogates and NUL are not
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


def storable_key(key: str, length: int = KEY_LENGTH) -> str:
    """A key as the tables hold it: what is too long keeps its beginning and gets the SHA-256 of the whole.

    >>> len(storable_key("x" * 5000)), storable_key("line:1.png")
    (400, 'line:1.png')
    """
    clean = storable_text(key)
    if len(clean) <= length:
        return clean
    digest = hashlib.sha256(clean.encode()).hexdigest()
    return f"{clean[: length - _HASH_LENGTH - 1]}~{digest}"


def storable(value: Any) -> Any:
    """A JSON value with clean text, and None for numbers that are not finite: JSON has none of these.

    >>> storable({"score": float("nan"), "box": (1, 2)})
    {'score': None, 'box': [1, 2]}
    """
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        return storable_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, dict):
        return {storable_text(str(key)): storable(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [storable(each) for each in value]
    if isinstance(value, np.generic | np.ndarray):
        return storable(value.tolist())
    return storable_text(str(value))
