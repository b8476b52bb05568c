"""Names that may come from strangers: each stays below its folder."""

from __future__ import annotations

import os


def relative_parts(name: str) -> tuple[str, ...]:
    """The parts of a relative name such as ``rows/03.npz``.

    >>> relative_parts("rows/03.npz")
    ('rows', '03.npz')

    :raises ValueError: the name could lead out of the folder it is used in, or be none at all.
    """
    parts = tuple(name.split("/"))
    strange = "\\" in name or (os.name == "nt" and ":" in name) or not name.isprintable()
    if strange or any(part in ("", ".", "..") for part in parts) or len(name) > 1000:
        raise ValueError(f"{_cut(name)!r} is no plain relative name")
    return parts


def _cut(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[:length]}…"
