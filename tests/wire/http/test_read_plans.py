"""Read plans: where records stand, told by any agent, in answers of a bounded size."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.config import PlanSettings
from streamhouse.model.names import TopicPartition
from streamhouse.wire.http.app import make_app
from tests.broker.conftest import MakeWorld
from tests.broker.support import NOW_MS, World, batch, current, produce


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world(plans=PlanSettings(max_runs=3, max_partitions=2))


async def flushed(broker: Broker, name: TopicPartition, *values: bytes) -> None:
    await produce(broker, batch(*values), name)
    await current(broker).flusher.flush_all()


@pytest.fixture
async def http(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(make_app(broker, CollectorRegistry(), cluster_id="cluster-1"))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        yield client


async def plan(http: httpx.AsyncClient, *topics: dict[str, Any], cursor: str | None = None) -> dict[str, Any]:
    response = await http.post("/v1/read-plans", json={"topics": list(topics), "cursor": cursor})
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


async def all_pages(http: httpx.AsyncClient, *topics: dict[str, Any]) -> list[dict[str, Any]]:
    """Every partition's plan, of as many answers as it takes."""
    results: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(50):
        page = await plan(http, *topics, cursor=cursor)
        assert sum(len(each["runs"]) for each in page["partitions"]) <= 3
        assert len(page["partitions"]) <= 2
        results += page["partitions"]
        cursor = page["next"]
        if cursor is None:
            return results
    raise AssertionError("the plan never ends")


async def test_a_plan_names_the_runs_the_store_and_the_tail(broker: Broker, http: httpx.AsyncClient) -> None:
    name = TopicPartition("orders", 1)
    await flushed(broker, name, b"a", b"b")
    await produce(broker, batch(b"c"), name)
    result = await plan(http, {"topic": "orders", "partitions": [{"partition": 1}]})
    (one,) = result["partitions"]
    (run,) = one["runs"]
    assert (one["topic"], one["partition"], one["log_start"], one["flushed_end"], one["end"]) == ("orders", 1, 0, 2, 3)
    assert one["topic_id"] == str((await broker.topic("orders")).topic_id)
    assert (run["base"], run["end"], run["stored_base"], run["records"]) == (0, 2, 0, 2)
    assert run["max_timestamp_ms"] == NOW_MS
    assert (result["store"], result["grace_s"], result["next"]) == ("memory:", 900.0, None)


async def test_only_runs_that_overlap_what_is_requested_are_named(broker: Broker, http: httpx.AsyncClient) -> None:
    name = TopicPartition("orders", 0)
    for value in (b"a", b"b", b"c"):
        await flushed(broker, name, value, value)
    expected = {"topic": "orders", "partitions": [{"partition": 0, "from": 3, "to": 4}]}
    (one,) = (await plan(http, expected))["partitions"]
    assert [(run["base"], run["end"]) for run in one["runs"]] == [(2, 4)]
    expected = {"topic": "orders", "partitions": [{"partition": 0, "from": 6}]}
    (one,) = (await plan(http, expected))["partitions"]
    assert (one["runs"], one["end"]) == ([], 6)


async def test_a_large_plan_comes_in_pages_that_leave_nothing_out(broker: Broker, http: httpx.AsyncClient) -> None:
    for partition, count in enumerate((5, 1, 7)):
        for _ in range(count):
            await flushed(broker, TopicPartition("orders", partition), b"x")
    runs: dict[int, list[int]] = {}
    for one in await all_pages(http, {"topic": "orders"}):
        runs.setdefault(one["partition"], []).extend(run["base"] for run in one["runs"])
    assert runs == {0: list(range(5)), 1: [0], 2: list(range(7))}


async def test_segments_are_listed_in_pages_that_leave_nothing_out(broker: Broker, http: httpx.AsyncClient) -> None:
    for partition, count in enumerate((2, 0, 5)):
        for _ in range(count):
            await flushed(broker, TopicPartition("orders", partition), b"x")
    results: list[tuple[int, int]] = []
    params: dict[str, str | int] = {"topic": "orders", "limit": 1000}
    for _ in range(4):
        page = (await http.get("/v1/segments", params=params)).json()
        assert len(page["segments"]) <= 3
        results += [(each["partition"], each["base"]) for each in page["segments"]]
        if page["cursor"] is None:
            break
        params["cursor"] = page["cursor"]
    assert results == [(0, 0), (0, 1), *((2, base) for base in range(5))]


