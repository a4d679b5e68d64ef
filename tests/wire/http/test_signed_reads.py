"""Signed reads over HTTP: who may read a topic gets URLs for its records, and for nothing beside them in an object."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config.secrets import Secrets
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.stores.encryption.data_keys import DataKeys
from streamhouse.stores.objects.signed_reads import SignedRead
from tests.broker.conftest import MakeWorld
from tests.broker.support import World, batch, current, produce
from tests.wire.security import CLUSTER_SECRET, PASSWORD, SETTINGS, Headers, SecureWorld, serving

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)


class Signer:
    async def sign(self, key: str, start: int, end: int) -> SignedRead:
        return SignedRead(f"https://store/{key}", {"range": f"bytes={start}-{end - 1}"})


async def started(world: World, **dependencies: Any) -> SecureWorld:
    secrets = Secrets(cluster_secret=CLUSTER_SECRET, bootstrap_password=PASSWORD)
    broker = Broker(world.dependencies(secrets=secrets, **dependencies))
    await broker.start()
    for name in (ORDERS, PAYMENTS):
        await broker.create_topic(name.topic, partitions=1, overrides={})
        await produce(broker, batch(b"a", b"b"), name)
    await current(broker).flusher.flush_all()  # both into one object
    return SecureWorld(world=world, broker=broker)


@pytest.fixture
async def secure(make_world: MakeWorld) -> SecureWorld:
    return await started(await make_world(security=SETTINGS), signer=Signer())


@pytest.fixture
async def http(secure: SecureWorld) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(secure.broker) as client:
        yield client


async def run_of(http: httpx.AsyncClient, headers: Headers, topic: str) -> dict[str, Any]:
    response = await http.post("/v1/read-plans", json={"topics": [{"topic": topic}]}, headers=headers)
    assert response.json()["can_sign"] is True
    (partition,) = response.json()["partitions"]
    (run,) = partition["runs"]
    assert isinstance(run, dict)
    return run


async def sign(http: httpx.AsyncClient, headers: Headers, topic: str, **requested: Any) -> httpx.Response:
    body = {"topic": topic, "partition": 0, "offset": 0, **requested}
    return await http.post("/v1/signed-reads", json=body, headers=headers)


async def test_only_records_of_a_topic_that_the_caller_may_read_are_signed(
    secure: SecureWorld, http: httpx.AsyncClient
) -> None:
    both = await secure.user("both", *((Operation.READ, ResourceType.TOPIC, each) for each in ("orders", "payments")))
    alice = await secure.user("alice", (Operation.READ, ResourceType.TOPIC, "orders"))
    own, other = await run_of(http, both, "orders"), await run_of(http, both, "payments")
    key, start, end = own["key"], own["position"], own["position"] + own["length"]
    assert other["key"] == key  # the object has records of both topics

    response = await sign(http, alice, "orders", key=key, start=start, end=end)
    assert response.json() == {
        "url": f"https://store/{key}",
        "headers": {"range": f"bytes={start}-{end - 1}"},
        "expires_s": 300.0,
    }
    index = own["index_position"]
    assert (await sign(http, alice, "orders", key=key, start=index, end=index + own["index_length"])).status_code == 200

    assert (await sign(http, alice, "payments", key=key, start=start, end=end)).status_code == 403
    beside = other["position"]
    refused = [
        {"key": key, "start": beside, "end": beside + other["length"]},
        {"key": key, "start": start, "end": end + 1},
        {"key": key, "start": start - 1, "end": end},
        {"key": key, "start": start, "end": start},
        {"key": key, "start": end, "end": start},
        {"key": key, "start": start, "end": end, "offset": 2},
        {"key": "wal/another/00000000000000000001", "start": start, "end": end},
        {"key": "../" + key, "start": start, "end": end},
    ]
    for each in refused:
        response = await sign(http, alice, "orders", **each)
        assert (response.status_code, response.json()["title"]) == (409, "RunsChanged"), each


async def test_stores_that_sign_nothing_say_so(make_world: MakeWorld) -> None:
    encrypted: Any = object.__new__(DataKeys)
    for dependencies in ({}, {"signer": Signer(), "data_keys": encrypted}):
        secure = await started(await make_world(security=SETTINGS), **dependencies)
        alice = await secure.user("alice", (Operation.READ, ResourceType.TOPIC, "orders"))
        async with serving(secure.broker) as http:
            plan = await http.post("/v1/read-plans", json={"topics": [{"topic": "orders"}]}, headers=alice)
            assert plan.json()["can_sign"] is False
            response = await sign(http, alice, "orders", key="segments/a", start=0, end=1)
            assert (response.status_code, response.json()["title"]) == (422, "CannotSign")
