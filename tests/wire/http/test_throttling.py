"""Clients above their quotas are read, and answered, more slowly over HTTP, too."""

import asyncio
from types import SimpleNamespace

import pytest
from starlette.types import Message

from streamhouse.broker.broker import Broker
from streamhouse.model.access import USER, Caller, Principal
from streamhouse.model.quota import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from streamhouse.wire.client_throttle import ClientThrottle
from streamhouse.wire.http.throttling import Throttle
from tests.broker.conftest import MakeWorld
from tests.contracts.clocks import ManualClock
from tests.wire.http.conftest import StartSite, serving


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
    throttle = Throttle(ClientThrottle(broker.security.quotas, caller, clock), receive, send)
    assert len((await throttle.receive())["body"]) == 1500
    await throttle.send({"type": "http.response.start", "status": 200, "headers": []})
    await throttle.send({"type": "http.response.body", "body": b"y" * 1000})
    assert clock.slept == [pytest.approx(wait) for wait in waits]
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


async def test_time_on_the_event_loop_counts_and_waiting_does_not(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, used_s = ManualClock(), [1.0]
    monkeypatch.setattr("streamhouse.wire.client_throttle.time", SimpleNamespace(thread_time=lambda: sum(used_s)))
    await broker.security.quotas.alter(QuotaEntity(user="carol"), {REQUEST_PERCENTAGE: 1.0})
    throttle = ClientThrottle(broker.security.quotas, Caller(principal=Principal(USER, "carol")), clock)

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
    throttle = ClientThrottle(broker.security.quotas, Caller(principal=Principal(USER, "alice")), ManualClock())
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
            response = await http.request(method, path, json=body)
            assert response.status_code == 429, (method, path)
            assert int(response.headers["retry-after"]) > 1
        assert [topic.name for topic in await broker.topics()] == ["first"]
        assert (await http.post("/v1/topics?dry_run=1", json={"name": "second"})).status_code == 200
        assert (await http.post("/v1/topics/first/records", json=record)).status_code == 200


async def test_a_request_that_is_refused_counts_no_more_than_a_topic_may_have(broker: Broker) -> None:
    quotas, most = broker.security.quotas, broker.settings.topics.max_partitions
    await quotas.alter(QuotaEntity(user=DEFAULT), {CONTROLLER_MUTATION_RATE: float(most)})
    async with serving(broker) as http:
        assert (await http.post("/v1/topics", json={"name": "first", "partitions": 2**31 - 1})).status_code == 422
    assert quotas.charge(CONTROLLER_MUTATION_RATE, 0, user="ANONYMOUS", client_id="") <= 1


async def test_quotas_of_a_client_id_apply_to_requests_that_name_it(broker: Broker) -> None:
    await broker.security.quotas.alter(QuotaEntity(client_id="loader"), {CONTROLLER_MUTATION_RATE: 0.01})
    statuses = []
    async with serving(broker) as http:
        for name, headers in (
            ("first", {"X-Client-Id": "loader"}),
            ("second", {"X-Client-Id": "loader"}),
            ("third", {"X-Client-Id": "other"}),
            ("fourth", {}),
        ):
            statuses.append((await http.post("/v1/topics", json={"name": name}, headers=headers)).status_code)
    assert statuses == [201, 429, 201, 201]


async def test_bytes_count_for_the_client_id_of_the_request(broker: Broker) -> None:
    await broker.security.quotas.alter(QuotaEntity(user="bob", client_id="loader"), {PRODUCER_BYTE_RATE: 1000.0})
    clock, bob = ManualClock(), Caller(principal=Principal(USER, "bob"))
    for client_id in ("", "other", "loader"):
        await ClientThrottle(broker.security.quotas, bob, clock, client_id=client_id).received(1500)
    assert clock.slept == [pytest.approx(0.5)]


async def test_a_connection_of_an_address_above_its_rate_waits(start_site: StartSite) -> None:
    site = await start_site()
    await site.http.get("/v1/topics")  # its connection is from before the quota
    quotas = site.agent.broker.security.quotas
    await quotas.alter(QuotaEntity(address="127.0.0.1"), {CONNECTION_CREATION_RATE: 0.1})
    _, writer = await site.connect()
    writer.write(b"GET /v1/topics HTTP/1.1\r\nHost: agent\r\n\r\n")

    async def waits() -> bool:
        return bool(await site.metric("streamhouse_http_delayed_connections_total"))

    await site.until(waits)
    assert (await site.http.get("/v1/topics")).status_code == 200
    assert quotas.charge_connection("127.0.0.1") > 10
    assert quotas.charge_connection("127.0.0.2") == 0
