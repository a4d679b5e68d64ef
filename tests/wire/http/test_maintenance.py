"""Maintenance over HTTP: runs are told page by page, and replaced by what a job wrote, or refused with a reason."""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from streamhouse.broker.broker import Broker
from streamhouse.config import ExternalCommitSettings, PlanSettings, RetentionSettings
from streamhouse.format.batch import Buffer
from streamhouse.format.object_keys import external_segment_key
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.model.external_commit import QueryId
from streamhouse.model.names import Epoch, PartitionId, TopicPartition
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from tests.broker.conftest import MakeWorld
from tests.broker.support import NOW_MS, World, batch, current, fetch, produce, settle, values_of
from tests.wire.http.conftest import make_world

__all__ = ["make_world"]

JOB = QueryId("11111111-89ab-cdef-0123-456789abcdef")
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
async def world(make_world: MakeWorld) -> World:
    return await make_world(plans=PlanSettings(max_runs=3), placing=ExternalCommitSettings(max_runs=8, timeout_s=5))


async def flushed(broker: Broker, name: TopicPartition, *values: bytes) -> None:
    for value in values:
        await produce(broker, batch(value), name)
        await current(broker).flusher.flush_all()


async def plan_of(http: httpx.AsyncClient, topic: str = "orders") -> dict[int, dict[str, Any]]:
    """Every partition once."""
    result: dict[int, dict[str, Any]] = {}
    cursor: str | None = None
    for _ in range(100):
        response = await http.post("/v1/maintenance/plan", json={"topic": topic, "cursor": cursor})
        assert response.status_code == 200, response.text
        page = response.json()
        for each in page["partitions"]:
            known = result.setdefault(each["partition"], each)
            if known is not each:
                known["runs"] += each["runs"]
        cursor = page["next"]
        if cursor is None:
            return result
    raise AssertionError("the plan never ends")


def expected_of(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: run[name] for name in ("key", "base", "end", "epoch")} for run in runs]


async def rewritten(
    world: World,
    broker: Broker,
    runs: Sequence[dict[str, Any]],
    name: TopicPartition = FIRST,
    *,
    put: bool = True,
    **changes: Any,
) -> dict[str, Any]:
    """What a job asks for after it has written these runs of one epoch as one."""
    topic = await broker.topic(name.topic)
    partition = PartitionId(topic.topic_id, name.partition)
    batches: list[Buffer] = []
    for offset in range(runs[0]["base"], runs[-1]["end"]):
        batches.append(b"".join((await fetch(broker, offset, name, max_bytes=1)).records))
    given = RunInput(
        partition=partition,
        epoch=Epoch(runs[0]["epoch"]),
        base=runs[0]["base"],
        end=runs[-1]["end"],
        batches=batches,
        producers=b"",
    )
    encoded = encode_segment([given])
    key = external_segment_key(JOB, 0, uuid.uuid4().hex)
    if put:
        await world.bucket.put_new(key, encoded.body)
    (entry,) = (layout.entry for layout in encoded.layouts)
    run = {
        "base": entry.base,
        "end": entry.end,
        "epoch": entry.epoch,
        "position": entry.position,
        "length": entry.length,
        "index_position": entry.index_position,
        "index_length": entry.index_length,
        "records": entry.records,
        "max_timestamp_ms": entry.max_timestamp_ms,
    }
    return {
        "topic": name.topic,
        "topic_id": str(topic.topic_id),
        "partition": name.partition,
        "expected": expected_of(runs),
        "segment": {"key": key, "size_bytes": encoded.size_bytes, "created_at_ms": NOW_MS, "runs": [run]},
        **changes,
    }


