"""Passwords and keys that lie in files of their own, so that the settings can be shown to anybody."""

from __future__ import annotations

import stat
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError

LARGEST = 4096


def read_secret(file: Path, what: str) -> str:
    """The text in ``file`` without the line end; ``what`` names it in sentences ("password", "key").

    :raises InputError: there is none, or it cannot be read. The sentence never has the secret in it.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
        text = data.decode().strip("\r\n")
    except OSError as error:
        raise InputError(f"The {what} in {printable(file)} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise InputError(f"The {what} in {printable(file)} is not text in UTF-8.") from None
    if not text or len(data) > LARGEST:
        amount = "empty" if not text else f"longer than {LARGEST} bytes"
        raise InputError(f"The file {printable(file)} should hold the {what}, but it is {amount}.")
    return text


def readable_by_others(file: Path | None) -> str:
    """A sentence if every user of this machine may read the file; empty otherwise."""
    try:
        if file is None or not file.stat().st_mode & stat.S_IROTH:
            return ""
    except OSError:
        return ""
    return f"Every user of this machine can read {printable(file)}; run: chmod 600 {printable(file)}"


def split_address(url: str, name: str) -> SplitResult:
    """The parts of a sink's address.

    :raises InputError: it has no host, a port that is none, or a password in it.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InputError(f"[[sink]] '{printable(name)}': its url is no address.") from None
    if not parts.hostname:
        raise InputError(f"[[sink]] '{printable(name)}': its url names no host.")
    if parts.username is not None or parts.password is not None:
        raise InputError(
            f"[[sink]] '{printable(name)}': its url has a user or a password in it; write username = ... and "
            "password_file = ... instead."
        )
    return parts


def shown_address(parts: SplitResult) -> str:
    """Scheme, host and port for sentences and logs: paths and queries of webhooks can be secrets.

    >>> shown_address(urlsplit("https://plant:8443/hook?token=abc"))
    'https://plant:8443'
    """
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    return printable(f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}")
