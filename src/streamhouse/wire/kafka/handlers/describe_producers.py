"""DescribeProducers, API key 61, versions 0-0: which idempotent producers a partition remembers.

Behaviour   producers that were heard of within `producers.expire_s`, with epoch, last sequence and last timestamp
            partitions that aren't there are UNKNOWN_TOPIC_OR_PARTITION; one that occurs twice is told once
Left out    transactions: coordinator epoch and start of the transaction are -1
Versions    v0 flexible
"""

from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.format.producers import ProducerEntry
from streamhouse.model.names import TopicPartition, check_topic_name
from streamhouse.wire.kafka.answer import Answer, Context
from streamhouse.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from streamhouse.wire.kafka.support import serves

NO_COORDINATOR: Final = -1


@serves(DescribeProducersRequest, (0, 0))
async def handle(context: Context, request: DescribeProducersRequest) -> Answer:
    # A short question has a long answer, so each partition is told once however often it is asked for.
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=name, partitions=[await _partition(context, TopicPartition(name, number)) for number in numbers]
            )
            for name, numbers in asked.items()
        ]
    )


async def _partition(context: Context, name: TopicPartition) -> PartitionResponse:
    try:
        check_topic_name(name.topic)
        found = await context.broker.administration.producers(name)
    except StreamhouseError as error:
        return PartitionResponse(
            partition_index=name.partition, error_code=context.refused(error), error_message=str(error)
        )
    return PartitionResponse(partition_index=name.partition, active_producers=[_state(entry) for entry in found])


def _state(entry: ProducerEntry) -> ProducerState:
    last = entry.batches[-1]
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=last.last_sequence,
        last_timestamp=last.timestamp_ms,
        coordinator_epoch=NO_COORDINATOR,
    )
