"""The HTTP port: health, metrics, segments, and errors as problem details."""

from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse import errors
from streamhouse.broker.broker import Broker
from streamhouse.broker.metrics import BrokerMetrics
from streamhouse.wire.http.app import make_app
from streamhouse.wire.http.errors import status_of
from tests.broker.support import ORDERS, World, batch, produce


@pytest.fixture
async def broker(world: World) -> Broker:
    return await world.start_with(ORDERS)


@pytest.fixture
async def http(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    registry = CollectorRegistry()
    registry.register(BrokerMetrics(broker))
    transport = httpx.ASGITransport(make_app(broker, registry))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        yield client


async def test_a_running_agent_is_live_and_ready(http: httpx.AsyncClient) -> None:
    assert (await http.get("/health/live")).json() == {"status": "live", "reason": None}
    response = await http.get("/health/ready")
    assert (response.status_code, response.json()["status"]) == (200, "ready")


async def test_an_agent_that_should_get_no_traffic_says_why(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    world.clock.skip(world.settings.lease.ttl_s)
    response = await http.get("/health/ready")
    assert response.status_code == 503
    assert "heartbeat" in response.json()["reason"]
    broker.stop()
    assert (await http.get("/health/ready")).json()["reason"] == "stopping"


async def test_metrics_count_what_went_through(broker: Broker, http: httpx.AsyncClient) -> None:
    await produce(broker, batch(b"a", b"b"))
    text = (await http.get("/metrics")).text
    assert "streamhouse_appended_records_total 2.0" in text
    assert "streamhouse_ready 1.0" in text
    assert "streamhouse_open_partitions 1.0" in text


async def test_segments_are_listed_by_topic(world: World, broker: Broker, http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/segments", params={"topic": "orders"})).json() == {"segments": [], "cursor": None}
    await produce(broker, batch(b"a", b"b"))
    await world.stop(broker, world.run(broker))
    (segment,) = (await http.get("/v1/segments")).json()["segments"]
    assert (segment["topic"], segment["partition"], segment["base"], segment["end"]) == ("orders", 0, 0, 2)
    assert segment["records"] == 2


@pytest.mark.parametrize("limit", ["0", "-1", "many", "10001", "²"])
async def test_a_bad_limit_is_refused_with_its_place_and_the_reason(http: httpx.AsyncClient, limit: str) -> None:
    response = await http.get("/v1/segments", params={"limit": limit})
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    (field_error,) = response.json()["errors"]
    assert (field_error["path"], "int" in field_error["reason"]) == ("$.limit", True)
    (field_error,) = (await http.get("/v1/topics/orders/partitions/-1/records")).json()["errors"]
    assert field_error["path"] == "$.partition"


async def test_an_unknown_topic_is_not_found(http: httpx.AsyncClient) -> None:
    response = await http.get("/v1/segments", params={"topic": "nothing"})
    assert response.status_code == 404
    assert response.json()["title"] == "UnknownTopic"
    assert "nothing" in response.json()["detail"]


async def test_an_unknown_path_is_not_found(http: httpx.AsyncClient) -> None:
    response = await http.get("/v2/everything")
    assert (response.status_code, response.headers["content-type"]) == (404, "application/problem+json")
    assert response.json()["title"] == "Not Found"


def tree(root: type[errors.StreamhouseError]) -> Iterator[type[errors.StreamhouseError]]:
    for child in root.__subclasses__():
        yield child
        yield from tree(child)


def test_every_error_has_a_status() -> None:
    for kind in tree(errors.StreamhouseError):
        if kind.__module__ == "streamhouse.errors":
            assert 400 <= status_of(kind.__new__(kind)) < 600
