"""Alembic runs this file for each command; the connection comes from :func:`~.migrations.upgrade`."""

from __future__ import annotations

from alembic import context

from dinosaur_ad.station.history.migrations import VERSION_TABLE
from dinosaur_ad.station.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,  # the caller began a transaction, also on SQLite
    render_as_batch=True,  # SQLite changes a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
