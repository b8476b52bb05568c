"""Names: which ones a task may have, and what the files of a store are called."""

from __future__ import annotations

import re
import unicodedata
from fnmatch import fnmatchcase
from functools import lru_cache

from dinosaur_ad._atomic import TEMPORARY
from dinosaur_ad._text import printable
from dinosaur_ad.errors import InputError

TASKS = "tasks"
POINTER = "task.json"
FORGOTTEN = "forgotten.json"  # the pointer of a task that was forgotten by giving it this name
MANIFEST = "manifest.json"
LOCK = ".lock"
LOCKS = ".locks"
WRITER = ".writer"

_MOST_BYTES = 128  # of a name in UTF-8; file systems take 255, and the lock file of a task has a longer name
_FORBIDDEN = '/\\<>:"|?*'  # in names of files, somewhere
# Control characters, marks without width or that reverse the writing, halves of characters, line separators.
_UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_WINDOWS_DEVICES = {"CON", "PRN", "AUX", "NUL"} | {port + n for port in ("COM", "LPT") for n in "123456789"}
_FILE = re.compile(r"[a-z][a-z0-9_]*")
ARRAYS = ".safetensors"
_VERSION = re.compile(r"v([0-9]{4,10})")


def check_task_name(name: str) -> str:
    """Return ``name`` in Unicode's form NFC if it can name a folder on every system, else raise an InputError.

    >>> check_task_name("metal_nut-2.1"), check_task_name("Deckel gro\u00df"), check_task_name("\u87ba\u4e1d")
    ('metal_nut-2.1', 'Deckel groß', '螺丝')
    """
    normal = unicodedata.normalize("NFC", name)
    if is_task_name(normal):
        return normal
    raise InputError(
        f"A task cannot be called {printable(repr(name), 60)}: use letters, digits, spaces and signs other than "
        f"{' '.join(_FORBIDDEN)} (at most {_MOST_BYTES} bytes), no dot or space at an end, no '-' at the start and no "
        f"name reserved by Windows, for example {_cleaned(normal)!r}."
    )


@lru_cache(maxsize=2**14)  # every inspection asks for every task
def is_task_name(name: str) -> bool:
    """Tell whether a task may have this name: one that is safe as the name of a folder, in the form NFC."""
    return (
        0 < len(name.encode(errors="replace")) <= _MOST_BYTES
        and unicodedata.is_normalized("NFC", name)
        and not any(letter in _FORBIDDEN or unicodedata.category(letter) in _UNSEEN for letter in name)
        and name == name.strip()
        and name[0] not in ".-"
        and name[-1] != "."
        and name.partition(".")[0].rstrip().upper() not in _WINDOWS_DEVICES
    )


def is_file_name(file: str) -> bool:
    """Tell whether an array file of a task may have this name, which is written without its ending."""
    return bool(_FILE.fullmatch(file))


def is_array_file(name: str) -> bool:
    """Tell whether a file with arrays of a task may have this name, ending included."""
    return name.endswith(ARRAYS) and is_file_name(name.removesuffix(ARRAYS))


def is_own_file(name: str) -> bool:
    """Tell whether the store gives such a name to a file in the folder of a version."""
    return name == MANIFEST or is_array_file(name) or is_temporary(name)


def is_temporary(name: str) -> bool:
    """Tell whether this is the name of a file that a killed writer may leave."""
    return fnmatchcase(name, TEMPORARY)


def task_folder(name: str) -> str:
    """Return the folder of a task, relative to the store."""
    return f"{TASKS}/{name}"


def pointer_path(name: str) -> str:
    """Return the file that says which version of a task is current."""
    return f"{TASKS}/{name}/{POINTER}"


def forgotten_path(name: str) -> str:
    """Return what the pointer of a task is called when it was forgotten without writing anything."""
    return f"{TASKS}/{name}/{FORGOTTEN}"


def version_folder(name: str, version: int) -> str:
    """Return the folder of a version, relative to the store."""
    return f"{TASKS}/{name}/{version_name(version)}"


def version_number(folder: str) -> int | None:
    """Return the version that a folder of this name holds; None for any other folder.

    >>> version_number("v0003"), version_number("v3"), version_number("notes")
    (3, None, None)
    """
    found = _VERSION.fullmatch(folder)
    return int(found[1]) if found and version_name(int(found[1])) == folder else None


def version_name(version: int) -> str:
    """Return the name of the folder of a version.

    >>> version_name(3)
    'v0003'
    """
    return f"v{version:04d}"


def manifest_path(name: str, version: int) -> str:
    """Return the file that describes a version of a task."""
    return f"{TASKS}/{name}/{version_name(version)}/{MANIFEST}"


def array_path(name: str, version: int, file: str) -> str:
    """Return one of the files with the arrays of a version of a task."""
    return f"{TASKS}/{name}/{version_name(version)}/{file}{ARRAYS}"


def _cleaned(name: str) -> str:
    """A name near to ``name`` that a task may have, and that is easy to type."""
    seen = "".join("-" if letter in f"{_FORBIDDEN}'" or not letter.isprintable() else letter for letter in name)
    cut = re.sub("-+", "-", seen).strip(" .-").encode()[: _MOST_BYTES - 5].decode(errors="ignore").strip(" .-")
    return cut if is_task_name(cut) else f"task-{cut}".rstrip(" .-")
