"""The memory store passes the contract, and outlives those who close it."""

import pytest

from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from tests.contracts.clocks import ManualClock
from tests.contracts.object_store import ObjectStoreContract


class TestMemoryObjectStore(ObjectStoreContract):
    @pytest.fixture
    def store(self, clock: ManualClock) -> ObjectStore:
        return MemoryObjectStore(clock)


async def test_what_was_put_is_there_for_the_next_life_of_an_agent() -> None:
    store = MemoryObjectStore(ManualClock())
    await store.put_new("a/1", [b"x"])
    await store.aclose()
    assert await store.get_range("a/1", 0, 1) == b"x"
