"""Clients above their quotas are read, and answered, more slowly over HTTP, too."""

import asyncio
from types import SimpleNamespace

import pytest
from starlette.types import Message

from streamhouse.broker.broker import Broker
from streamhouse.model.access import USER, Caller, Principal
from streamhouse.model.quota import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, QuotaEntity
from streamhouse.wire.http.throttling import Throttle
from streamhouse.wire.user_throttle import UserThrottle
from tests.broker.conftest import MakeWorld
from tests.contracts.clocks import ManualClock


@pytest.fixture
async def broker(make_world: MakeWorld) -> Broker:
    broker = await (await make_world()).start()
    limits = {PRODUCER_BYTE_RATE: 1000.0, CONSUMER_BYTE_RATE: 500.0}
    await broker.security.quotas.alter(QuotaEntity(user="alice"), limits)
    return broker


@pytest.mark.parametrize(("user", "waits"), [("alice", [0.5, 1.0]), ("bob", [])])
async def test_bodies_wait_for_the_rate_of_their_user(broker: Broker, user: str, waits: list[float]) -> None:
    clock, sent = ManualClock(), list[Message]()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 1500, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    caller = Caller(principal=Principal(USER, user))
    throttle = Throttle(UserThrottle(broker.security.quotas, caller, clock), receive, send)
    assert len((await throttle.receive())["body"]) == 1500
    await throttle.send({"type": "http.response.start", "status": 200, "headers": []})
    await throttle.send({"type": "http.response.body", "body": b"y" * 1000})
    assert clock.slept == [pytest.approx(wait) for wait in waits]
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


async def test_time_on_the_event_loop_counts_and_waiting_does_not(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, used_s = ManualClock(), [1.0]
    monkeypatch.setattr("streamhouse.wire.user_throttle.time", SimpleNamespace(thread_time=lambda: sum(used_s)))
    await broker.security.quotas.alter(QuotaEntity(user="carol"), {REQUEST_PERCENTAGE: 1.0})
    throttle = UserThrottle(broker.security.quotas, Caller(principal=Principal(USER, "carol")), clock)

    async def waits() -> str:
        asyncio.get_running_loop().call_soon(used_s.append, 0.5)  # others, meanwhile
        await asyncio.sleep(0)
        return "done"

    async def computes() -> None:
        used_s.append(0.05)

    assert await throttle.measured(waits()) == "done"
    await throttle.received(0)
    assert clock.slept == []
    await throttle.measured(computes())
    await throttle.received(0)
    assert clock.slept == [pytest.approx(4.0)]  # 5 % of a second, where 1 % of each is allowed


async def test_measured_work_hears_of_its_cancellation(broker: Broker) -> None:
    throttle = UserThrottle(broker.security.quotas, Caller(principal=Principal(USER, "alice")), ManualClock())
    heard = []

    async def works() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    task = asyncio.ensure_future(throttle.measured(works()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == ["cancelled"]
