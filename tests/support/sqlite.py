"""Databases in memory that are migrated once: a copy takes a tenth of the time of running every migration.

Databases in files run their migrations as ever, and have tests of their own.
"""

import sqlite3
from typing import Final

import pytest

from streamhouse.stores.metadata.sqlite.database import MEMORY, Database

_images: Final[list[bytes]] = []


def copy_migrated_databases(patch: pytest.MonkeyPatch) -> None:
    migrate = Database._migrate

    def copy(self: Database, connection: sqlite3.Connection) -> None:
        if self._path == MEMORY and _images:
            connection.deserialize(_images[0])
            return
        migrate(self, connection)
        if self._path == MEMORY:
            _images.append(connection.serialize())

    patch.setattr(Database, "_migrate", copy)
