"""The formats of the history's database: one file a step in ``versions``, applied by Alembic without an ini file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection

HEAD = "0001"
"""The revision that ``station/tables.py`` describes; a test compares it with the newest file in ``versions``."""
VERSION_TABLE = "station_format"


def upgrade(connection: Connection) -> None:
    """Bring the tables to :data:`HEAD`, in the transaction of the connection."""
    from alembic import command

    command.upgrade(_config(connection), "head")


def revisions() -> set[str]:
    """All revisions that this program knows."""
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def _config(connection: Connection | None = None) -> Config:
    # Here and not above: a history of the newest format opens without importing Alembic.
    from alembic.config import Config

    config = Config()
    # A percent sign in the path would be an interpolation.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
