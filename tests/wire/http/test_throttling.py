"""Clients above their quotas are read, and answered, more slowly over HTTP, too."""

import asyncio
from types import SimpleNamespace

import pytest
from starlette.types import Message

from streamhouse.broker.broker import Broker
from streamhouse.model.access import USER, Caller, Principal
from streamhouse.model.quota import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from streamhouse.wire.http.throttling import Throttle
from streamhouse.wire.user_throttle import UserThrottle
from tests.broker.conftest import MakeWorld
from tests.contracts.clocks import ManualClock
from tests.wire.http.conftest import serving


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


async def test_who_creates_too_many_partitions_is_told_to_wait(broker: Broker) -> None:
    await broker.security.quotas.alter(QuotaEntity(user=DEFAULT), {CONTROLLER_MUTATION_RATE: 0.01})
    record = {"records": [{"value": 1}]}
    async with serving(broker) as http:
        assert (await http.post("/v1/topics", json={"name": "first", "partitions": 4})).status_code == 201
        for method, path, body in (
            ("POST", "/v1/topics", {"name": "second"}),
            ("PATCH", "/v1/topics/first", {"partitions": 5}),
            ("DELETE", "/v1/topics/first", None),
            ("POST", "/v1/topics/third/records", record),
        ):
            answer = await http.request(method, path, json=body)
            assert answer.status_code == 429, (method, path)
            assert int(answer.headers["retry-after"]) > 1
        assert [topic.name for topic in await broker.topics()] == ["first"]
        assert (await http.post("/v1/topics?dry_run=1", json={"name": "second"})).status_code == 200
        assert (await http.post("/v1/topics/first/records", json=record)).status_code == 200


async def test_a_request_that_is_refused_counts_no_more_than_a_topic_may_have(broker: Broker) -> None:
    quotas, most = broker.security.quotas, broker.settings.topics.max_partitions
    await quotas.alter(QuotaEntity(user=DEFAULT), {CONTROLLER_MUTATION_RATE: float(most)})
    async with serving(broker) as http:
        assert (await http.post("/v1/topics", json={"name": "first", "partitions": 2**31 - 1})).status_code == 422
    assert quotas.charge(CONTROLLER_MUTATION_RATE, 0, user="ANONYMOUS", client_id="") <= 1
