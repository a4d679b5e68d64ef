"""Pacing: fewer requests when a bucket complains, more when it doesn't, and never a storm of our own."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.config import StoreSettings
from streamhouse.errors import Unavailable
from streamhouse.stores.objects.adaptive import AdaptiveStore, ConcurrencyLimit, ConcurrencySettings, RequestQueue
from streamhouse.stores.objects.base import Buffers, ObjectExists, ObjectMeta, ObjectStore, Refused, Throttled
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.stores.objects.open import open_object_store
from tests.contracts.clocks import ManualClock, seeded_ids
from tests.contracts.object_store import ObjectStoreContract
from tests.support.fake_s3 import FakeS3


class TestAdaptiveStore(ObjectStoreContract):
    @pytest.fixture
    def store(self, clock: ManualClock) -> ObjectStore:
        return adaptive(MemoryObjectStore(clock), clock, ConcurrencySettings(max_concurrent=1))


def adaptive(inner: ObjectStore, clock: ManualClock, settings: ConcurrencySettings | None = None) -> AdaptiveStore:
    return AdaptiveStore(inner, clock, seeded_ids(), CollectorRegistry(), settings)


def pace(**settings: float) -> ConcurrencyLimit:
    return ConcurrencyLimit(ConcurrencySettings(**settings), seeded_ids())  # type: ignore[arg-type]


# --- the lanes


class SlowSegments(MemoryObjectStore):
    """Takes segments only when it is told to, and may ask for fewer of them."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.may_take = asyncio.Event()
        self.complains = False

    async def put_new(self, key: str, body: Buffers) -> None:
        if key.startswith("segments/"):
            if self.complains:
                raise Throttled("slow down")
            await self.may_take.wait()
        await super().put_new(key, body)


async def test_a_put_of_the_wal_does_not_wait_for_segments() -> None:
    clock = ManualClock()
    bucket = SlowSegments(clock)
    store = adaptive(bucket, clock, ConcurrencySettings(max_concurrent=2))
    segments = [asyncio.ensure_future(store.put_new(f"segments/{number}", [b"x"])) for number in range(5)]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await store.put_new("wal/1", [b"x"])
    assert not any(segment.done() for segment in segments)
    bucket.may_take.set()
    await asyncio.gather(*segments)


async def test_a_put_of_the_wal_does_not_wait_out_the_pause_of_segments() -> None:
    clock = ManualClock()
    bucket = SlowSegments(clock)
    bucket.complains = True
    store = adaptive(bucket, clock, ConcurrencySettings(first_pause_s=1000, max_pause_s=1000))
    with pytest.raises(Throttled):
        await store.put_new("segments/1", [b"x"])
    async with asyncio.timeout(5):
        await store.put_new("wal/1", [b"x"])


# --- the decision


def test_after_a_complaint_one_request_goes_first_and_half_of_the_others_follow() -> None:
    it = pace(max_concurrent=64, first_pause_s=1.0)
    it.failed(began_at=10, now=11, complained=True)
    assert it.limit == 1
    assert 11.5 <= it.resume_at <= 12
    it.succeeded(began_at=12)
    assert it.limit == 32


def test_a_failure_without_a_complaint_halves_the_limit_only() -> None:
    it = pace(max_concurrent=64)
    it.failed(began_at=10, now=11, complained=False)
    assert it.limit == 32
    assert it.resume_at < 0


def test_requests_of_the_same_burst_cut_once() -> None:
    it = pace(max_concurrent=64)
    for began_at in (9.0, 9.5, 10.0):
        it.failed(began_at=began_at, now=10.5, complained=False)
    assert it.limit == 32


def test_pauses_double_until_a_success_and_then_begin_anew() -> None:
    it = pace(first_pause_s=1.0, max_pause_s=4.0)
    pauses = []
    for now in (10.0, 20.0, 30.0, 40.0):
        it.failed(began_at=now, now=now, complained=True)
        pauses.append(it.resume_at - now)
    for pause_s, longest_s in zip(pauses, (1, 2, 4, 4), strict=True):
        assert longest_s / 2 <= pause_s <= longest_s
    it.succeeded(began_at=50)
    it.failed(began_at=60, now=60, complained=True)
    assert it.resume_at - 60 <= 1


