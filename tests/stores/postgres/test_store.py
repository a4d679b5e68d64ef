"""PostgreSQL as a metadata store: the contract."""

from collections.abc import AsyncIterator, Iterator

import pytest

from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.open import open_metadata_store
from tests.contracts.metadata_store import MetadataStoreContract
from tests.postgres import DatabaseClock

pytestmark = pytest.mark.postgres


class TestPostgres(MetadataStoreContract):
    @pytest.fixture
    def clock(self, database: str) -> Iterator[DatabaseClock]:
        clock = DatabaseClock(database)
        yield clock
        clock.close()

    @pytest.fixture
    async def store(self, database: str, clock: DatabaseClock) -> AsyncIterator[MetadataStore]:
        store = await open_metadata_store(database, clock=clock)
        yield store
        await store.aclose()
