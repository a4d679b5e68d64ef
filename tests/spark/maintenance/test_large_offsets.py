"""Offsets beyond 31, 32 and 53 bits go through every part of the system as they are: log, segments, protocols, jobs."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.structs import OffsetAndMetadata
from pyspark.sql.types import StructType

from streamhouse.spark.columns.record_columns import RecordBatchBuilder
from streamhouse.spark.datasource.pushed_filters import NO_FILTERS
from streamhouse.spark.datasource.read_options import read_options
from streamhouse.spark.datasource.split_planner import plan_batch
from streamhouse.spark.datasource.split_reader import ReadTask, read_split
from streamhouse.spark.maintenance import merge_job
from streamhouse.spark.maintenance.compaction_job import compact
from tests.spark.maintenance.compacting import HereExecutors
from tests.spark.maintenance.support import (
    QUICK,
    HereTasks,
    ask,
    at_time,
    consumed,
    create,
    publish,
    run_count,
    trickle,
)
from tests.support.agent import LiveAgent

STARTS = [2**31 - 2, 2**32 - 2, 2**53 - 2, 2**62 + 1]
"""Where the partitions begin: each but the last passes an edge after two records."""
FLUSHES = 4


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[LiveAgent]:
    """One whose topic has been written to for a very long time, of which nothing is left."""
    with LiveAgent(tmp_path / "data", *QUICK) as running:
        create(running, "old", partitions=len(STARTS))
        running.stop()
        with closing(sqlite3.connect(running.data / "metadata.db")) as database, database:
            for partition, start in enumerate(STARTS):
                database.execute(
                    "UPDATE partitions SET log_start = ?1, flushed_end = ?1"
                    " WHERE partition = ?2 AND topic_id = (SELECT topic_id FROM topics WHERE name = 'old')",
                    (start, partition),
                )
        running.start()
        yield running


def spark_offsets(agent: LiveAgent) -> list[tuple[int, int]]:
    options = read_options({"topic": "old", "agents": agent.http}, streaming=False)
    shape = RecordBatchBuilder.of(StructType().add("partition", "integer").add("offset", "long"))
    task = ReadTask(agents=agent.http)
    splits = asyncio.run(plan_batch(options, NO_FILTERS))
    rows = [row for split in splits for batch in read_split(split, task, shape) for row in batch.to_pylist()]
    return sorted((row["partition"], row["offset"]) for row in rows)


async def committed(agent: LiveAgent, offsets: dict[int, int]) -> dict[int, int]:
    """What a group finds that has committed these."""
    consumer = AIOKafkaConsumer(bootstrap_servers=agent.bootstrap, group_id="readers", enable_auto_commit=False)
    await consumer.start()
    try:
        places = {TopicPartition("old", partition): offset for partition, offset in offsets.items()}
        consumer.assign(list(places))
        await consumer.commit({place: OffsetAndMetadata(offset, "") for place, offset in places.items()})
        return {place.partition: await consumer.committed(place) for place in places}
    finally:
        await consumer.stop()


async def test_offsets_of_any_size_survive_everything(agent: LiveAgent) -> None:
    everything = [(partition, start + n) for partition, start in enumerate(STARTS) for n in range(FLUSHES)]
    trickle(agent, "old", FLUSHES, partitions=len(STARTS))
    before = await consumed(agent, "old", len(everything))
    assert [(partition, offset) for partition, offset, *_ in before] == everything
    assert await asyncio.to_thread(spark_offsets, agent) == everything

    last = {partition: start + FLUSHES - 1 for partition, start in enumerate(STARTS)}
    times = {partition: at for partition, offset, at, *_ in before if offset == last[partition]}
    result = await at_time(agent, "old", times)
    assert {partition: at.offset for partition, at in result.items() if at is not None}.keys() == last.keys()
    assert await committed(agent, last) == last
    for partition, offset in last.items():
        page = ask(agent, f"/v1/topics/old/partitions/{partition}/records?offset={offset}", method="GET")
        assert [record["offset"] for record in page["records"]] == [offset]

    await asyncio.to_thread(merge_job.run, "old", agents=agent.http, tasks=HereTasks())
    assert run_count(agent, "old") == len(STARTS)
    assert await consumed(agent, "old", len(everything)) == before
    assert await asyncio.to_thread(spark_offsets, agent) == everything

    agent.kill()
    agent.start()
    publish(agent, "old", [0], partitions=len(STARTS))  # the first key again
    ask(agent, "/v1/topics/old", {"settings": {"cleanup.policy": "compact"}}, method="PATCH")
    await asyncio.to_thread(lambda: compact("old", agents=agent.http, executors=HereExecutors()))
    left = [(partition, start + n) for partition, start in enumerate(STARTS) for n in range(1, FLUSHES + 1)]
    assert [(each[0], each[1]) for each in await consumed(agent, "old", len(left))] == left
    assert await asyncio.to_thread(spark_offsets, agent) == left
