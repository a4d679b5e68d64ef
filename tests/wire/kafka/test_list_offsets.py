"""ListOffsets: both ends of the log, and times."""

import pytest

from streamhouse.format.records import Record, build_batch
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.wire.kafka.talk import Client, create_topic, produce

VERSIONS = range(1, 12)


async def ask(
    client: Client, *times: int, version: int = 11, topic: str = "orders", partition: int = 0, epoch: int = -1
) -> list[ListOffsetsPartitionResponse]:
    """One request per time, because a partition may stand in a request only once."""
    results = []
    for timestamp in times:
        part = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])])
        response = await client.call(request, ListOffsetsResponse, version)
        results.append(response.topics[0].partitions[0])
    return results


@pytest.fixture
async def filled(client: Client) -> Client:
    """Offsets 0-4 with the times 100, 300, 200, 500, 400."""
    await create_topic(client, "orders")
    for times in ((100, 300, 200), (500, 400)):
        await produce(client, "orders", (0, build_batch([Record(timestamp_ms=time, value=b"x") for time in times])))
    return client


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_knows_both_ends_and_times(filled: Client, version: int) -> None:
    latest, earliest, at_time, never = await ask(filled, -1, -2, 250, 501, version=version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (ErrorCode.NONE, 5, -1)
    assert (earliest.offset, earliest.timestamp) == (0, -1)
    assert (at_time.offset, at_time.timestamp) == (1, 300)
    assert (never.error_code, never.offset, never.timestamp) == (ErrorCode.NONE, -1, -1)
    assert (latest.leader_epoch >= 0) == (version >= 4)


@pytest.mark.parametrize(("time", "offset", "timestamp"), [(0, 0, 100), (100, 0, 100), (101, 1, 300), (301, 3, 500)])
async def test_a_time_finds_the_first_record_at_or_after_it(
    filled: Client, time: int, offset: int, timestamp: int
) -> None:
    (result,) = await ask(filled, time)
    assert (result.offset, result.timestamp) == (offset, timestamp)


async def test_the_largest_timestamp_is_found_where_it_is(filled: Client) -> None:
    (result,) = await ask(filled, -3)
    assert (result.offset, result.timestamp) == (3, 500)


async def test_an_empty_log_has_ends_and_nothing_else(client: Client) -> None:
    await create_topic(client, "orders")
    latest, earliest, largest, at_time = await ask(client, -1, -2, -3, 0)
    assert (latest.offset, earliest.offset, largest.offset, at_time.offset) == (0, 0, -1, -1)
    assert {each.error_code for each in (latest, earliest, largest, at_time)} == {ErrorCode.NONE}


async def test_what_is_local_is_everything_and_nothing_is_tiered(filled: Client) -> None:
    local, tiered, pending = await ask(filled, -4, -5, -6)
    assert (local.offset, tiered.offset, pending.offset) == (0, -1, -1)


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-(2**63), 11)])
async def test_a_special_time_before_its_version_is_unsupported(filled: Client, timestamp: int, version: int) -> None:
    (result,) = await ask(filled, timestamp, version=version)
    assert (result.error_code, result.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)


async def test_what_is_not_there_is_unknown(filled: Client) -> None:
    (absent,) = await ask(filled, -1, partition=7)
    (nowhere,) = await ask(filled, -1, topic="nowhere")
    assert absent.error_code == nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_another_leader_epoch_is_refused(filled: Client) -> None:
    (known,) = await ask(filled, -1)
    (stale,) = await ask(filled, -1, epoch=known.leader_epoch - 1)
    (ahead,) = await ask(filled, -1, epoch=known.leader_epoch + 1)
    (right,) = await ask(filled, -1, epoch=known.leader_epoch)
    assert [each.error_code for each in (stale, ahead, right)] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NONE,
    ]


async def test_a_partition_named_twice_is_refused(filled: Client) -> None:
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[part, part])])
    response = await filled.call(request, ListOffsetsResponse, 7)
    assert [each.error_code for each in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST] * 2


async def test_a_replica_id_changes_nothing(filled: Client) -> None:
    """Some consumers leave it at 0 where others say -1."""
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=0, topics=[ListOffsetsTopic(name="orders", partitions=[part])])
    response = await filled.call(request, ListOffsetsResponse, 7)
    assert [(each.error_code, each.offset) for each in response.topics[0].partitions] == [(ErrorCode.NONE, 5)]
