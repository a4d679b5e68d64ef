"""Groups over HTTP: listed, described with what members read, their lag, resets and deletion."""

import asyncio
import struct
import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from streamhouse.errors import Unavailable
from streamhouse.model.group_lag import GroupLag, LagHistory, LagSample
from streamhouse.wire.http.routes import groups as routes
from streamhouse.wire.kafka.messages.sync_group import SyncGroupResponse
from tests.wire.kafka.members import Member
from tests.wire.kafka.talk import Client

from .conftest import Site, StartSite
from .test_streams import with_topic

BILLING = "/v1/groups/billing"


@pytest.fixture
async def site(start_site: StartSite) -> Site:
    """Ten records in each of two partitions."""
    site = await with_topic(await start_site())
    records = [{"value": number, "partition": number % 2, "timestamp_ms": 1000 + number} for number in range(20)]
    assert (await site.http.post("/v1/topics/orders/records", json={"records": records})).is_success
    return site


async def reset(site: Site, **requested: Any) -> httpx.Response:
    return await site.http.post(f"{BILLING}/reset", json=requested)


async def lag(site: Site) -> dict[int, tuple[int | None, int]]:
    response = (await site.http.get(f"{BILLING}/lag")).json()
    return {each["partition"]: (each["committed"], each["lag"]) for each in response["partitions"]}


async def test_a_group_is_made_by_a_reset_and_told_with_its_lag(site: Site) -> None:
    assert (await site.http.get("/v1/groups")).json() == {"groups": []}
    done = await reset(site, to="earliest", topics=[{"topic": "orders"}])
    assert done.json() == {
        "group": "billing",
        "partitions": [{"topic": "orders", "partition": each, "before": None, "after": 0} for each in range(2)],
    }
    assert (await site.http.get("/v1/groups")).json()["groups"] == [
        {"group": "billing", "state": "Empty", "protocol_type": ""}
    ]
    assert await lag(site) == {0: (0, 10), 1: (0, 10)}
    assert (await site.http.get(f"{BILLING}/lag")).json()["lag"] == 20


async def test_lag_counts_partitions_in_which_nothing_was_committed_from_the_logs_start(site: Site) -> None:
    await reset(site, to="latest", topics=[{"topic": "orders", "partitions": [0]}])
    assert await lag(site) == {0: (10, 0), 1: (None, 10)}
    assert (await site.http.get(f"{BILLING}/lag")).json()["lag"] == 10


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ({"to": "latest"}, {0: (10, 0), 1: (10, 0)}),
        ({"offset": 7}, {0: (7, 3), 1: (7, 3)}),
        ({"offset": 99}, {0: (10, 0), 1: (10, 0)}),
        ({"shift": 3}, {0: (7, 3), 1: (7, 3)}),
        ({"shift": -99}, {0: (0, 10), 1: (0, 10)}),
        ({"timestamp_ms": 1009}, {0: (5, 5), 1: (4, 6)}),
        ({"offset": 1, "topics": [{"topic": "orders", "partitions": [1]}]}, {0: (4, 6), 1: (1, 9)}),
        ({"offset": 1, "dry_run": True}, {0: (4, 6), 1: (4, 6)}),
    ],
)
async def test_a_group_moves_to_the_requested_agent(
    site: Site, requested: dict[str, Any], expected: dict[int, tuple[int, int]]
) -> None:
    assert (await reset(site, offset=4, topics=[{"topic": "orders"}])).is_success
    done = await reset(site, **requested)
    assert done.status_code == 200, done.text
    assert {each["before"] for each in done.json()["partitions"]} == {4}
    assert await lag(site) == expected


@pytest.mark.parametrize(
    ("requested", "status"),
    [
        ({}, 422),
        ({"to": "earliest", "offset": 1}, 422),
        ({"to": "earliest"}, 422),
        ({"to": "middle"}, 400),
        ({"offset": -1}, 400),
        ({"to": "earliest", "topics": [{"topic": "none"}]}, 404),
        ({"to": "earliest", "topics": [{"topic": "orders", "partitions": [2]}]}, 404),
    ],
)
async def test_a_reset_that_makes_no_sense_is_refused(site: Site, requested: dict[str, Any], status: int) -> None:
    response = await reset(site, **requested)
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")