def test_a_success_of_before_the_cut_does_not_end_the_pauses() -> None:
    it = pace(first_pause_s=1.0)
    it.failed(began_at=10, now=10, complained=True)
    it.succeeded(began_at=9)
    it.failed(began_at=20, now=20, complained=True)
    assert it.resume_at - 20 > 1


def test_the_limit_grows_by_one_for_every_round_of_successes() -> None:
    it = pace(max_concurrent=64)
    for n in range(4):
        it.failed(began_at=n, now=n, complained=False)
    assert it.limit == 4
    for _ in range(5):
        it.succeeded(began_at=10)
    assert it.limit == 5


@given(st.lists(st.tuples(st.sampled_from(["ok", "complaint", "failure"]), st.floats(0, 100)), max_size=200))
def test_the_limit_stays_between_one_and_its_setting(events: list[tuple[str, float]]) -> None:
    it = pace(max_concurrent=8)
    for number, (event, age_s) in enumerate(events):
        if event == "ok":
            it.succeeded(began_at=number - age_s)
        else:
            it.failed(began_at=number - age_s, now=float(number), complained=event == "complaint")
        assert 1 <= it.limit <= 8


# --- the queue


class GatedStore(MemoryObjectStore):
    """Answers when the test says so."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.resume = asyncio.Event()
        self.running = 0
        self.most = 0

    async def put_new(self, key: str, body: Buffers) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.resume.wait()
            await super().put_new(key, body)
        finally:
            self.running -= 1


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_no_more_requests_are_under_way_than_the_limit_and_all_are_served_in_order() -> None:
    clock = ManualClock()
    inner = GatedStore(clock)
    store = adaptive(inner, clock, ConcurrencySettings(max_concurrent=3))
    served: list[int] = []

    async def put(n: int) -> None:
        await store.put_new(f"a/{n}", [b""])
        served.append(n)

    tasks = [asyncio.create_task(put(n)) for n in range(20)]
    await turns()
    assert inner.running == 3
    inner.resume.set()
    await asyncio.gather(*tasks)
    assert inner.most == 3
    assert served == sorted(served)


async def test_a_full_lane_does_not_hold_up_the_others() -> None:
    clock = ManualClock()
    inner = GatedStore(clock)
    store = adaptive(inner, clock, ConcurrencySettings(max_concurrent=1))
    putting = [asyncio.create_task(store.put_new(f"a/{n}", [b""])) for n in range(3)]
    await turns()
    await store.delete("b/1")
    assert [meta async for meta in store.list("b/")] == []
    with pytest.raises(Exception, match="missing"):
        await store.head("b/1")
    inner.resume.set()
    await asyncio.gather(*putting)


async def test_too_many_waiting_calls_are_refused() -> None:
    clock = ManualClock()
    inner = GatedStore(clock)
    store = adaptive(inner, clock, ConcurrencySettings(max_concurrent=1, max_waiting=2))
    tasks = [asyncio.create_task(store.put_new(f"a/{n}", [b""])) for n in range(3)]
    await turns()
    with pytest.raises(Unavailable, match="too many calls wait"):
        await store.put_new("a/9", [b""])
    inner.resume.set()
    await asyncio.gather(*tasks)


async def test_nobody_waits_longer_than_the_limit_for_a_turn() -> None:
    clock = ManualClock()
    inner = GatedStore(clock)
    store = adaptive(inner, clock, ConcurrencySettings(max_concurrent=1, max_wait_s=0.05))
    first = asyncio.create_task(store.put_new("a/1", [b""]))
    await turns()
    with pytest.raises(Unavailable, match="waited too long"):
        await store.put_new("a/2", [b""])
    inner.resume.set()
    await first
    await store.put_new("a/3", [b""])


async def test_a_cancelled_wait_leaves_the_lane_as_it_was() -> None:
    clock = ManualClock()
    inner = GatedStore(clock)
    store = adaptive(inner, clock, ConcurrencySettings(max_concurrent=1))
    tasks = [asyncio.create_task(store.put_new(f"a/{n}", [b""])) for n in range(4)]
    await turns()
    tasks[1].cancel()
    tasks[2].cancel()
    inner.resume.set()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in done] == [type(None), asyncio.CancelledError, asyncio.CancelledError, type(None)]
    assert "running=0 limit=1 waiting=0" in repr(store)


async def test_responses_about_keys_are_no_sign_of_load_and_neither_are_refusals() -> None:
    lane = RequestQueue("write", ConcurrencySettings(max_concurrent=8), ManualClock(), seeded_ids())
    for error in (ObjectExists("a"), Refused("no", where="s3://b", do="ask")):
        with pytest.raises(type(error)):
            async with lane.slot():
                raise error
    assert lane.pace.limit == 8
    with pytest.raises(Throttled):
        async with lane.slot():
            raise Throttled("slow down")
    assert lane.pace.limit == 1


class Restless(ManualClock):
    """Time goes on between two looks at it, and sleepers wake up a little early, as those of event loops may."""

    def __init__(self, early_ms: int) -> None:
        super().__init__()
        self._early_ms = early_ms

    def monotonic(self) -> float:
        self.advance(ms=1)
        return super().monotonic()

    async def sleep(self, seconds: float) -> None:
        self.advance(ms=max(0, round(seconds * 1000) - self._early_ms))


@pytest.mark.parametrize("early_ms", range(4))
async def test_a_pause_that_ends_while_it_is_looked_at_is_over(early_ms: int) -> None:
    """With nothing under way nobody would ever say that a place is free: it was waited for until the deadline."""
    lane = RequestQueue(
        "write", ConcurrencySettings(first_pause_s=0.05, max_wait_s=0.5), Restless(early_ms), seeded_ids()
    )
    for _ in range(20):
        with pytest.raises(Throttled):
            async with lane.slot():
                raise Throttled("slow down")


# --- storms, through a real socket


class Weather(SystemClock):
    """The system's clock, a hundred times as fast."""

    def monotonic(self) -> float:
        return super().monotonic() * 100

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 100)


