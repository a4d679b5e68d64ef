"""Heartbeats: how many may fail, whom they wait for, and who ends them."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from streamhouse.broker.heartbeat import Heartbeat, LoopState, SessionDeadline, open_heartbeats
from streamhouse.clock import SystemClock
from streamhouse.config import LeaseSettings, load_settings
from streamhouse.errors import SessionLost, Unavailable
from streamhouse.model.cluster import PutReport
from streamhouse.model.names import SessionId
from streamhouse.stores.metadata.sqlite.store import SqliteMetadataStore
from tests.broker.conftest import MakeWorld
from tests.broker.support import World, batch, current, produce

SESSION = SessionId("s-1")
SHORT = LeaseSettings(ttl_s=5.0, takeover_s=2.0, renew_s=0.3, margin_s=0.5, renew_timeout_s=0.5, stall_s=5.0)


def stand_still(seconds: float) -> None:
    """Nothing else runs in this thread."""
    time.sleep(seconds)


# --- the arithmetic


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"lease.renew_s": "10s"},
        {"lease.ttl_s": "3s", "lease.takeover_s": "1.2s", "lease.margin_s": "0.3s", "lease.renew_s": "0.3s"},
        {"lease.ttl_s": "3s", "lease.takeover_s": "1s", "lease.margin_s": "0.3s", "lease.renew_s": "0.5s"},
        {"lease.ttl_s": "60s", "lease.renew_timeout_s": "20s"},
    ],
)
def test_two_heartbeats_may_time_out_and_the_third_ends_before_an_append_is_refused(given: dict[str, object]) -> None:
    lease = load_settings(given, {}).lease
    third_ends_s = lease.renew_s + 3 * lease.heartbeat_timeout_s + 2 * lease.heartbeat_retry_s
    assert third_ends_s < lease.usable_s
    assert lease.usable_s < lease.life_ms / 1000


def test_by_default_a_heartbeat_and_its_deadline_take_less_than_half_of_the_time() -> None:
    lease = LeaseSettings()
    assert lease.renew_s + lease.heartbeat_timeout_s < lease.usable_s / 2


@pytest.mark.parametrize("how", ["refuse", "swallow"])
async def test_no_append_is_refused_while_two_heartbeats_in_a_row_fail(make_world: MakeWorld, how: str) -> None:
    world = await make_world()
    broker = await world.start_with()
    task = world.run(broker)
    lease = world.settings.lease
    for _ in range(3):  # rounds of two that fail and one that doesn't
        before = world.metadata.count("renew_session")
        held = world.metadata.hold("renew_session") if how == "swallow" else None
        if how == "refuse":
            world.metadata.refuse("renew_session", 2)
        while world.metadata.count("renew_session") < before + 3:
            await world.clock.advance(lease.heartbeat_retry_s / 4)
            assert current(broker).is_valid
            assert broker.not_ready() is None
        if held is not None:
            held.set()
        await world.clock.advance(0.01)
        await produce(broker, batch(b"a"))
    await world.stop(broker, task)


# --- the queue of SQLite


async def test_a_heartbeat_goes_ahead_of_what_waits_for_the_database(tmp_path: Path) -> None:
    store = await SqliteMetadataStore(str(tmp_path / "facts.db"), clock=SystemClock()).open()
    order: list[str] = []

    async def slowly(_: object) -> None:
        stand_still(0.02)  # in the thread of the database

    async def call(number: int) -> None:
        await store._engine.write(slowly)
        order.append(f"call {number}")

    async def renew() -> None:
        with pytest.raises(SessionLost):  # nobody has opened it
            await store.renew_session(SESSION, 1000)
        order.append("heartbeat")

    calls = [asyncio.ensure_future(call(number)) for number in range(10)]
    await asyncio.sleep(0)
    await asyncio.gather(*calls, renew())
    await store.aclose()
    assert order.index("heartbeat") <= 2


# --- the thread


class Renewals:
    """A store that records the time and the thread of each call."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.fails = False
        self.lost = False

    async def renew_session(
        self,
        session_id: SessionId,
        ttl_ms: int,
        *,
        wal_start: int = 0,
        wal_durable: int = 0,
        puts: PutReport | None = None,
    ) -> None:
        self.threads.append(threading.current_thread().name)
        if self.lost:
            raise SessionLost(session_id, why="claimed")
        if self.fails:
            raise Unavailable("no server answers")


