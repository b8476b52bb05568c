"""What may be an account: names, roles, scopes, passwords. Pure checks; an InputError says what is wrong."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from dinosaur_ad._text import did_you_mean, printable
from dinosaur_ad.errors import InputError
from dinosaur_ad.station.config import LANGUAGES

ROLES = ("viewer", "operator", "engineer", "admin")
"""Each may do what those before it may."""
SCOPES = ("read", "inspect", "feedback", "teach", "admin")
"""What API tokens are for; "admin" includes the others, of which each stands for itself."""
SHORTEST_PASSWORD, LONGEST_PASSWORD = 10, 200
LOCAL = "local"
"""The name of whoever sits at the machine while there are no accounts; no account can have it."""
_LONGEST_NAME = 60


def rank(role: str) -> int:
    """The place of a role among :data:`ROLES`.

    >>> rank("viewer") < rank("admin")
    True
    """
    return ROLES.index(role)


def check_account_name(name: str) -> str:
    """A name of a person or a token, in Unicode's form NFC; an InputError otherwise."""
    clean = clean_name(name)
    if not clean or len(clean) > _LONGEST_NAME or not clean.isprintable() or any(each in clean for each in "/:\\"):
        raise InputError(
            f"'{printable(name, 60)}' is no name; take 1 to {_LONGEST_NAME} letters, digits, spaces or dashes."
        )
    if clean.casefold() == LOCAL:
        raise InputError(f"The name '{LOCAL}' is taken by whoever uses the station without accounts; take another.")
    return clean


def check_role(role: str) -> str:
    """A role that there is; an InputError otherwise."""
    if role not in ROLES:
        raise InputError(
            f"There is no role '{printable(role, 60)}'{did_you_mean(role, ROLES) or '; there are ' + ', '.join(ROLES)}."
        )
    return role


def check_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """Scopes that there are, at least one, each once; an InputError otherwise."""
    wanted = set(scopes)
    if unknown := sorted(wanted - set(SCOPES)):
        raise InputError(f"There is no scope '{printable(unknown[0], 60)}'; there are {', '.join(SCOPES)}.")
    if not wanted:
        raise InputError(f"A token needs at least one scope of {', '.join(SCOPES)}.")
    return tuple(scope for scope in SCOPES if scope in wanted)


def check_language(language: str) -> str:
    """A language that the page has, or none; an InputError otherwise."""
    if language and language not in LANGUAGES:
        raise InputError(f"The page has the languages {', '.join(LANGUAGES)}, not '{printable(language, 20)}'.")
    return language


def check_new_password(password: str, name: str) -> None:
    """Refuse passwords that are guessed at once; length is what counts."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise InputError(f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters; take a longer phrase.")
    if len(set(password)) < 5 or name.casefold() in password.casefold():
        raise InputError("This password is easily guessed; take a phrase of several words without the name.")


def clean_name(name: str) -> str:
    """A name as it is stored and compared."""
    return unicodedata.normalize("NFC", name).strip()