async def test_a_plan_names_every_run_once_however_many_pages_it_takes(broker: Broker, http: httpx.AsyncClient) -> None:
    await flushed(broker, FIRST, b"a", b"b", b"c", b"d", b"e")
    await flushed(broker, SECOND, b"x", b"y")
    plan = await plan_of(http)
    assert [(run["base"], run["end"]) for run in plan[0]["runs"]] == [(n, n + 1) for n in range(5)]
    assert [(run["base"], run["end"]) for run in plan[1]["runs"]] == [(0, 1), (1, 2)]
    assert {number: (each["log_start"], each["flushed_end"], each["cleaned_to"]) for number, each in plan.items()} == {
        0: (0, 5, 0),
        1: (0, 2, 0),
        2: (0, 0, 0),
    }
    assert plan[0]["runs"][0]["epoch"] == broker.leader_epoch(FIRST)
    response = (await http.post("/v1/maintenance/plan", json={"topic": "orders"})).json()
    assert response["effective_settings"]["cleanup.policy"] == "delete"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"topic": "nothing"}, 404),
        ({}, 400),
        ({"topic": "orders", "cursor": "x"}, 422),
        ({"topic": "orders", "cursor": "9:0"}, 422),
        ({"topic": "orders", "more": 1}, 400),
    ],
)
async def test_strange_requests_are_refused(
    broker: Broker, http: httpx.AsyncClient, body: dict[str, Any], status: int
) -> None:
    assert (await http.post("/v1/maintenance/plan", json=body)).status_code == status


