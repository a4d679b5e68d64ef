"""ListOffsets, API key 2, versions 1-11: the offset of a time, of the log start, or of the log end.

Behaviour   -1 the high watermark, or with read_committed (v2) the last stable offset ·
            -2 and -4 the log start · -3 the first record with the largest timestamp ·
            -5 and -6 (tiered storage) -1, as Kafka answers where nothing is tiered ·
            a time: the first record at or after it; none: offset -1 and no error; with read_committed none that isn't
            below the last stable offset
            the store holds all records, so what Kafka calls local is the whole log
            a special time before the version that brought it is UNSUPPORTED_VERSION
            a duplicate partition is INVALID_REQUEST; a leader epoch that isn't the agent's is rejected
            a replica id changes nothing: some clients send 0, because Kafka doesn't look at it either
Left out    timeout_ms (v10)
Versions    v2 isolation level · v4 leader epoch · v6 flexible · v7 -3 · v8 -4 · v9 -5 · v11 -6
"""

from collections import Counter
from typing import Final

from streamhouse.broker.fetch.fetch import check_leader_epoch
from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.fetch import OffsetResult
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode, read_error_code
from streamhouse.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
EPOCH_SINCE: Final = 4
READ_COMMITTED: Final = 1
NONE_FOUND: Final = OffsetResult(-1)


@handles(ListOffsetsRequest, (1, 11), needs=needs(Operation.DESCRIBE, ResourceType.TOPIC))
async def handle(context: Context, request: ListOffsetsRequest) -> HandlerResult:
    committed = request.isolation_level == READ_COMMITTED
    requested = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    await _partition(
                        context,
                        topic.name,
                        part,
                        twice=requested[topic.name, part.partition_index] > 1,
                        committed=committed,
                    )
                    async for part in iterate_fairly(topic.partitions)
                ],
            )
            async for topic in iterate_fairly(request.topics)
        ]
    )


async def _partition(
    context: Context, topic: str, part: ListOffsetsPartition, *, twice: bool, committed: bool
) -> ListOffsetsPartitionResponse:
    code = _rejected_timestamp(context, part, twice=twice)
    result = NONE_FOUND
    if code is ErrorCode.NONE:
        try:
            context.check_topic(Operation.DESCRIBE, topic)
            result = await _find(context, TopicPartition(topic, part.partition_index), part, committed=committed)
        except StreamhouseError as error:
            code = context.count_error(read_error_code(error))
    return ListOffsetsPartitionResponse(
        partition_index=part.partition_index,
        error_code=code,
        timestamp=result.timestamp_ms,
        offset=result.offset,
        leader_epoch=result.leader_epoch if context.version >= EPOCH_SINCE else -1,
    )


def _rejected_timestamp(context: Context, part: ListOffsetsPartition, *, twice: bool) -> ErrorCode:
    if twice:
        return context.count_error(ErrorCode.INVALID_REQUEST)
    if part.timestamp < 0 and context.version < SINCE.get(part.timestamp, context.version + 1):
        return context.count_error(ErrorCode.UNSUPPORTED_VERSION)
    return ErrorCode.NONE


async def _find(context: Context, name: TopicPartition, part: ListOffsetsPartition, *, committed: bool) -> OffsetResult:
    broker = context.broker
    check_leader_epoch(await broker.open_log(name), part.current_leader_epoch)
    match part.timestamp:
        case -1:
            return await broker.latest(name, committed=committed)
        case -2 | -4:
            return await broker.earliest(name)
        case -3:
            result = await broker.at_max_timestamp(name) or NONE_FOUND
            is_seen = not committed or result.offset < (await broker.latest(name, committed=True)).offset
            return result if is_seen else NONE_FOUND
        case -5 | -6:
            return NONE_FOUND
        case timestamp_ms:
            return await broker.at_time(name, timestamp_ms, committed=committed) or NONE_FOUND
