"""Retries, metrics, the start-up proof, and opening by URL."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.errors import Misconfigured, Unavailable
from streamhouse.stores.objects.base import Buffers, ObjectExists, ObjectMeta, ObjectMissing, ObjectStore
from streamhouse.stores.objects.folder import FolderObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.stores.objects.metered import MeteredStore
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.retrying import RetryingStore, RetrySettings
from streamhouse.stores.objects.startup_check import check_store
from tests.contracts.clocks import ManualClock, seeded_ids
from tests.contracts.object_store import ObjectStoreContract, keys_below


class TestRetryingStore(ObjectStoreContract):
    @pytest.fixture
    def store(self, clock: ManualClock) -> ObjectStore:
        return RetryingStore(MemoryObjectStore(clock), clock, seeded_ids())


class TestMeteredStore(ObjectStoreContract):
    @pytest.fixture
    def store(self, clock: ManualClock) -> ObjectStore:
        return MeteredStore(MemoryObjectStore(clock), CollectorRegistry(), clock)


class TestOpenedFolder(ObjectStoreContract):
    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[ObjectStore]:
        url = f"file://{tmp_path}/with%20space"
        store = open_object_store(url, clock=clock, ids=seeded_ids(), registry=CollectorRegistry())
        yield store
        await store.aclose()


class FaultyStore(MemoryObjectStore):
    """Fails calls as scripted: `before` the call has an effect, or `after`, when only the answer is lost."""

    def __init__(self, clock: ManualClock, *script: str) -> None:
        super().__init__(clock)
        self.script = list(script)
        self.calls: list[str] = []

    def _step(self, call: str) -> str:
        self.calls.append(call)
        return self.script.pop(0) if self.script else "ok"

    async def put_new(self, key: str, body: Buffers) -> None:
        step = self._step("put_new")
        _fail(step == "before")
        await super().put_new(key, body)
        _fail(step == "after")

    async def get_range(self, key: str, start: int, end: int) -> bytes:
        _fail(self._step("get_range") != "ok")
        return await super().get_range(key, start, end)

    async def get_suffix(self, key: str, length: int) -> bytes:
        _fail(self._step("get_suffix") != "ok")
        return await super().get_suffix(key, length)

    async def head(self, key: str) -> ObjectMeta:
        step = self._step("head")
        _fail(step == "before")
        if step == "missing":
            raise ObjectMissing(key)
        return await super().head(key)

    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        step = self._step("list")
        _fail(step == "before")
        async for meta in super().list(prefix):
            yield meta
            _fail(meta.key.endswith(step))

    async def delete(self, key: str) -> None:
        step = self._step("delete")
        _fail(step == "before")
        await super().delete(key)
        _fail(step == "after")


def _fail(now: bool) -> None:
    if now:
        raise Unavailable("scripted")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def retrying(inner: ObjectStore, clock: ManualClock, settings: RetrySettings | None = None) -> RetryingStore:
    return RetryingStore(inner, clock, seeded_ids(), settings)


# --- retries


async def test_reads_and_deletes_are_tried_again(clock: ManualClock) -> None:
    inner = FaultyStore(clock)
    await inner.put_new("a/1", [b"0123"])
    store = retrying(inner, clock)
    inner.script = ["before", "before"]
    assert await store.get_range("a/1", 1, 3) == b"12"
    inner.script = ["before"]
    assert await store.get_suffix("a/1", 1) == b"3"
    inner.script = ["before"]
    assert (await store.head("a/1")).size_bytes == 4
    inner.script = ["after"]
    await store.delete("a/1")
    assert await keys_below(inner, "") == []


async def test_a_listing_goes_on_behind_the_last_key_it_gave(clock: ManualClock) -> None:
    inner = FaultyStore(clock)
    for n in range(5):
        await inner.put_new(f"a/{n}", [b""])
    inner.script = ["before", "/1", "/1", "/3"]
    assert await keys_below(retrying(inner, clock), "a/") == [f"a/{n}" for n in range(5)]


async def test_waits_grow_with_jitter_and_end(clock: ManualClock) -> None:
    inner = FaultyStore(clock, *["before"] * 99)
    settings = RetrySettings(attempts=6, total_s=100, first_wait_s=1.0, max_wait_s=4.0)
    with pytest.raises(Unavailable, match="scripted"):
        await retrying(inner, clock, settings).get_range("a/1", 0, 1)
    assert len(inner.calls) == 6
    for waited, longest in zip(clock.slept, [1.0, 2.0, 4.0, 4.0, 4.0], strict=True):
        assert longest / 2 <= waited <= longest


async def test_no_attempt_begins_after_the_total_time(clock: ManualClock) -> None:
    inner = FaultyStore(clock, *["before"] * 99)
    settings = RetrySettings(attempts=99, total_s=10, first_wait_s=1.0, max_wait_s=4.0)
    began = clock.monotonic()
    with pytest.raises(Unavailable):
        await retrying(inner, clock, settings).delete("a/1")
    assert clock.monotonic() - began <= 10
    assert 3 <= len(inner.calls) <= 8


async def test_what_is_missing_or_taken_at_the_first_try_is_not_tried_again(clock: ManualClock) -> None:
    inner = FaultyStore(clock)
    store = retrying(inner, clock)
    with pytest.raises(ObjectMissing):
        await store.head("a/1")
    await store.put_new("a/1", [b"same"])
    with pytest.raises(ObjectExists):
        await store.put_new("a/1", [b"same"])
    assert inner.calls == ["head", "put_new", "put_new"]


@pytest.mark.parametrize("script", [["before"], ["after"], ["after", "before", "before"], ["before", "after"]])
async def test_a_put_whose_answer_was_lost_is_recognised_as_our_own(clock: ManualClock, script: list[str]) -> None:
    inner = FaultyStore(clock, *script)
    body: Buffers = [b"half ", memoryview(b"and half")]
    await retrying(inner, clock).put_new("a/1", body)
    inner.script = []
    assert await inner.get_range("a/1", 0, 99) == b"half and half"


async def test_a_large_put_is_compared_in_pieces(clock: ManualClock) -> None:
    inner = FaultyStore(clock, "after")
    await retrying(inner, clock).put_new("a/1", [bytes(5 << 20), b"x" * (5 << 20)])
    assert inner.calls.count("get_range") == 2


@pytest.mark.parametrize("theirs", [b"their bytes", b"longer than ours by far", b""])
async def test_another_writers_object_is_never_taken_for_our_own(clock: ManualClock, theirs: bytes) -> None:
    inner = FaultyStore(clock)
    await inner.put_new("a/1", [theirs])
    inner.script = ["before"]
    with pytest.raises(ObjectExists):
        await retrying(inner, clock).put_new("a/1", [b"these bytes"])
    assert await inner.get_range("a/1", 0, 99) == theirs


async def test_a_key_that_is_taken_and_then_absent_is_tried_again(clock: ManualClock) -> None:
    inner = FaultyStore(clock, "after", "ok", "missing")
    await retrying(inner, clock).put_new("a/1", [b"x"])
    assert inner.calls == ["put_new", "put_new", "head", "put_new", "head", "get_range"]


async def test_a_store_that_does_not_answer_is_unavailable(clock: ManualClock) -> None:
    class SilentStore(MemoryObjectStore):
        async def head(self, key: str) -> ObjectMeta:
            await never.wait()
            raise AssertionError

    never = asyncio.Event()
    settings = RetrySettings(attempts=2, attempt_timeout_s=0.01)
    with pytest.raises(Unavailable, match="timed out"):
        await retrying(SilentStore(clock), clock, settings).head("a/1")


# --- metrics


async def test_requests_bytes_and_outcomes_are_counted(clock: ManualClock) -> None:
    registry = CollectorRegistry()
    inner = FaultyStore(clock)
    store = MeteredStore(inner, registry, clock)
    await store.put_new("a/1", [b"12345", b"678"])
    with pytest.raises(ObjectExists):
        await store.put_new("a/1", [b"12345"])
    await store.get_range("a/1", 0, 4)
    await store.get_suffix("a/1", 2)
    with pytest.raises(ObjectMissing):
        await store.head("a/2")
    inner.script = ["before"]
    with pytest.raises(Unavailable):
        await store.delete("a/1")
    assert await keys_below(store, "a/") == ["a/1"]

    def requests(operation: str, outcome: str) -> float | None:
        labels = {"operation": operation, "outcome": outcome}
        return registry.get_sample_value("streamhouse_object_store_requests_total", labels)

    def moved(operation: str) -> float | None:
        return registry.get_sample_value("streamhouse_object_store_bytes_total", {"operation": operation})

    assert (requests("put_new", "ok"), requests("put_new", "exists")) == (1, 1)
    assert (requests("head", "missing"), requests("delete", "unavailable"), requests("list", "ok")) == (1, 1, 1)
    assert (moved("put_new"), moved("get_range"), moved("get_suffix")) == (8, 4, 2)
    assert registry.get_sample_value("streamhouse_object_store_seconds_count", {"operation": "put_new"}) == 2


async def test_every_attempt_counts_as_a_request(clock: ManualClock) -> None:
    registry = CollectorRegistry()
    inner = FaultyStore(clock, "before", "before")
    await retrying(MeteredStore(inner, registry, clock), clock).put_new("a/1", [b"x"])
    labels = {"operation": "put_new", "outcome": "unavailable"}
    assert registry.get_sample_value("streamhouse_object_store_requests_total", labels) == 2


# --- the start-up proof


class OverwritingStore(MemoryObjectStore):
    async def put_new(self, key: str, body: Buffers) -> None:
        await self.delete(key)
        await super().put_new(key, body)


class RacyStore(MemoryObjectStore):
    """Looks first and writes then."""

    async def put_new(self, key: str, body: Buffers) -> None:
        if key in [meta.key async for meta in self.list("")]:
            raise ObjectExists(key)
        await asyncio.sleep(0)
        await self.delete(key)
        await super().put_new(key, body)


class RangelessStore(MemoryObjectStore):
    async def get_range(self, key: str, start: int, end: int) -> bytes:
        return await super().get_range(key, 0, end)


class SuffixlessStore(MemoryObjectStore):
    async def get_suffix(self, key: str, length: int) -> bytes:
        return await super().get_range(key, 0, length)


class ForgetfulStore(MemoryObjectStore):
    async def put_new(self, key: str, body: Buffers) -> None:
        await super().put_new(key, [b"something else"])


class BlindStore(MemoryObjectStore):
    async def list(self, prefix: str) -> AsyncIterator[ObjectMeta]:
        for _ in ():
            yield _


class HoardingStore(MemoryObjectStore):
    async def delete(self, key: str) -> None:
        return


class AbsentStore(MemoryObjectStore):
    async def put_new(self, key: str, body: Buffers) -> None:
        raise Unavailable("no route to the bucket")


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (OverwritingStore, "second create was accepted"),
        (RacyStore, "racing creates"),
        (RangelessStore, "ranged read"),
        (SuffixlessStore, "suffix read"),
        (ForgetfulStore, "does not read back"),
        (BlindStore, "not listed"),
        (HoardingStore, "deleted object is still there"),
        (AbsentStore, "no route to the bucket"),
    ],
)
async def test_a_store_that_breaks_a_promise_is_refused_with_advice(
    clock: ManualClock, kind: Callable[[ManualClock], ObjectStore], what: str
) -> None:
    with pytest.raises(Misconfigured, match=rf"{what}.*do="):
        await check_store(kind(clock), seeded_ids())


async def test_good_stores_are_proven_and_left_clean(clock: ManualClock, tmp_path: Path) -> None:
    folder = FolderObjectStore(tmp_path, clock)
    for store in (MemoryObjectStore(clock), folder, retrying(MemoryObjectStore(clock), clock)):
        await check_store(store, seeded_ids())
        await check_store(store, seeded_ids())
        assert await keys_below(store, "") == []
    await folder.aclose()


async def test_a_folder_that_can_not_be_made_is_refused_with_advice(clock: ManualClock, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = FolderObjectStore(tmp_path / "file" / "below", clock)
    with pytest.raises(Misconfigured, match=r"ENOTDIR.*do="):
        await check_store(store, seeded_ids())
    await store.aclose()


# --- opening by URL


async def test_a_memory_url_opens(clock: ManualClock) -> None:
    store = open_object_store("memory:", clock=clock, ids=seeded_ids(), registry=CollectorRegistry())
    await check_store(store, seeded_ids())


@pytest.mark.parametrize("url", ["", "ftp://bucket", "file://host/path", "file:relative", "file:///", "/plain/path"])
def test_other_urls_are_refused_naming_the_supported_ones(clock: ManualClock, url: str) -> None:
    with pytest.raises(Misconfigured, match="file:///absolute/path, memory:"):
        open_object_store(url, clock=clock, ids=seeded_ids(), registry=CollectorRegistry())
