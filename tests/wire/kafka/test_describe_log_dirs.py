"""DescribeLogDirs: true sizes."""

from collections.abc import Sequence

import pytest

from streamhouse.errors import Unavailable
from streamhouse.model.names import TopicId, TopicPartition
from streamhouse.stores.metadata.sqlite.store import SqliteMetadataStore
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from tests.wire.kafka.talk import Client, Served, a_batch, create_topic, produce, until

Sizes = dict[tuple[str, int], int]


async def sizes(client: Client, *requested: tuple[str, list[int]], version: int = 5) -> Sizes:
    topics = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in requested]
    request = DescribeLogDirsRequest(topics=topics or None)
    (directory,) = (await client.call(request, DescribeLogDirsResponse, version)).results
    assert directory.error_code == ErrorCode.NONE
    assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)
    return {
        (topic.name, part.partition_index): part.partition_size
        for topic in directory.topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
async def test_every_version_counts_what_is_still_in_memory(client: Client, version: int) -> None:
    await create_topic(client, "orders", partitions=2)
    batch = a_batch(b"x" * 1000)
    await produce(client, "orders", (1, batch))
    assert await sizes(client, version=version) == {("orders", 0): 0, ("orders", 1): len(batch)}


async def test_segments_count_as_they_are_stored_and_deleted_records_no_more(client: Client, served: Served) -> None:
    await create_topic(client, "orders")
    await produce(client, "orders", (0, a_batch(b"x" * 100_000)))
    name = TopicPartition("orders", 0)
    opened = await served.broker.open_log(name)
    waiting = opened.wait_flushed(1)
    await waiting
    orders = await served.broker.topic("orders")
    ((_, run),) = (await served.broker.run_listing.page([orders], limit=10)).runs
    assert run.length < 100_000
    assert await sizes(client) == {("orders", 0): run.length}
    tail = a_batch(b"y" * 50)
    await produce(client, "orders", (0, tail))
    assert await sizes(client) == {("orders", 0): run.length + len(tail)}
    assert await served.broker.topic_admin.delete_records(name, -1) == 2
    await until(lambda: opened.tail_bytes == 0)
    assert await sizes(client) == {("orders", 0): 0}


async def test_some_partitions_can_be_requested_and_what_is_not_there_is_left_out(client: Client) -> None:
    await create_topic(client, "orders", partitions=3)
    await create_topic(client, "clicks")
    assert await sizes(client, ("orders", [2, 0, 2, 7, -1]), ("missing", [0])) == {("orders", 0): 0, ("orders", 2): 0}
    assert await sizes(client, ("orders", [])) == {}


async def test_a_store_that_is_away_is_the_directorys_error(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(self: object, topic_ids: Sequence[TopicId]) -> None:
        raise Unavailable("away")

    monkeypatch.setattr(SqliteMetadataStore, "sizes", away)
    response = await client.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, 4)
    assert [directory.error_code for directory in response.results] == [ErrorCode.KAFKA_STORAGE_ERROR]
