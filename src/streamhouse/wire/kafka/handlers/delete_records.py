"""DeleteRecords, API key 21, versions 0-2: advance the log start of partitions.

Behaviour   each partition on its own; -1 means the high watermark, an offset above it is OFFSET_OUT_OF_RANGE
            an offset below the log start changes nothing; the response always has the log start
            the new log start is durable when the response is sent; records in memory are flushed first
            timeout_ms, but at least five seconds and at most five minutes, is how long that may take; then
            REQUEST_TIMED_OUT, and the call may still take effect
            a topic without `delete` in cleanup.policy is POLICY_VIOLATION, the topic of consumer groups is
            INVALID_TOPIC_EXCEPTION
            for a partition that occurs twice the larger offset counts
Left out    nothing
Versions    v2 flexible
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

AT_ONCE: Final = 1000
"""Partitions of a request that are processed concurrently, so that they share one flush."""

LEAST_TIMEOUT_S: Final = 5.0
"""With a single replica, Kafka finishes before it checks the timeout, so clients may send a timeout of 0."""

MAX_TIMEOUT_S: Final = 300.0
UNKNOWN_WATERMARK: Final = -1


@handles(DeleteRecordsRequest, (0, 2), needs=needs(Operation.DELETE, ResourceType.TOPIC))
async def handle(context: Context, request: DeleteRecordsRequest) -> HandlerResult:
    timeout_s = min(max(request.timeout_ms / 1000, LEAST_TIMEOUT_S), MAX_TIMEOUT_S)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=await _topic(context, topic.name, topic.partitions, timeout_s)
            )
            for topic in request.topics
        ]
    )


async def _topic(
    context: Context, topic: str, requested: Sequence[DeleteRecordsPartition], timeout_s: float
) -> list[DeleteRecordsPartitionResult]:
    done: list[DeleteRecordsPartitionResult] = []
    for first in range(0, len(requested), AT_ONCE):
        some = requested[first : first + AT_ONCE]
        done += await asyncio.gather(*(_partition(context, topic, part, timeout_s) for part in some))
    return done


async def _partition(
    context: Context, topic: str, requested: DeleteRecordsPartition, timeout_s: float
) -> DeleteRecordsPartitionResult:
    name = TopicPartition(topic, requested.partition_index)
    low_watermark, code = UNKNOWN_WATERMARK, ErrorCode.NONE
    try:
        context.check_topic(Operation.DELETE, topic)
        async with asyncio.timeout(timeout_s):
            low_watermark = await context.broker.topic_admin.delete_records(name, requested.offset)
    except TimeoutError:
        code = context.count_error(ErrorCode.REQUEST_TIMED_OUT)
    except StreamhouseError as error:
        code = context.count_error(error)
    return DeleteRecordsPartitionResult(partition_index=name.partition, low_watermark=low_watermark, error_code=code)
