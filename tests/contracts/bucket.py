"""What a bucket must do beyond the contract of every store: the proof, races on many keys at once, objects and listings
of full size. Subclassed for the server that tests start, and for the one that somebody names.
"""

import asyncio
import os
from collections import Counter

import pytest

from streamhouse.clock import Ids, SystemClock
from streamhouse.stores.objects.base import ObjectExists, ObjectStore
from streamhouse.stores.objects.startup_check import check_store
from tests.contracts.object_store import ObjectStoreContract, keys_below

CLOCKS_DIFFER_MS = 2000
"""A server stamps by its own clock, and most cut to whole seconds."""


class BucketContract(ObjectStoreContract):
    async def test_of_sixteen_racing_creators_exactly_one_wins(self, store: ObjectStore) -> None:
        """All keys at once: some servers make the losers of one key wait for each other, a second at a time."""
        keys = [f"race/{n:03d}" for n in range(24)]
        wins: Counter[str] = Counter()
        winners: dict[str, bytes] = {}

        async def create(key: str, creator: int) -> None:
            body = f"creator {creator}".encode() * 100
            try:
                await store.put_new(key, [body])
            except ObjectExists:
                return
            wins[key] += 1
            winners[key] = body

        await asyncio.gather(*(create(key, n) for n in range(16) for key in keys))
        assert wins == Counter(keys)
        for key in keys:
            assert await store.get_range(key, 0, 10_000) == winners[key]

    async def test_head_shows_size_and_time(self, store: ObjectStore, clock: object) -> None:
        """The server stamps it."""
        before_ms = SystemClock().now_ms()
        await store.put_new("a/1", [b"12345"])
        meta = await store.head("a/1")
        assert (meta.key, meta.size_bytes) == ("a/1", 5)
        assert before_ms - CLOCKS_DIFFER_MS <= meta.modified_at_ms <= SystemClock().now_ms() + CLOCKS_DIFFER_MS

    async def test_a_segment_of_full_size_goes_in_one_piece_and_comes_back(self, store: ObjectStore) -> None:
        block = os.urandom(1 << 20)
        body = [block] * 64 + [b"footer"]
        await store.put_new("segments/1", body)
        assert (await store.head("segments/1")).size_bytes == (64 << 20) + 6
        assert await store.get_range("segments/1", 63 << 20, 64 << 20) == block
        assert await store.get_suffix("segments/1", 6) == b"footer"
        with pytest.raises(ObjectExists):
            await store.put_new("segments/1", body)

    async def test_a_tree_of_more_than_a_page_is_listed_in_key_order(self, store: ObjectStore) -> None:
        keys = [f"t/s{n % 7}{'-x' if n % 3 else ''}/{n:05d}" for n in range(1500)]
        for at in range(0, len(keys), 300):
            await asyncio.gather(*(store.put_new(key, [b""]) for key in keys[at : at + 300]))
        assert await keys_below(store, "t/") == sorted(keys)

    async def test_a_bucket_is_proven_and_left_clean(self, store: ObjectStore) -> None:
        await check_store(store, Ids())
        assert await keys_below(store, "") == []
