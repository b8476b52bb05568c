"""Foreign text in a sentence of ours: names out of a file, what a library says when it fails."""

from __future__ import annotations

LONGEST = 200


def shown(text: str, longest: int = LONGEST) -> str:
    r"""Text that came from elsewhere, on one line, without control characters, and cut.

    >>> shown("a\nb\x1b[31m")
    'a\\nb\\x1b[31m'
    """
    cut = text if len(text) <= longest else f"{text[: longest - 3]}..."
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode("ascii")
        for letter in cut
    )


def first_line(error: BaseException) -> str:
    """What an exception says, short enough for a sentence.

    >>> first_line(ValueError("no\\nway"))
    'no'
    """
    lines = str(error).strip().splitlines()
    return shown(lines[0].rstrip(".")) if lines else type(error).__name__