async def test_a_group_with_members_is_reported_and_neither_moved_nor_deleted(site: Site) -> None:
    consumer = AIOKafkaConsumer(
        "orders", bootstrap_servers=str(site.agent.ready.kafka), group_id="billing", client_id="me"
    )
    await consumer.start()
    try:
        async with asyncio.timeout(20):
            await consumer.seek_to_beginning()  # there is an assignment then
            response = (await site.http.get(BILLING)).json()
        assert (response["state"], response["protocol_type"]) == ("Stable", "consumer")
        (member,) = response["members"]
        assert (member["client"], [each["partition"] for each in member["assigned"]]) == ("me", [0, 1])
        for refused in (
            await reset(site, to="earliest", topics=[{"topic": "orders"}]),
            await site.http.delete(BILLING),
        ):
            assert (refused.status_code, refused.json()["title"]) == (409, "NonEmptyGroup")
    finally:
        await consumer.stop()
    assert (await site.http.delete(BILLING)).status_code == 204
    assert (await site.http.get(BILLING)).status_code == 404


@pytest.mark.parametrize("path", [BILLING, f"{BILLING}/lag"])
async def test_a_group_that_is_not_there_is_not_found(site: Site, path: str) -> None:
    response = await site.http.get(path)
    assert (response.status_code, response.json()["title"]) == (404, "GroupNotFound")
    assert (await site.http.delete(BILLING)).status_code == 404


async def test_a_group_may_have_any_name(site: Site) -> None:
    made = await site.http.post("/v1/groups/a%2Fb%20ü/reset", json={"to": "earliest", "topics": [{"topic": "orders"}]})
    assert made.json()["group"] == "a/b ü"
    assert (await site.http.get("/v1/groups/a%2Fb%20ü/lag")).json()["lag"] == 20
    assert (await site.http.get("/v1/groups/a%2Fb%20ü")).json()["group"] == "a/b ü"


async def test_a_member_whose_assignment_lies_about_its_lengths_is_reported_without_one(site: Site) -> None:
    address = site.agent.ready.kafka
    client = await Client.connect(address.host, address.port)
    try:
        member = Member(client, group_id="billing")
        await member.join()
        never_ends = struct.pack(">hih", 0, 2**31 - 1, -6)
        synced = await client.call(member.sync_request({member.member_id: never_ends}), SyncGroupResponse, 5)
        assert synced.assignment == never_ends
        async with asyncio.timeout(20):
            response = (await site.http.get(BILLING)).json()
        assert [each["assigned"] for each in response["members"]] == [[]]
        assert response["state"] == "Stable"
    finally:
        await client.close()