@pytest.fixture
async def server() -> AsyncIterator[FakeS3]:
    async with FakeS3() as server:
        yield server


async def test_in_a_storm_of_503_each_lane_sends_a_request_per_pause_and_recovers_by_itself(server: FakeS3) -> None:
    """Left to their own backoff, fifty callers who insist for a minute would send more than a thousand."""
    clock = Weather()
    settings = StoreSettings(max_retries=1000, retry_total_s=60, retry_wait_s=0.1, max_wait_s=3600)
    store = open_object_store(
        "s3://bucket",
        clock=clock,
        ids=Ids(),
        registry=CollectorRegistry(),
        settings=settings,
        environ=server.environment,
    )
    server.always = "503"
    puts = [store.put_new(f"a/{n}", [b"x"]) for n in range(50)]
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert all(isinstance(result, Unavailable) for result in results)
    while_pauses_grow, at_the_longest_pause, last_tries = 10, 60 / (settings.pause_max_s / 2), 50
    assert len(server.requests) <= 50 + while_pauses_grow + at_the_longest_pause + last_tries
    server.always = None
    await asyncio.gather(*(store.put_new(f"b/{n}", [b"x"]) for n in range(50)))
    assert len([key for key in server.objects if key.startswith("b/")]) == 50


async def test_deletes_drain_while_reads_are_throttled(server: FakeS3) -> None:
    settings = StoreSettings(max_retries=0, pause_s=3600, pause_max_s=3600, max_wait_s=0.05)
    store = open_object_store(
        "s3://bucket",
        clock=SystemClock(),
        ids=Ids(),
        registry=CollectorRegistry(),
        settings=settings,
        environ=server.environment,
    )
    server.objects = {f"a/{n}": b"x" for n in range(20)}
    server.script("GET", "503")
    with pytest.raises(Throttled):
        await store.get_range("a/1", 0, 1)
    with pytest.raises(Unavailable, match="waited too long"):
        await store.get_range("a/1", 0, 1)
    for key in list(server.objects):
        await store.delete(key)
    assert server.objects == {}


async def test_a_lane_that_nobody_throttles_costs_no_waiting() -> None:
    clock = ManualClock()
    store = adaptive(MemoryObjectStore(clock), clock)
    metas: list[ObjectMeta] = []
    for n in range(10):
        await store.put_new(f"a/{n}", [b"x"])
        metas.append(await store.head(f"a/{n}"))
    assert clock.slept == []
    assert len(metas) == 10
