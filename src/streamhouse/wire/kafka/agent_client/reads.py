"""Reads: batches and offsets from the agent that leads a partition.

Owns        Fetch and ListOffsets requests between agents, and decoding their responses
Leaves      sending to `connections`
"""

from collections.abc import Sequence
from typing import Final

from streamhouse.config.fields import Address
from streamhouse.errors import CorruptObject, StreamhouseError
from streamhouse.format.batch import iter_batches, read_header
from streamhouse.model.fetch import FetchResult, OffsetResult, PartitionFetch
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.wire.kafka.codec import MalformedMessage
from streamhouse.wire.kafka.errors import ErrorCode, error_from_code
from streamhouse.wire.kafka.messages.fetch import AbortedTransaction as ToldAborted
from streamhouse.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from streamhouse.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from streamhouse.wire.kafka.schema import Buffer

FETCH_VERSION: Final = 17
OFFSETS_VERSION: Final = 7
MAX_INT: Final = 2**31 - 1
NO_REPLICA: Final = -1
READ_COMMITTED: Final = 1
BEYOND: Final = 2**63 - 1


def fetch_request(
    requested: Sequence[tuple[PartitionId, PartitionFetch]], *, max_bytes: int, min_bytes: int, max_wait_s: float
) -> FetchRequest:
    """A request with one topic entry for each partition, so that the response has the requested order. With one reader
    of committed records, the whole request is read_committed."""
    return FetchRequest(
        max_wait_ms=min(round(max_wait_s * 1000), MAX_INT),
        min_bytes=min(min_bytes, MAX_INT),
        max_bytes=min(max_bytes, MAX_INT),
        isolation_level=READ_COMMITTED if any(item.committed for _, item in requested) else 0,
        topics=[
            FetchTopic(
                topic="",
                topic_id=partition.topic_id,
                partitions=[
                    FetchPartition(
                        partition=partition.partition,
                        current_leader_epoch=item.leader_epoch,
                        fetch_offset=item.offset,
                        partition_max_bytes=min(item.max_bytes, MAX_INT),
                    )
                ],
            )
            for partition, item in requested
        ],
    )


def fetch_results(
    response: FetchResponse, at: Address, requested: Sequence[tuple[PartitionId, PartitionFetch]]
) -> list[FetchResult]:
    if response.error_code != ErrorCode.NONE:
        raise error_from_code(response.error_code, None, at=at, what="a read")
    parts = [part for topic in response.responses for part in topic.partitions]
    if len(parts) != len(requested):
        raise MalformedMessage(f"a response for {len(requested)} partitions has {len(parts)} parts")
    return [_fetch_result(part, at, item.name) for part, (_, item) in zip(parts, requested, strict=True)]


def _fetch_result(part: PartitionData, at: Address, name: TopicPartition) -> FetchResult:
    if part.error_code != ErrorCode.NONE:
        return FetchResult(name=name, error=_partition_error(part.error_code, at, name))
    records = part.records
    if not isinstance(records, bytes | bytearray | memoryview):
        raise MalformedMessage("records of a response are not in one piece")
    return FetchResult(
        name=name,
        high_watermark=part.high_watermark,
        last_stable=part.last_stable_offset,
        log_start=part.log_start_offset,
        aborted=_aborted(records, part.aborted_transactions or ()),
        records=[records] if records else [],
    )


def _partition_error(code: int, at: Address, name: TopicPartition) -> StreamhouseError:
    """Like `error_from_code`, except for CORRUPT_MESSAGE, which means damaged stored records to a reader."""
    if code == ErrorCode.CORRUPT_MESSAGE:
        return CorruptObject(f"of {name}", why=f"another agent can't read it; address={at}")
    return error_from_code(code, None, at=at, what=name)


def _aborted(records: Buffer, reported: Sequence[ToldAborted]) -> list[AbortedTransaction]:
    """The aborted transactions. Kafka's response lacks their ends: these are found as markers among the records, or lie
    beyond them."""
    if not reported:
        return []
    ends: dict[int, list[int]] = {}
    for header in (read_header(records, span.position) for span in iter_batches(records)):
        if header.is_control:
            ends.setdefault(header.producer_id, []).append(header.base_offset)
    return [
        AbortedTransaction(
            each.producer_id,
            each.first_offset,
            next((end for end in ends.get(each.producer_id, ()) if end >= each.first_offset), BEYOND),
        )
        for each in reported
    ]


def offsets_request(name: TopicPartition, timestamp_ms: int, *, committed: bool = False) -> ListOffsetsRequest:
    part = ListOffsetsPartition(partition_index=name.partition, timestamp=timestamp_ms)
    topic = ListOffsetsTopic(name=name.topic, partitions=[part])
    return ListOffsetsRequest(replica_id=NO_REPLICA, isolation_level=int(committed), topics=[topic])


def offset_result(response: ListOffsetsResponse, at: Address, name: TopicPartition) -> OffsetResult | None:
    parts = [part for topic in response.topics for part in topic.partitions]
    if len(parts) != 1:
        raise MalformedMessage(f"a response for one partition has {len(parts)} parts")
    (reported,) = parts
    if reported.error_code != ErrorCode.NONE:
        raise _partition_error(reported.error_code, at, name)
    return OffsetResult(reported.offset, reported.timestamp, reported.leader_epoch) if reported.offset >= 0 else None
