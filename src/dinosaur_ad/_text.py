"""Text for people: foreign names and paths escaped for a terminal, p-values in words, the nearest known name."""

from __future__ import annotations

import difflib
import math
import re
import unicodedata
from collections.abc import Iterable

LONGEST_VALUE = 400
"""Characters of one value (a path, a name) that are shown; JSON has all of them."""
LONGEST_LINE = 2000
LONGEST_REASON = 200
RAREST = 1e-6
"""No p-value is said more exactly than that: no set of normal images could show it."""

_CUT = "…"
_LONG_WORD = re.compile(rf"\S{{{LONGEST_VALUE + 1},}}")


def printable(text: object, limit: int = LONGEST_VALUE) -> str:
    r"""``text`` as one line that changes nothing but its own place on the screen, at most ``limit`` characters long.

    Escaped is what is not printable: control characters and line ends, marks that reverse the direction of writing,
    characters without width, and the halves of characters that stand for bytes of a broken file name. What is too long
    loses its middle.

    >>> printable("a\x1b[2J\nnormal\u202e.png"), printable("0123456789", limit=5)
    ('a\\x1b[2J\\nnormal\\u202e.png', '01…89')
    """
    return _shortened(escaped(str(text)), limit)


def printable_line(text: str) -> str:
    """A sentence or a row with values of others in it: escaped as a whole, and every long word in it cut."""
    return _shortened(_LONG_WORD.sub(lambda word: _shortened(word[0], LONGEST_VALUE), escaped(text)), LONGEST_LINE)


def first_line(error: BaseException) -> str:
    """What an exception says, short enough for a sentence.

    >>> first_line(ValueError("no\\nway"))
    'no'
    """
    lines = str(error).strip().splitlines()
    return printable(lines[0].rstrip("."), LONGEST_REASON) if lines else type(error).__name__


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name, empty if no known name is near.

    >>> did_you_mean("inspct", ["inspect", "update"]), did_you_mean("x", ["inspect"])
    (', did you mean inspect?', '')
    """
    near = difflib.get_close_matches(word[:LONGEST_REASON], list(names), n=1)
    return f", did you mean {near[0]}?" if near else ""


def columns(text: str) -> int:
    """How many columns of a terminal a printable text takes: Chinese, Japanese and Korean letters and emoji take two.

    >>> columns("screw"), columns("\u87ba\u4e1d")
    (5, 4)
    """
    return sum(
        2 if unicodedata.east_asian_width(letter) in "WF" else not unicodedata.combining(letter) for letter in text
    )


def printable_page(text: str) -> str:
    """A document of many lines: its line ends are its own, everything else is escaped and nothing is cut."""
    return "\n".join(map(escaped, text.split("\n")))


def escaped(text: str) -> str:
    """``text`` with everything that is not printable written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def percent(share: float | None, decimals: int | None = None) -> str:
    """A share in percent: two digits, from 10 % on whole, or with so many decimals; a dash where there is none.

    >>> percent(0.00251), percent(0.316441), percent(0.9964), percent(1.2), percent(0.03, 1), percent(None)
    ('0.25 %', '32 %', '100 %', '120 %', '3.0 %', '–')
    """
    if share is None:
        return "–"
    value = 100 * share
    if decimals is not None:
        return f"{value:.{decimals}f} %"
    return f"{value:.2g} %" if value < 9.95 else f"{value:.0f} %"


def odds(p_value: float) -> str:
    """A p-value in plain words.

    >>> odds(0.025)
    '1 in 40 good parts would look this odd'
    >>> odds(0.9)
    'nearly every good part would look this odd'
    >>> odds(1e-9)
    'fewer than 1 in 1,000,000 good parts would look this odd'
    """
    if not 0 < p_value <= 1:  # NaN too
        return "how many good parts would look this odd is not known"
    if p_value < RAREST:
        return f"fewer than 1 in {1 / RAREST:,.0f} good parts would look this odd"
    one_in = math.floor(1 / p_value + 0.5)
    if one_in == 1:
        return "nearly every good part would look this odd"
    return f"1 in {one_in} good parts would look this odd"


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    kept = max(0, limit - len(_CUT))
    return f"{text[: kept - kept // 2]}{_CUT}{text[len(text) - kept // 2 :]}"
