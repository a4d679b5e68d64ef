"""Commits over HTTP: placed, told again, refused; and what agents ask of each other for it."""

import asyncio
from contextlib import closing, suppress
from typing import Any

import httpx
import pytest

from streamhouse.broker.broker import Broker
from streamhouse.broker.external_commits.commit_request import ExternalCommitRequest
from streamhouse.config import AgentClientSettings
from streamhouse.config.fields import Address
from streamhouse.errors import Unavailable
from streamhouse.model.external_commit import FreezeRequest, FreezeTarget, Outcome
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.wire.http.agent_client import HttpFreezeClient
from tests.broker.external_commits.support import QUERY, written
from tests.broker.support import World, batch, produce, values_of
from tests.wire.http.conftest import StartSite

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def body_of(commit: ExternalCommitRequest, **changes: Any) -> dict[str, Any]:
    """As Spark's sink writes it."""
    segments = [
        {
            "key": each.segment.key,
            "size_bytes": each.segment.size_bytes,
            "created_at_ms": each.segment.created_at_ms,
            "runs": [
                {
                    "topic": run.name.topic,
                    "partition": run.name.partition,
                    "records": run.records,
                    "stored_base": run.stored_base,
                    "stored_end": run.stored_end,
                    "position": run.position,
                    "length": run.length,
                    "index_position": run.index_position,
                    "index_length": run.index_length,
                    "max_timestamp_ms": run.max_timestamp_ms,
                }
                for run in each.runs
            ],
        }
        for each in commit.segments
    ]
    return {"query": commit.query, "epoch": commit.epoch, "progress": None, "segments": segments, **changes}


