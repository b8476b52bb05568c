"""Images on disks and behind fsspec addresses: which ones are meant, and their files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import has_magic
from pathlib import Path
from typing import Any

from dinosaur_ad.cluster.connection import first_line
from dinosaur_ad.errors import InputError
from dinosaur_ad.images.loading import find_images, is_image_name


def find_everywhere(arguments: Sequence[str]) -> list[Path | str]:
    """Like :func:`~dinosaur_ad.images.loading.find_images`, and besides paths also fsspec addresses (``s3://bucket/folder``).

    :raises InputError: an argument leads to no image, or its file system cannot be reached.
    """
    found: dict[str, Path | str] = {}
    for argument in arguments:
        if is_address(argument):
            found |= {address: address for address in _addresses(argument)}
        else:
            found |= {os.path.realpath(path): path for path in find_images([argument])}
    return list(found.values())


def is_address(image: str | Path) -> bool:
    """Whether an image is named by an fsspec address and not by a path."""
    return isinstance(image, str) and "://" in image


def _addresses(argument: str) -> list[str]:
    filesystem, root = _filesystem(argument)
    try:
        if has_magic(root):
            names = [name for name in filesystem.glob(root) if is_image_name(Path(name))]
        elif filesystem.isdir(root):
            names = [name for name in filesystem.find(root) if is_image_name(Path(name))]
        else:
            names = [root] if filesystem.exists(root) else []
    except Exception as error:  # every file system has errors of its own
        raise InputError(f"'{argument}' cannot be listed ({first_line(error)}); check your access to it.") from error
    if not names:
        raise InputError(f"'{argument}' leads to no images; give an image file, a folder or a glob.")
    return [filesystem.unstrip_protocol(name) for name in sorted(names)]


def _filesystem(address: str) -> tuple[Any, str]:
    import fsspec

    try:
        filesystem, root = fsspec.core.url_to_fs(address)
    except (ValueError, ImportError) as error:
        raise InputError(f"The address '{address}' cannot be opened: {str(error).rstrip('.')}.") from error
    return filesystem, root


def as_file(address: str, place: Path) -> Path | InputError:
    """The file of an image, fetched to ``place`` if it lies elsewhere; or the error."""
    if not is_address(address):
        return Path(address)
    try:
        filesystem, root = _filesystem(address)
        filesystem.get_file(root, str(place))
    except InputError as error:
        return error
    except Exception as error:  # every file system has errors of its own
        return InputError(
            f"'{address}' could not be fetched ({first_line(error)}); check the address and your access to it."
        )
    return place