async def test_runs_are_replaced_once_and_the_result_returned_for_every_repetition(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    await flushed(broker, FIRST, b"a", b"b", b"c")
    body = await rewritten(world, broker, (await plan_of(http))[0]["runs"])
    for _ in range(2):
        response = await http.post("/v1/replacements", json=body)
        assert (response.status_code, response.json()) == (200, {"replaced": 3})
    [run] = (await plan_of(http))[0]["runs"]
    assert (run["key"], run["base"], run["end"]) == (body["segment"]["key"], 0, 3)
    assert await values_of(broker, FIRST) == {0: b"a", 1: b"b", 2: b"c"}
    assert broker.maintenance.replacements.replaced == 1
    await world.clock.advance(RetentionSettings().grace_s)
    await broker.retention.delete_pending()
    assert not await world.object_keys()
    assert await values_of(broker, FIRST) == {0: b"a", 1: b"b", 2: b"c"}


async def test_a_response_that_is_lost_changes_nothing(world: World, broker: Broker, http: httpx.AsyncClient) -> None:
    await flushed(broker, FIRST, b"a", b"b")
    body = await rewritten(world, broker, (await plan_of(http))[0]["runs"])
    world.metadata.lose_answer("replace_runs", times=100)
    pending = asyncio.ensure_future(http.post("/v1/replacements", json=body))
    await world.clock.advance(30)
    assert (await pending).status_code == 503
    world.metadata.heal()
    assert (await http.post("/v1/replacements", json=body)).json() == {"replaced": 2}
    assert len((await plan_of(http))[0]["runs"]) == 1


async def test_a_retry_that_the_first_attempt_overtakes_succeeds(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    """The first attempt is on its way when the retry looks at the rows, and is done before the retry looks on."""
    await flushed(broker, FIRST, b"a", b"b")
    body = await rewritten(world, broker, (await plan_of(http))[0]["runs"])
    going_on = world.metadata.hold("known_among")
    retry = asyncio.ensure_future(http.post("/v1/replacements", json=body))
    await settle()
    assert not retry.done()
    run = body["segment"]["runs"][0]
    topic = await broker.topic("orders")
    partition = PartitionId(topic.topic_id, 0)
    commit = SegmentCommit(
        segment=SegmentObject(**{name: body["segment"][name] for name in ("key", "size_bytes", "created_at_ms")}),
        runs=(Run(partition=partition, stored_base=run["base"], object_key=body["segment"]["key"], **run),),
    )
    expected = await world.sqlite.runs(partition, from_offset=0, limit=10)
    assert await world.sqlite.replace_runs(current(broker).session.session_id, expected, commit)
    going_on.set()
    response = await retry
    assert (response.status_code, response.json()) == (200, {"replaced": 2})


async def test_runs_that_changed_are_left_alone(world: World, broker: Broker, http: httpx.AsyncClient) -> None:
    await flushed(broker, FIRST, b"a", b"b", b"c")
    runs = (await plan_of(http))[0]["runs"]
    body = await rewritten(world, broker, runs)
    assert (await http.post("/v1/replacements", json=await rewritten(world, broker, runs[:2]))).status_code == 200
    late = await http.post("/v1/replacements", json=body)
    assert (late.status_code, late.json()["title"]) == (409, "RunsChanged")
    assert [(run["base"], run["end"]) for run in (await plan_of(http))[0]["runs"]] == [(0, 2), (2, 3)]
    assert broker.maintenance.replacements.came_late == 1


async def test_a_topic_that_was_made_again_is_another_one(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    await flushed(broker, FIRST, b"a", b"b")
    body = await rewritten(world, broker, (await plan_of(http))[0]["runs"])
    await http.delete("/v1/topics/orders")
    assert (await http.post("/v1/replacements", json=body)).status_code == 404
    await broker.create_topic("orders", partitions=3, overrides={})
    assert (await http.post("/v1/replacements", json=body)).status_code == 409


async def test_an_object_that_is_not_there_is_refused(world: World, broker: Broker, http: httpx.AsyncClient) -> None:
    await flushed(broker, FIRST, b"a", b"b")
    body = await rewritten(world, broker, (await plan_of(http))[0]["runs"], put=False)
    refused = await http.post("/v1/replacements", json=body)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("the segment is not in the object store")
    assert len((await plan_of(http))[0]["runs"]) == 2


async def test_an_object_that_was_given_up_is_refused_though_it_is_there(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    await flushed(broker, FIRST, b"a", b"b")
    body = await rewritten(world, broker, (await plan_of(http))[0]["runs"])
    await world.clock.advance(RetentionSettings().orphan_age_s + 1)
    assert await broker.retention.delete_orphans() == 1
    refused = await http.post("/v1/replacements", json=body)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("the segment has expired")
    assert await values_of(broker, FIRST) == {0: b"a", 1: b"b"}


async def test_what_a_job_may_not_ask_is_refused_with_a_reason(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    await flushed(broker, FIRST, b"a", b"b", b"c")
    body = await rewritten(world, broker, (await plan_of(http))[0]["runs"])
    segment, (run,) = body["segment"], body["segment"]["runs"]

    def with_run(**changes: Any) -> dict[str, Any]:
        return body | {"segment": segment | {"runs": [run | changes]}}

    refused = {
        "replacing runs cover other offsets": with_run(end=2),
        "a replacing run would move the end of an epoch": with_run(epoch=run["epoch"] + 1),
        "the segment's runs differ from the replacement's": with_run(records=2),
        "the segment's name is not placed/": body | {"segment": segment | {"key": "segments/x"}},
        "a replacement needs old runs": body | {"expected": []},
        "without a segment only cleaned_to": body | {"segment": None},
        "the replacement is too large": body | {"expected": body["expected"] * 3},
    }
    for why, request in refused.items():
        response = await http.post("/v1/replacements", json=request)
        assert (response.status_code, response.json()["detail"][: len(why)]) == (422, why)
    for malformed in (
        body | {"partition": -1},
        body | {"topic_id": "orders"},
        body | {"more": 1},
        with_run(length=-1),
        {name: value for name, value in body.items() if name != "topic"},
    ):
        assert (await http.post("/v1/replacements", json=malformed)).status_code == 400
    assert (await http.post("/v1/replacements", json=body | {"partition": 9})).status_code == 404
    assert len((await plan_of(http))[0]["runs"]) == 3
    assert (await http.post("/v1/replacements", json=body)).status_code == 200


async def test_how_far_a_partition_is_clean_is_noted_with_a_replacement_or_alone(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    await flushed(broker, FIRST, b"a", b"b", b"c")
    runs = (await plan_of(http))[0]["runs"]
    body = await rewritten(world, broker, runs[:2], cleaned_to=1)
    assert (await http.post("/v1/replacements", json=body)).status_code == 200
    assert (await plan_of(http))[0]["cleaned_to"] == 1
    alone = body | {"expected": [], "segment": None, "cleaned_to": 3}
    assert (await http.post("/v1/replacements", json=alone)).json() == {"replaced": 0}
    assert (await plan_of(http))[0]["cleaned_to"] == 3
