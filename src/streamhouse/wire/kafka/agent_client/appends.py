"""Appends: produce one batch at the agent that leads its partition.

Owns        Produce requests between agents, and decoding their responses
Leaves      sending to `connections`

Topics are named by id, so that a topic that was created again under the same name gets no records of the old one.
"""

from typing import Final

from streamhouse.broker.dependencies import AppendResult
from streamhouse.config.fields import Address
from streamhouse.model.names import PartitionId
from streamhouse.wire.kafka.codec import MalformedMessage
from streamhouse.wire.kafka.errors import ErrorCode, error_from_code
from streamhouse.wire.kafka.handlers.produce import REQUEST_FLUSH
from streamhouse.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from streamhouse.wire.kafka.schema import Buffer

VERSION: Final = 13
ACKS_ALL: Final = -1


def append_request(partition: PartitionId, batch: Buffer, *, timeout_s: float, request_flush: bool) -> ProduceRequest:
    part = PartitionProduceData(index=partition.partition, records=batch)
    return ProduceRequest(
        acks=REQUEST_FLUSH if request_flush else ACKS_ALL,
        timeout_ms=round(timeout_s * 1000),
        topic_data=[TopicProduceData(name="", topic_id=partition.topic_id, partition_data=[part])],
    )


def append_result(response: ProduceResponse, at: Address, partition: PartitionId) -> AppendResult:
    parts = [part for topic in response.responses for part in topic.partition_responses]
    if len(parts) != 1:
        raise MalformedMessage(f"a response for one batch has {len(parts)} parts")
    (reported,) = parts
    if reported.error_code != ErrorCode.NONE:
        rejected = [each.batch_index for each in reported.record_errors]
        raise error_from_code(reported.error_code, reported.error_message, at=at, what=partition, records=rejected)
    return AppendResult(reported.base_offset, reported.log_append_time_ms)