async def test_a_group_that_reads_topics_by_the_thousand_that_do_not_exist_costs_no_reads_of_metadata(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = site.agent.ready.kafka
    client = await Client.connect(address.host, address.port)
    try:
        topics = ["orders", *(f"unknown-{number}" for number in range(5000))]
        names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
        member = Member(client, group_id="billing", metadata=struct.pack(">hi", 0, len(topics)) + names)
        await member.join()
        await client.call(member.sync_request({member.member_id: b""}), SyncGroupResponse, 5)
        catalog = site.agent.broker.catalog
        monkeypatch.setattr(catalog, "_miss_s", 0.0)
        before = catalog.misses
        assert await lag(site) == {0: (None, 10), 1: (None, 10)}
        assert catalog.misses - before < 5
    finally:
        await client.close()


async def test_histories_of_many_groups_are_read_in_parts_and_have_fewer_samples(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in ("a", "b", "c"):
        await site.http.post(f"/v1/groups/{group}/reset", json={"to": "earliest", "topics": [{"topic": "orders"}]})
    broker = site.agent.broker
    now_ms = int(time.time() * 1000)
    samples = tuple(LagSample(now_ms - 1000 + at, 100 - abs(at - 40), None) for at in range(100))
    histories = [LagHistory(group, samples) for group in ("a", "b", "c")]
    await broker.records._dependencies.metadata.put_group_lags(histories, now_ms=now_ms, forget_ms=1 << 40)
    requests = list[int]()
    lag_histories = broker.records.lag_histories

    async def counted(group_ids: Sequence[str]) -> Sequence[LagHistory]:
        requests.append(len(group_ids))
        return await lag_histories(group_ids)

    monkeypatch.setattr(broker.records, "lag_histories", counted)
    monkeypatch.setattr(routes, "GROUPS_AT_ONCE", 2)
    monkeypatch.setattr(routes, "MAX_SAMPLES", 30)
    for query, most in (({}, 0), ({"history": "true"}, 10)):
        groups = (await site.http.get("/v1/lag", params=query)).json()["groups"]
        assert [(each["group"], each["lag"]) for each in groups] == [("a", 41), ("b", 41), ("c", 41)]
        for each in groups:
            assert len(each["history"]) <= most
            assert max((sample["lag"] for sample in each["history"]), default=100) == 100
    assert requests == [2, 1, 2, 1]


async def test_a_group_whose_lag_can_not_be_measured_keeps_none_of_the_others_from_it(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in ("a", "b", "c"):
        await site.http.post(f"/v1/groups/{group}/reset", json={"to": "earliest", "topics": [{"topic": "orders"}]})
    monitor = site.agent.broker.group_lag
    lag_of = monitor._reader.lag

    async def lag(group_id: str) -> GroupLag:
        if group_id == "b":
            raise Unavailable("the leader is away")
        return await lag_of(group_id)

    monkeypatch.setattr(monitor._reader, "lag", lag)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await monitor.measure()
    measured = {each["group"]: each["at_ms"] for each in (await site.http.get("/v1/lag")).json()["groups"]}
    assert [group for group, at_ms in measured.items() if at_ms is not None] == ["a", "c"]


async def test_lag_in_time_is_the_age_of_the_first_record_that_is_not_committed(site: Site) -> None:
    old = {"value": "old", "partition": 0, "timestamp_ms": 1_000}
    now_ms = time.time_ns() // 1_000_000
    new = {"value": "new", "partition": 1, "timestamp_ms": now_ms - 5_000}
    for record in (old, new):
        assert (await site.http.post("/v1/topics/orders/records", json={"records": [record]})).is_success
    await reset(site, offset=10, topics=[{"topic": "orders"}])
    response = (await site.http.get(f"{BILLING}/lag")).json()
    first, second = response["partitions"]
    assert (first["lag"], second["lag"], response["lag"]) == (1, 1, 2)
    assert first["lag_ms"] >= now_ms - 1_000
    assert 5_000 <= second["lag_ms"] < 60_000
    assert response["lag_ms"] == first["lag_ms"]
    assert first["committed_at_ms"] >= now_ms
    await reset(site, to="latest")
    response = (await site.http.get(f"{BILLING}/lag")).json()
    assert {each["lag_ms"] for each in response["partitions"]} == {0}
    assert (response["health"], response["lag_ms"]) == ("caught up", 0)


async def test_records_that_an_open_transaction_holds_back_have_an_age(site: Site) -> None:
    """As they are part of the lag in records. A consumer of committed records is stuck before them."""
    await reset(site, to="latest", topics=[{"topic": "orders"}])
    producer = AIOKafkaProducer(bootstrap_servers=str(site.agent.ready.kafka), transactional_id="open")
    await producer.start()
    try:
        now_ms = time.time_ns() // 1_000_000
        async with producer.transaction():
            await producer.send_and_wait("orders", b"open", partition=0, timestamp_ms=now_ms - 60_000)
            new = {"value": "behind it", "partition": 0, "timestamp_ms": now_ms}
            assert (await site.http.post("/v1/topics/orders/records", json={"records": [new]})).is_success
            response = (await site.http.get(f"{BILLING}/lag")).json()
    finally:
        await producer.stop()
    assert [each["lag"] for each in response["partitions"]] == [2, 0]
    assert 60_000 <= response["partitions"][0]["lag_ms"] < 120_000
    assert response["lag_ms"] == response["partitions"][0]["lag_ms"]


async def test_measured_lag_is_listed_with_its_history_and_stands_in_the_metrics(site: Site) -> None:
    await reset(site, to="earliest", topics=[{"topic": "orders"}])
    assert (await site.http.get("/v1/lag")).json()["groups"][0]["at_ms"] is None
    monitor = site.agent.broker.group_lag
    await monitor.measure()
    await reset(site, offset=4)
    await monitor.measure()
    (listed,) = (await site.http.get("/v1/lag", params={"history": "true"})).json()["groups"]
    assert (listed["group"], listed["lag"]) == ("billing", 12)
    assert [each["lag"] for each in listed["history"]] == [20, 12]
    page = (await site.http.get("/metrics")).text
    assert 'kafka_consumergroup_group_lag{group="billing",partition="0",topic="orders"} 6.0' in page
    assert 'kafka_consumergroup_group_sum_lag{group="billing"} 12.0' in page
    assert 'kafka_consumergroup_group_max_lag_seconds{group="billing"}' in page
    assert (await site.http.delete(BILLING)).status_code == 204
    await monitor.measure()
    assert "billing" not in (await site.http.get("/metrics")).text