async def test_a_commit_is_applied_once_and_its_result_returned_for_every_repetition(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    commit = await written(broker, world.bucket, {FIRST: [b"x", b"y"], SECOND: [b"z"]})
    pending = [
        {"topic": "orders", "partition": 0, "base": 0, "end": 2},
        {"topic": "orders", "partition": 1, "base": 0, "end": 1},
    ]
    assert (await http.get(f"/v1/commits/{QUERY}")).status_code == 404
    body = body_of(commit, progress={"orders": {"0": [1, 2.5, None]}})
    for replayed in (False, True):
        response = await http.post("/v1/commits", json=body)
        assert (response.status_code, response.json()) == (200, {"placed": pending, "replayed": replayed})
    assert await values_of(broker, FIRST) == {0: b"x", 1: b"y"}
    last = (await http.get(f"/v1/commits/{QUERY}")).json()
    assert last == {"epoch": 1, "progress": {"orders": {"0": [1, 2.5, None]}}, "placed": pending, "covers": None}


async def test_a_supervisor_that_lost_its_pipeline_publishes_nothing(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    await http.put("/v1/pipelines/revenue", json={"kind": "sql", "text": "…"})
    beat = {"host": "h", "slots": 1}
    [owned] = (await http.post("/v1/supervisors/anna/heartbeat", json=beat)).json()["assigned"]
    fence = {"pipeline": "revenue", "epoch": owned["epoch"]}
    first = await written(broker, world.bucket, {FIRST: [b"x"]}, epoch=1)
    assert (await http.post("/v1/commits", json=body_of(first, fence=fence))).status_code == 200
    await http.delete("/v1/supervisors/anna")
    assert (await http.post("/v1/supervisors/bert/heartbeat", json=beat)).json()["assigned"]
    second = await written(broker, world.bucket, {FIRST: [b"y"]}, epoch=2)
    refused = await http.post("/v1/commits", json=body_of(second, fence=fence))
    assert (refused.status_code, refused.json()["title"]) == (409, "PipelineMoved")
    assert refused.json()["detail"].startswith("pipeline moved; pipeline=revenue")
    assert await values_of(broker, FIRST) == {0: b"x"}
    assert (await http.post("/v1/commits", json=body_of(first, fence=fence))).json()["replayed"]


async def test_refusals_say_whether_it_may_be_requested_again(
    world: World, broker: Broker, http: httpx.AsyncClient
) -> None:
    commit = await written(broker, world.bucket, {FIRST: [b"x"]}, epoch=5)
    body = body_of(commit)
    other = body_of(await written(broker, world.bucket, {FIRST: [b"x"]}, epoch=4))
    assert (await http.post("/v1/commits", json=body)).status_code == 200
    assert (await http.post("/v1/commits", json=other)).status_code == 409
    assert (await http.post("/v1/commits", json=body | {"epoch": 6})).status_code == 422
    assert (await http.post("/v1/commits", json=body | {"query": "me"})).status_code == 400
    assert (await http.post("/v1/commits", json=body | {"epoch": -1})).status_code == 400
    assert (await http.get("/v1/commits/me")).status_code == 400
    run = body["segments"][0]["runs"][0] | {"topic": "nothing"}
    strange = [body["segments"][0] | {"runs": [run]}]
    assert (await http.post("/v1/commits", json=body | {"epoch": 7, "segments": strange})).status_code == 422
    world.metadata.refuse("last_commit")
    refused = await http.post("/v1/commits", json=body)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


async def test_agents_hold_partitions_for_each_other_over_their_ports(start_site: StartSite) -> None:
    site = await start_site()
    broker: Broker = site.agent.broker
    topic = await broker.create_topic("orders", partitions=1, overrides={})
    await produce(broker, batch(b"a"), FIRST)
    here = Address("127.0.0.1", site.port)
    expected = FreezeTarget(name=FIRST, partition=PartitionId(topic.topic_id, 0), offsets=3)
    request = FreezeRequest(hold_id="0" * 32, query=QUERY, epoch=1, partitions=(expected,))
    holders = HttpFreezeClient(broker.settings.peers)
    (held,) = await holders.hold(here, request, timeout_s=10)
    assert (held.partition, held.end, held.epoch) == (expected.partition, 1, broker.leader_epoch(FIRST))
    assert held.holder == broker.agents()[0].session_id
    assert len(broker.freezes) == 1
    await holders.end_hold(here, "0" * 32, Outcome.UNUSED, timeout_s=10)
    assert len(broker.freezes) == 0
    await produce(broker, batch(b"b"), FIRST)
    await holders.aclose()


async def test_a_hold_that_names_no_partition_one_twice_or_an_id_that_is_taken_is_refused(
    broker: Broker, http: httpx.AsyncClient
) -> None:
    topic_id = str((await broker.topic("orders")).topic_id)

    def body(*partitions: int, upper: bool = False) -> dict[str, Any]:
        ids = [topic_id.upper() if upper and at else topic_id for at in range(len(partitions))]
        named = [
            {"topic": "orders", "topic_id": each, "partition": number, "offsets": 1}
            for each, number in zip(ids, partitions, strict=True)
        ]
        return {"hold": "0" * 32, "query": QUERY, "epoch": 1, "wait_ms": 5000, "partitions": named}

    assert (await http.post("/v1/holds", json=body())).status_code == 422
    assert (await http.post("/v1/holds", json=body(0, 0))).status_code == 422
    assert (await http.post("/v1/holds", json=body(0, 0, upper=True))).status_code in (400, 422)
    assert (await http.post("/v1/holds", json=body(0))).status_code == 200
    refused = await http.post("/v1/holds", json=body(1))
    assert (refused.status_code, refused.json()["title"]) == (422, "CommitRefused")
    ended = await http.post(f"/v1/holds/{'0' * 32}/end", json={"outcome": "unused"})
    assert ended.status_code == 204
    for number in (0, 1):
        await asyncio.wait_for(produce(broker, batch(b"a"), TopicPartition("orders", number)), 10)


async def test_agents_flush_topics_for_each_other_over_their_ports(start_site: StartSite) -> None:
    site = await start_site()
    broker: Broker = site.agent.broker
    await broker.create_topic("orders", partitions=1, overrides={})
    await produce(broker, batch(b"a"), FIRST)
    holders = HttpFreezeClient(broker.settings.peers)
    await holders.flush(Address("127.0.0.1", site.port), "orders", timeout_s=10)
    assert (await broker.open_log(FIRST)).flushed_end == 1
    with pytest.raises(Unavailable, match="nothing"):
        await holders.flush(Address("127.0.0.1", site.port), "nothing", timeout_s=10)
    await holders.aclose()


async def test_an_agent_that_refuses_or_is_not_there_is_tried_again_later(start_site: StartSite) -> None:
    site = await start_site()
    topic = await site.agent.broker.create_topic("orders", partitions=1, overrides={})
    holders = HttpFreezeClient(site.agent.broker.settings.peers)
    here = Address("127.0.0.1", site.port)
    unknown = FreezeTarget(name=TopicPartition("orders", 7), partition=PartitionId(topic.topic_id, 7), offsets=1)
    request = FreezeRequest(hold_id="0" * 32, query=QUERY, epoch=1, partitions=(unknown,))
    with pytest.raises(Unavailable, match="refused"):
        await holders.hold(here, request, timeout_s=5)
    with pytest.raises(Unavailable, match="reached"):
        await holders.hold(Address("127.0.0.1", 1), request, timeout_s=5)
    await holders.aclose()


async def test_an_agent_whose_answer_never_ends_is_given_up_in_time() -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        with closing(writer), suppress(ConnectionError):
            while True:  # each byte begins httpx's own timeout again
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    here = Address(*server.sockets[0].getsockname()[:2])
    holders = HttpFreezeClient(AgentClientSettings())
    try:
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable, match="didn't answer"):
                await holders.metrics(here, timeout_s=0.3)
    finally:
        await holders.aclose()
        server.close()
        await server.wait_closed()
