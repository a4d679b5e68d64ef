"""What every object store must do: written once, subclassed per kind of bucket.

A subclass gives the fixture `store` (empty, on the `clock` fixture where it stamps times itself).
"""

import asyncio
import os

import pytest

from streamhouse.errors import Internal
from streamhouse.stores.objects.base import ObjectExists, ObjectMissing, ObjectStore
from tests.contracts.clocks import ManualClock

BAD_KEYS = ["", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a b", "a\\b", "a\0b", "ä", "~uploads/x", "x" * 256]


async def keys_below(store: ObjectStore, prefix: str) -> list[str]:
    return [meta.key async for meta in store.list(prefix)]


class ObjectStoreContract:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    async def test_reads_back_what_was_written(self, store: ObjectStore) -> None:
        await store.put_new("wal/a/1", [b"hello ", bytearray(b"wide "), memoryview(b"world")])
        assert await store.get_range("wal/a/1", 0, 100) == b"hello wide world"

    async def test_an_object_may_be_empty(self, store: ObjectStore) -> None:
        await store.put_new("a/empty", [])
        await store.put_new("a/blank", [b"", b""])
        assert await store.get_range("a/empty", 0, 10) == b""
        assert await store.get_suffix("a/blank", 10) == b""
        assert (await store.head("a/empty")).size_bytes == 0

    async def test_thousands_of_buffers_are_one_object(self, store: ObjectStore) -> None:
        pieces = [bytes([n % 251]) * (n % 7) for n in range(5000)]
        await store.put_new("a/many", pieces)
        assert await store.get_range("a/many", 0, 10**6) == b"".join(pieces)

    async def test_a_large_object_survives_byte_for_byte(self, store: ObjectStore) -> None:
        body = os.urandom(1 << 20) * 3
        await store.put_new("a/large", [memoryview(body)[:1000], memoryview(body)[1000:]])
        assert await store.get_range("a/large", 0, len(body)) == body

    async def test_the_caller_may_reuse_its_buffers_after_a_put(self, store: ObjectStore) -> None:
        buffer = bytearray(b"first")
        await store.put_new("a/1", [buffer])
        buffer[:] = b"other"
        assert await store.get_range("a/1", 0, 5) == b"first"

    async def test_refuses_to_overwrite_an_object(self, store: ObjectStore) -> None:
        await store.put_new("a/1", [b"first"])
        with pytest.raises(ObjectExists) as refused:
            await store.put_new("a/1", [b"second"])
        assert refused.value.key == "a/1"
        assert await store.get_range("a/1", 0, 10) == b"first"

    async def test_of_sixteen_racing_creators_exactly_one_wins(self, store: ObjectStore) -> None:
        for round_ in range(10):
            key = f"race/{round_}"
            bodies = [f"creator {n}".encode() * 100 for n in range(16)]
            results = await asyncio.gather(*(store.put_new(key, [body]) for body in bodies), return_exceptions=True)
            assert sum(result is None for result in results) == 1
            assert sum(isinstance(result, ObjectExists) for result in results) == 15
            assert await store.get_range(key, 0, 10**6) == bodies[results.index(None)]

    async def test_a_range_is_half_open_and_ends_with_the_object(self, store: ObjectStore) -> None:
        await store.put_new("a/1", [b"0123456789"])
        assert await store.get_range("a/1", 2, 5) == b"234"
        assert await store.get_range("a/1", 8, 99) == b"89"
        assert await store.get_range("a/1", 4, 4) == b""
        assert await store.get_range("a/1", 50, 60) == b""

    async def test_a_suffix_is_the_end_or_the_whole(self, store: ObjectStore) -> None:
        await store.put_new("a/1", [b"0123456789"])
        assert await store.get_suffix("a/1", 3) == b"789"
        assert await store.get_suffix("a/1", 10) == b"0123456789"
        assert await store.get_suffix("a/1", 99) == b"0123456789"
        assert await store.get_suffix("a/1", 0) == b""

    async def test_ranges_that_make_no_sense_are_refused(self, store: ObjectStore) -> None:
        await store.put_new("a/1", [b"0123456789"])
        for start, end in ((-1, 3), (3, 2)):
            with pytest.raises(Internal):
                await store.get_range("a/1", start, end)
        with pytest.raises(Internal):
            await store.get_suffix("a/1", -1)

    async def test_what_is_not_there_is_missing(self, store: ObjectStore) -> None:
        await store.put_new("a/1", [b"x"])
        for key in ("a/2", "b/1", "a"):
            with pytest.raises(ObjectMissing):
                await store.get_range(key, 0, 1)
            with pytest.raises(ObjectMissing):
                await store.get_suffix(key, 1)
            with pytest.raises(ObjectMissing) as missing:
                await store.head(key)
            assert missing.value.key == key

    async def test_head_shows_size_and_time(self, store: ObjectStore, clock: ManualClock) -> None:
        await store.put_new("a/1", [b"12345"])
        meta = await store.head("a/1")
        assert (meta.key, meta.size_bytes, meta.modified_at_ms) == ("a/1", 5, clock.now_ms())

    async def test_lists_what_lies_below_a_prefix_in_key_order(self, store: ObjectStore) -> None:
        keys = ["a/b/1", "a/b/2", "a/b-c/1", "a/b.c", "a/b/1.x", "ab/1", "b/1", "a/10", "a/9", "a/Z", "a/_"]
        for key in keys:
            await store.put_new(key, [key.encode()])
        assert await keys_below(store, "a/") == sorted(key for key in keys if key.startswith("a/"))
        assert await keys_below(store, "a/b/") == ["a/b/1", "a/b/1.x", "a/b/2"]
        assert await keys_below(store, "") == sorted(keys)
        assert [meta.size_bytes async for meta in store.list("b/")] == [3]

    async def test_lists_nothing_below_an_unknown_prefix(self, store: ObjectStore) -> None:
        await store.put_new("a/1", [b"x"])
        assert await keys_below(store, "c/") == []
        assert await keys_below(store, "a/1/") == []

    async def test_lists_more_than_a_page(self, store: ObjectStore) -> None:
        await asyncio.gather(*(store.put_new(f"p/{n:05d}", [b""]) for n in range(1100)))
        assert await keys_below(store, "p/") == [f"p/{n:05d}" for n in range(1100)]

    async def test_a_listing_survives_deletes_on_the_way(self, store: ObjectStore) -> None:
        for n in range(5):
            await store.put_new(f"d/{n}", [b"x"])
        seen = []
        async for meta in store.list("d/"):
            seen.append(meta.key)
            await store.delete(meta.key)
            await store.delete("d/4")
        assert [key for key in seen if key != "d/4"] == ["d/0", "d/1", "d/2", "d/3"]
        assert await keys_below(store, "d/") == []

    async def test_a_deleted_object_is_gone_and_deleting_it_again_is_no_error(self, store: ObjectStore) -> None:
        await store.put_new("a/1", [b"x"])
        await store.delete("a/1")
        await store.delete("a/1")
        await store.delete("never/was")
        with pytest.raises(ObjectMissing):
            await store.head("a/1")
        assert await keys_below(store, "a/") == []

    @pytest.mark.parametrize("key", BAD_KEYS)
    async def test_a_key_that_no_bucket_should_see_is_refused(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(Internal):
            await store.put_new(key, [b"x"])
        with pytest.raises(Internal):
            await store.get_range(key, 0, 1)
        with pytest.raises(Internal):
            await store.get_suffix(key, 1)
        with pytest.raises(Internal):
            await store.head(key)
        with pytest.raises(Internal):
            await store.delete(key)
        assert await keys_below(store, "") == []

    @pytest.mark.parametrize("prefix", ["a", "/", "../", "a//", "a/../"])
    async def test_a_prefix_that_is_none_is_refused(self, store: ObjectStore, prefix: str) -> None:
        with pytest.raises(Internal):
            await keys_below(store, prefix)
