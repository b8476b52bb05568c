"""The words of the page, in English and German: one TOML file a language, with the same keys."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from dinosaur_ad.station.config import LANGUAGES

FOLDER = Path(__file__).parent / "catalogue"
FALLBACK = "en"
SAID = "said."
"""The keys of sentences that the station writes into its history, in English."""
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?%?")


class Catalogue:
    """The words of one language; call it with a key and the values that its text names in braces.

    >>> Catalogue("en", {"live.title": "Live", "parts.found": "{count} parts"})("parts.found", count=3)
    '3 parts'
    """

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language = language
        self.texts = texts

    def __call__(self, key: str, **values: object) -> str:
        """The text of a key. A key that is missing is an error of the program, which a test finds."""
        text = self.texts[key]
        return text.format(**values) if values else text

    def several(self, key: str, count: int, **values: object) -> str:
        """The text for a number of things: ``KEY.one`` for one, ``KEY.other`` otherwise."""
        return self(f"{key}.{'one' if count == 1 else 'other'}", count=self.number(count, 0), **values)

    def number(self, value: float | None, digits: int = 3) -> str:
        """A number as it is written in the language; a dash where there is none.

        >>> Catalogue("de", {}).number(1234.5, 1), Catalogue("en", {}).number(None)
        ('1.234,5', '–')
        """
        if value is None:
            return "–"
        text = f"{value:,.{digits}f}"
        return text.translate(str.maketrans(",.", ".,")) if self.language == "de" else text

    def percent(self, share: float | None, digits: int = 1) -> str:
        """A share in percent, with the space that SI wants."""
        return "–" if share is None else f"{self.number(100 * share, digits)} %"

    def said(self, sentence: str) -> str:
        """What the station said, in this language; as it was said where the catalogue does not have the sentence.

        >>> catalogue("de").said("'cap' is now called 'lid'.")
        "'cap' heißt jetzt 'lid'."
        """
        for key, pattern in english_sentences() if self.language != FALLBACK else ():
            sentence = pattern.sub(partial(_filled, self.texts[key]), sentence)
        return sentence


@lru_cache
def catalogue(language: str) -> Catalogue:
    """The words of a language; English for one that the page does not have."""
    chosen = language if language in LANGUAGES else FALLBACK
    document = tomllib.loads((FOLDER / f"{chosen}.toml").read_text("utf-8"))
    return Catalogue(chosen, dict(_flat(document)))


@lru_cache
def english_sentences() -> list[tuple[str, re.Pattern[str]]]:
    """What finds the sentences of the station, with a group for each value."""
    texts = catalogue(FALLBACK).texts
    return [(key, _pattern(text)) for key, text in texts.items() if key.startswith(SAID)]


def _pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", text)
    return re.compile("".join(_value(part) if n % 2 else re.escape(part) for n, part in enumerate(parts)))


def _value(name: str) -> str:
    return rf"(?P<{name}>{r'[0-9]+' if name == 'count' else '.*?'})"


def _filled(text: str, found: re.Match[str]) -> str:
    """A sentence with the values of the one that was found, numbers with a decimal comma."""
    values = found.groupdict()
    return text.format(**{name: _comma(value) if _NUMBER.fullmatch(value) else value for name, value in values.items()})


def _comma(number: str) -> str:
    return number.replace(".", ",").replace("%", " %")


def _flat(document: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in document.items():
        found += _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else [(before + key, str(value))]
    return found


def key_of(word: str) -> str:
    """A word of the program, such as a verdict, as part of a key.

    >>> key_of("not ready")
    'not_ready'
    """
    return word.replace(" ", "_").replace("-", "_")
