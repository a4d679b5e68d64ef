"""PostgreSQL as a metadata store: the contract."""

from collections.abc import AsyncIterator, Iterator

import pytest

from streamhouse.errors import Rejected
from streamhouse.model.names import SessionId
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.open import open_metadata_store
from tests.contracts.metadata_store import MetadataStoreContract
from tests.support.postgres import DatabaseClock

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

    async def test_text_that_it_can_not_keep_is_the_callers_mistake(self, store: MetadataStore) -> None:
        with pytest.raises(Rejected, match="NUL"):
            await store.abandoned_ranges(SessionId("s-\0"))
        assert await store.topics() == []  # and the next call is served