async def test_segments_show_their_origin_and_compression(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    await flushed(broker, TopicPartition("orders", 0), b"x" * 10_000)
    await flushed(broker, TopicPartition("orders", 1), b"y")
    (plain, _) = (await http.get("/v1/segments", params={"topic": "orders"})).json()["segments"]
    assert (plain["origin"], plain["blocks"]) == ("flushed", None)
    params = {"topic": "orders", "blocks": "true"}
    (large, small) = (await http.get("/v1/segments", params=params)).json()["segments"]
    assert (large["blocks"]["blocks"], large["blocks"]["lz4_blocks"]) == (1, 1)
    assert large["bytes"] < 1000 < 10_000 < large["blocks"]["raw_bytes"] < 10_200
    assert small["blocks"]["raw_bytes"] >= small["bytes"]


@pytest.mark.parametrize("cursor", ["orders", "orders:0", "orders:0:0:0", "orders:0:-1", "²:²:²", "x" * 400])
async def test_a_cursor_of_nobody_is_refused(http: httpx.AsyncClient, cursor: str) -> None:
    response = await http.get("/v1/segments", params={"cursor": cursor})
    assert response.status_code == (400 if len(cursor) > 300 else 422)


async def test_partitions_without_records_are_reported_too(http: httpx.AsyncClient) -> None:
    result = await all_pages(http, {"topic": "orders"})
    assert [(each["partition"], each["end"], each["runs"]) for each in result] == [(0, 0, []), (1, 0, []), (2, 0, [])]


async def test_runs_below_the_log_start_are_not_named(broker: Broker, http: httpx.AsyncClient) -> None:
    name = TopicPartition("orders", 0)
    for value in (b"a", b"b"):
        await flushed(broker, name, value)
    await broker.topic_admin.delete_records(name, 1)
    (one,) = (await plan(http, {"topic": "orders", "partitions": [{"partition": 0, "from": 0}]}))["partitions"]
    assert (one["log_start"], [run["base"] for run in one["runs"]]) == (1, [1])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"topics": [{"topic": "nothing"}]}, 404),
        ({"topics": [{"topic": "orders", "partitions": [{"partition": 3}]}]}, 404),
        ({"topics": [{"topic": "orders"}, {"topic": "orders"}]}, 422),
        ({"topics": [{"topic": "orders"}], "cursor": "orders:7:0"}, 422),
        ({"topics": [{"topic": "orders"}], "cursor": "orders:0"}, 422),
        ({"topics": [{"topic": "orders"}], "cursor": "orders:0:0:0"}, 422),
        ({"topics": [{"topic": "orders"}], "cursor": "²"}, 422),
        ({"topics": [{"topic": "orders", "partitions": [{"partition": 0, "from": -1}]}]}, 400),
        ({}, 400),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    http: httpx.AsyncClient, body: dict[str, Any], status: int
) -> None:
    assert (await http.post("/v1/read-plans", json=body)).status_code == status


async def test_no_topics_are_planned_with_nothing(http: httpx.AsyncClient) -> None:
    assert (await plan(http))["partitions"] == []


async def test_the_offset_of_a_time_is_reported_by_partition(broker: Broker, http: httpx.AsyncClient) -> None:
    name = TopicPartition("orders", 1)
    await produce(broker, batch(b"a", b"b", timestamps_ms=[NOW_MS, NOW_MS + 10]), name)
    response = await http.get("/v1/topics/orders/offsets", params={"timestamp": NOW_MS + 5})
    assert response.json()["offsets"] == [
        {"partition": 0, "offset": None, "timestamp_ms": None},
        {"partition": 1, "offset": 1, "timestamp_ms": NOW_MS + 10},
        {"partition": 2, "offset": None, "timestamp_ms": None},
    ]
    response = await http.get("/v1/topics/orders/offsets", params={"timestamp": 0, "partition": 1})
    assert response.json()["offsets"] == [{"partition": 1, "offset": 0, "timestamp_ms": NOW_MS}]
    response = await http.get("/v1/topics/orders/offsets", params={"timestamp": 0, "partition": 9})
    assert response.status_code == 404
