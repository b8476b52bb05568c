"""Options that need not be typed: ``DINOSAUR_STORE``, and a ``dinosaur.toml`` in the working folder or above it.

An option on the command line goes before the environment, that before the file, that before the default.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dinosaur_ad._plain import read_plain
from dinosaur_ad._text import first_line, printable
from dinosaur_ad.cli._console import say
from dinosaur_ad.cli._parser import share, thread_count
from dinosaur_ad.errors import InputError

STORE_VARIABLE = "DINOSAUR_STORE"
FILE = "dinosaur.toml"
_MOST_BYTES = 100_000


def _path(value: Any, folder: Path) -> Path:
    return folder / Path(_text(value, folder)).expanduser()


def _text(value: Any, folder: Path) -> str:
    if type(value) is not str or not value:
        raise ValueError
    return value


def _share(value: Any, folder: Path) -> float:
    if type(value) not in (int, float, str):
        raise ValueError
    return share(str(value))


def _threads(value: Any, folder: Path) -> int:
    if type(value) is not int:
        raise ValueError
    return thread_count(str(value))


KEYS: dict[str, tuple[Callable[[Any, Path], Any], str]] = {
    "store": (_path, "the path of a folder"),
    "provider": (_text, 'a name such as "openvino"'),
    "precision": (_text, 'a name such as "float16"'),
    "false_alarms": (_share, 'a share such as 0.025 or "2.5%"'),
    "threads": (_threads, "a whole number such as 4"),
    "overlays": (_path, "the path of a folder"),
}
"""Every key of the file: how its value is read, and what is expected of it."""


def apply_settings(arguments: argparse.Namespace) -> None:
    """Fill in the options of a verb that were not given, from the environment and the file.

    ``arguments.settings`` names those that the verb takes from there; verbs without it are left as they are.
    """
    wanted: tuple[str, ...] = getattr(arguments, "settings", ())
    if not wanted:
        return
    path = find_file(Path.cwd())
    values = read_file(path) if path else {}
    origin = dict.fromkeys(values, str(path))
    if variable := os.environ.get(STORE_VARIABLE):
        values["store"], origin["store"] = Path(variable).expanduser(), STORE_VARIABLE
    own_encoder = getattr(arguments, "engine", "local") == "ray" or getattr(arguments, "export", None)
    for key in wanted:
        if getattr(arguments, key) is not None or key not in values:
            continue
        if own_encoder and key in ("provider", "precision"):  # the export or the cluster decides
            continue
        setattr(arguments, key, values[key])
        if key == "store":
            say(f"store: {values[key]} (from {origin[key]})")
    if "store" in wanted and arguments.store is None:
        raise InputError(
            f'It is not said which store to use; add --store DIR, set {STORE_VARIABLE}, or write store = "DIR" into a '
            f"{FILE} here or in a folder above."
        )


def find_file(folder: Path) -> Path | None:
    """The ``dinosaur.toml`` of a folder, or of the nearest one above it, up to the home folder."""
    try:
        home: Path | None = Path.home()
    except RuntimeError:
        home = None
    for each in (folder, *folder.parents):
        if (each / FILE).is_file():
            return each / FILE
        if each == home:
            break
    return None


def read_file(path: Path) -> dict[str, Any]:
    """The values of a ``dinosaur.toml``, checked; paths in it are relative to its folder."""
    import tomllib

    try:
        document = tomllib.loads(read_plain(path, _MOST_BYTES).decode())
    except (OSError, ValueError) as error:
        raise InputError(f"The file {path} cannot be read ({first_line(error)}); correct or remove it.") from None
    values = {}
    for key, value in document.items():
        if key not in KEYS:
            raise InputError(
                f"The file {path} has an unknown key '{printable(key, 60)}'; the known ones are {', '.join(KEYS)}."
            )
        read, expected = KEYS[key]
        try:
            values[key] = read(value, path.parent)
        except ValueError:
            raise InputError(
                f"In the file {path}, '{key}' is {printable(repr(value), 60)}; it takes {expected}."
            ) from None
        except InputError as error:
            raise InputError(f"In the file {path}, '{key}' cannot be used: {error}") from None
    return values
