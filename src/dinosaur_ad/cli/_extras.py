"""Packages that come with an extra: asked for before any work is done, and named when they are missing after all."""

from __future__ import annotations

from importlib.util import find_spec

from dinosaur_ad.errors import InputError, install_advice

EXTRAS = {
    **dict.fromkeys(("fsspec", "scipy", "torch", "transformers"), "bench"),
    **{"huggingface_hub": "hub", "openvino": "openvino", "ray": "ray"},
    **dict.fromkeys(
        ("aiomqtt", "alembic", "argon2", "fastapi", "jinja2", "multipart", "sqlalchemy", "uvicorn", "watchfiles"),
        "station",
    ),
    **{"av": "video", "psycopg": "postgres", "asyncua": "opcua", "pyarrow": "parquet"},
}
"""The extra that brings a package."""


def require(package: str, who: str) -> None:
    """Refuse at once what would fail for a missing package after minutes of work."""
    if find_spec(package) is None:
        how = install_advice(EXTRAS[package]) if package in EXTRAS else "install it"  # of a method of the user's
        raise InputError(f"{who} needs {package}, which is not installed; {how}.")


def missing(error: ImportError) -> str:
    """What is not installed, as a sentence."""
    package = (error.name or "").partition(".")[0]
    if package in EXTRAS:
        return f"This needs {package}, which is not installed; {install_advice(EXTRAS[package])}."
    return f"A part of the installation cannot be loaded ({error}); install dinosaur-ad again."
