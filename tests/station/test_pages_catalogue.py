"""The words of the page: both languages have the same, and no template uses one that is missing."""

from __future__ import annotations

import re
import string
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the pages need the extra 'station'")

from dinosaur_ad.bank.verdict import why_not_ready
from dinosaur_ad.station import warning_words
from dinosaur_ad.station.accounts import ROLES, SCOPES
from dinosaur_ad.station.teaching_words import missed_sentence
from dinosaur_ad.station.web import pages_frame
from dinosaur_ad.station.web.catalogue import catalogue, key_of
from dinosaur_ad.station.web.event_stream import said_in
from dinosaur_ad.station.web.sessions import PROBLEMS

SOURCES = [*(pages_frame.WEB / "templates").glob("*.html"), *pages_frame.WEB.glob("*.py")]
STATIC = sorted(path for path in pages_frame.STATIC.iterdir() if path.suffix in (".js", ".css", ".svg"))


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def used_keys() -> set[str]:
    found: set[str] = set()
    for path in SOURCES:
        text = path.read_text("utf-8")
        found |= set(re.findall(r'\bt(?:ext)?\("([a-z0-9_.]+)"[,)]', text))
        found |= {f"{key}.{form}" for key in re.findall(r'several\("([a-z0-9_.]+)"', text) for form in ("one", "other")}
    return found


def test_both_languages_have_the_same_keys_and_values() -> None:
    english, german = catalogue("en").texts, catalogue("de").texts
    assert english.keys() == german.keys()
    assert not [key for key in english if fields(english[key]) != fields(german[key])]
    assert all(text.strip() for text in (*english.values(), *german.values()))


def test_templates_use_no_key_that_is_missing() -> None:
    keys = used_keys()
    assert len(keys) > 100
    assert not keys - catalogue("en").texts.keys()


def test_words_that_are_put_together_are_there() -> None:
    words = [f"verdict.{key_of(each)}" for each in pages_frame.VERDICTS]
    words += [f"answer.{key_of(each)}" for each in pages_frame.ANSWERS]
    words += [f"nav.{name}" for name, _, _ in pages_frame.NAVIGATION]
    words += [f"role.{role}" for role in ROLES] + [f"role.{role}_may" for role in ROLES]
    words += [f"scope.{scope}" for scope in SCOPES] + [f"login.problem_{each}" for each in PROBLEMS]
    words += [f"feedback.{each}" for each in ("waiting", "taught", "kept", "refused", "noted", "withdrawn")]
    words += [f"state.{each}" for each in ("starting", "running", "waiting", "failed", "stopped")]
    words += [f"job.{each}" for each in ("waiting", "running", "done", "refused", "failed")]
    words += [f"proposals.{word}_{kind}" for word in ("name", "accept") for kind in ("product", "merge")]
    words += [f"proposals.title_{kind}" for kind in ("product", "merge", "split")]
    words += [f"proposals.about_{kind}" for kind in ("merge", "split")]
    assert not set(words) - catalogue("en").texts.keys()


def test_an_unknown_language_is_english() -> None:
    assert catalogue("fr").language == "en"


@pytest.mark.parametrize("path", STATIC, ids=lambda path: path.name)
def test_the_files_of_the_page_ask_nobody_else(path: Path) -> None:
    text = path.read_text("utf-8").replace("http://www.w3.org/", "")
    if path.name == "htmx.min.js":
        assert "eval" in text  # used only where htmx.config.allowEval says so
        return
    assert not re.findall(r"https?://|\burl\(|@import|\beval\(|new Function", text)


def test_htmx_evaluates_nothing_and_brings_its_licence() -> None:
    base = (pages_frame.WEB / "templates" / "base.html").read_text("utf-8")
    assert '"allowEval":false' in base
    assert '"includeIndicatorStyles":false' in base
    assert "Zero-Clause BSD" in (pages_frame.STATIC / "htmx.LICENSE.txt").read_text("utf-8")


def test_every_icon_that_is_used_is_drawn() -> None:
    drawn = set(re.findall(r'symbol id="([^"]+)"', (pages_frame.STATIC / "icons.svg").read_text("utf-8")))
    used = {name for path in SOURCES for name in re.findall(r'icon\("([^"]+)"\)', path.read_text("utf-8"))}
    used |= {key_of(each) for each in pages_frame.VERDICTS} | {f"answer-{key_of(each)}" for each in pages_frame.ANSWERS}
    used |= {name for name, _, _ in pages_frame.NAVIGATION} | {f"mark-{key_of(each)}" for each in pages_frame.VERDICTS}
    assert not used - drawn


def test_what_the_station_says_is_said_in_german() -> None:
    german = catalogue("de")
    for kind, tasks, channel, ratio in (
        ("light", ["gear", "cap"], "light", 0.92),
        ("shared", ["gear", "cap"], "score", 1.0),
        ("product", ["gear"], "light", 0.9),
        ("product", ["gear"], "light", 1.0),
        ("product", ["gear"], "score", 1.0),
    ):
        what, advice = warning_words._words(kind, tasks, channel, ratio)
        said = german.said(f"{what} {advice}")
        assert "'gear'" in said
        assert not re.search(r"\b(the|of|they|it)\b", said), said
    assert "92 %" in german.said(" ".join(warning_words._words("light", ["gear"], "light", 0.92)))
    for score in (0.5, 1.1):  # above what such pictures score, and too close to it
        reason = why_not_ready("gear", 1.0, np.float32([score]), 1.17)
        assert german.said(reason).startswith("Die Schwelle von 'gear'")
    assert german.said(missed_sentence("gear", ["a.png", "b.png"])).startswith("2 bestätigte Fehler von 'gear'")


def test_a_sentence_that_nobody_translated_is_shown_as_it_is() -> None:
    assert catalogue("de").said("The lamp fell down.") == "The lamp fell down."
    assert catalogue("en").said("'a' is now called 'b'.") == "'a' is now called 'b'."
    assert catalogue("de").said("'a{x}' is now called 'b'. And more.") == "'a{x}' heißt jetzt 'b'. And more."


def test_the_events_of_a_page_are_said_in_its_language() -> None:
    reason = "It shows none of the learned products: all of it differs from 'cap', the most similar one, 4.2 times as "
    body = {"key": "a", "reason": f"{reason}much as a good part does.", "views": [{"inspection": {"reason": "Odd."}}]}
    shown = said_in(body, catalogue("de"))
    assert "'cap'" in shown["reason"]
    assert "4,2-mal" in shown["reason"]
    assert shown["key"] == "a"
    assert shown["views"] == body["views"]
    assert "none of the learned" in body["reason"]  # the message itself, which others get too, is as it was