@asynccontextmanager
async def given(store: Renewals) -> AsyncIterator[Renewals]:
    yield store


def beats(state: LoopState, deadline: SessionDeadline, lost: "list[SessionLost]", lease: LeaseSettings) -> Heartbeat:
    return Heartbeat(
        SESSION,
        lease,
        clock=SystemClock(),
        deadline=deadline,
        state=state,
        renewed=lambda _: None,
        lost=lost.append,
    )


async def test_what_counts_as_stored_is_the_start_of_the_log_that_was_sent_and_no_later_one() -> None:
    state, stored = LoopState(0.0), list[int]()
    state.wal_start = 3

    class FlushedMeanwhile(Renewals):
        async def renew_session(self, session_id: SessionId, ttl_ms: int, **sent: Any) -> None:
            assert sent["wal_start"] == 3
            state.wal_start = 7

    heartbeat = Heartbeat(
        SESSION,
        SHORT,
        clock=SystemClock(),
        deadline=SessionDeadline(0.0),
        state=state,
        renewed=stored.append,
        lost=lambda _: None,
    )
    await heartbeat.renew(FlushedMeanwhile())
    assert stored == [3]


async def test_a_loop_that_stands_still_does_not_cost_the_session_before_its_time() -> None:
    store, clock = Renewals(), SystemClock()
    thread = await open_heartbeats(lambda: given(store))
    deadline = SessionDeadline(clock.monotonic() + SHORT.usable_s)
    running = asyncio.ensure_future(thread.run(beats(LoopState(clock.monotonic()), deadline, [], SHORT)))
    await asyncio.sleep(0)
    stand_still(SHORT.usable_s + 0.5)
    assert deadline.is_valid(clock.monotonic())
    assert set(store.threads) == {"heartbeat"}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await thread.aclose()


async def test_heartbeats_end_when_the_loop_has_stood_still_for_too_long_and_begin_again_with_it() -> None:
    store, clock = Renewals(), SystemClock()
    lease = LeaseSettings(ttl_s=1.0, takeover_s=0.2, renew_s=0.05, margin_s=0.1, renew_timeout_s=0.1, stall_s=0.4)
    thread = await open_heartbeats(lambda: given(store))
    state, deadline = LoopState(clock.monotonic()), SessionDeadline(clock.monotonic() + lease.usable_s)
    running = asyncio.ensure_future(thread.run(beats(state, deadline, [], lease)))
    await asyncio.sleep(0)
    stand_still(lease.stall_s + lease.usable_s + 0.3)
    assert not deadline.is_valid(clock.monotonic())
    state.alive_at = clock.monotonic()
    async with asyncio.timeout(10):
        while not deadline.is_valid(clock.monotonic()):
            state.alive_at = clock.monotonic()
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await thread.aclose()


async def test_a_session_that_the_thread_finds_lost_is_lost_at_once() -> None:
    store, clock = Renewals(), SystemClock()
    store.lost = True
    thread = await open_heartbeats(lambda: given(store))
    deadline, lost = SessionDeadline(clock.monotonic() + 1000), list[SessionLost]()
    lease = LeaseSettings(renew_s=0.01)
    async with asyncio.timeout(10):
        await thread.run(beats(LoopState(clock.monotonic()), deadline, lost, lease))
    assert not deadline.is_valid(clock.monotonic())
    assert [str(error) for error in lost] == [str(SessionLost(SESSION, why="claimed"))]
    await thread.aclose()


async def test_a_thread_whose_store_cannot_be_opened_says_why() -> None:
    @asynccontextmanager
    async def away() -> AsyncIterator[Renewals]:
        store = Renewals()
        store.fails = True
        await store.renew_session(SESSION, 1000)
        yield store

    with pytest.raises(Unavailable, match="no server answers"):
        await open_heartbeats(away)


async def test_the_loop_shows_life_and_from_where_on_its_log_is_needed(world: World) -> None:
    broker = await world.start_with()
    task = world.run(broker)
    await world.clock.advance(100.0)
    state = current(broker)._loop_state
    assert world.clock.monotonic() - state.alive_at <= world.settings.lease.renew_s
    await world.stop(broker, task)
