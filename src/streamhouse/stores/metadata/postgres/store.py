"""PostgresMetadataStore: the metadata store's door over PostgreSQL.

Data path   broker -> **store** -> one transaction each
Owns        nothing but putting the parts together
Leaves      the calls to `stores.metadata.store` and `transactions`, connections and transactions to `database`
"""

from typing import Self

from streamhouse.stores.metadata.postgres.connection import PostgresSettings
from streamhouse.stores.metadata.postgres.database import Database
from streamhouse.stores.metadata.postgres.url import parse_url
from streamhouse.stores.metadata.store import SqlMetadataStore


class PostgresMetadataStore(SqlMetadataStore):
    """A `MetadataStore`. The store's clock is the database's."""

    def __init__(self, url: str, settings: PostgresSettings | None = None) -> None:
        self._database = Database(parse_url(url), settings or PostgresSettings())
        super().__init__(self._database)

    async def open(self) -> Self:
        """Bring the schema up to date and connect; must come before any other call."""
        await self._database.open()
        return self
