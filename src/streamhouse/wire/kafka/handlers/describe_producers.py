"""DescribeProducers, API key 61, versions 0-0: the producers that a partition knows.

Behaviour   producers that were active within `producers.expire_s`, with epoch, last sequence and last timestamp
            partitions that don't exist are UNKNOWN_TOPIC_OR_PARTITION; one that occurs twice is returned once
            of one with an open transaction here, its first offset; `coordinator_epoch` is the number of the last
            transaction with a marker, or, while one is open, a number that a marker may use to end it
Left out    nothing
Versions    v0 flexible
"""

from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.format.producer_snapshot import ProducerEntry
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import TopicPartition, check_topic_name
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

NONE: Final = -1


@handles(DescribeProducersRequest, (0, 0), needs=needs(Operation.READ, ResourceType.TOPIC))
async def handle(context: Context, request: DescribeProducersRequest) -> HandlerResult:
    # A short request can have a long response, so repeated partitions are returned once.
    requested: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        requested.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=name,
                partitions=[
                    await _partition(context, TopicPartition(name, number)) async for number in iterate_fairly(numbers)
                ],
            )
            async for name, numbers in iterate_fairly(requested.items())
        ]
    )


async def _partition(context: Context, name: TopicPartition) -> PartitionResponse:
    try:
        context.check_topic(Operation.READ, name.topic)
        check_topic_name(name.topic)
        result = await context.broker.topic_admin.producers(name)
    except StreamhouseError as error:
        return PartitionResponse(
            partition_index=name.partition, error_code=context.count_error(error), error_message=str(error)
        )
    return PartitionResponse(partition_index=name.partition, active_producers=[_state(entry) for entry in result])


def _state(entry: ProducerEntry) -> ProducerState:
    is_open = entry.transaction_first is not None
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.batches[-1].last_sequence if entry.batches else NONE,
        last_timestamp=entry.batches[-1].timestamp_ms if entry.batches else entry.last_timestamp_ms,
        # Administrators abort hanging transactions with this number, so it must be a new one.
        coordinator_epoch=entry.marker_number + 1 if is_open else entry.marker_number,
        current_txn_start_offset=NONE if entry.transaction_first is None else entry.transaction_first,
    )
