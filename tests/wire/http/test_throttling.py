"""Clients above their quotas are read, and answered, more slowly over HTTP, too."""

import pytest
from starlette.types import Message

from streamhouse.broker.broker import Broker
from streamhouse.model.access import USER, Caller, Principal
from streamhouse.model.quota import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, QuotaEntity
from streamhouse.wire.http.throttling import Throttle
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
    throttle = Throttle(broker.security.quotas, caller, receive, send, clock=clock)
    assert len((await throttle.receive())["body"]) == 1500
    await throttle.send({"type": "http.response.start", "status": 200, "headers": []})
    await throttle.send({"type": "http.response.body", "body": b"y" * 1000})
    assert clock.slept == [pytest.approx(wait) for wait in waits]
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
