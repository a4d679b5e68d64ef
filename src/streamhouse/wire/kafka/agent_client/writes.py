"""Writes: batches and transaction markers for partitions that another agent leads.

Owns        Produce and WriteTxnMarkers requests between agents, and decoding their responses
Leaves      sending to `connections`

Topics are named by id, so that a topic that was created again under the same name gets nothing of the old one.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from streamhouse.broker.dependencies import AppendResult
from streamhouse.config.fields import Address
from streamhouse.errors import StreamhouseError
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.model.transaction import Marker
from streamhouse.wire.kafka.codec import MalformedMessage
from streamhouse.wire.kafka.errors import ErrorCode, error_from_code
from streamhouse.wire.kafka.handlers.produce import REQUEST_FLUSH
from streamhouse.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from streamhouse.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from streamhouse.wire.kafka.schema import Buffer

PRODUCE_VERSION: Final = 13
MARKERS_VERSION: Final = 1
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


def marker_request(marker: Marker, partitions: Sequence[PartitionId]) -> WriteTxnMarkersRequest:
    topics: dict[TopicId, list[int]] = {}
    for topic_id, number in partitions:
        topics.setdefault(topic_id, []).append(number)
    reported = WritableTxnMarker(
        producer_id=marker.producer.producer_id,
        producer_epoch=marker.producer.epoch,
        transaction_result=marker.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=str(topic_id), partition_indexes=numbers)
            for topic_id, numbers in topics.items()
        ],
        coordinator_epoch=marker.number,
    )
    return WriteTxnMarkersRequest(markers=[reported])


def marker_results(
    response: WriteTxnMarkersResponse, at: Address, partitions: Sequence[PartitionId]
) -> Mapping[PartitionId, StreamhouseError | None]:
    outcomes: dict[PartitionId, StreamhouseError | None] = {}
    for topic in (topic for each in response.markers for topic in each.topics):
        for part in topic.partitions:
            partition = PartitionId(TopicId(_id(topic.name)), part.partition_index)
            refused = part.error_code != ErrorCode.NONE
            outcomes[partition] = error_from_code(part.error_code, None, at=at, what=partition) if refused else None
    if outcomes.keys() != set(partitions):
        raise MalformedMessage(f"a response for {len(partitions)} markers has {len(outcomes)} parts")
    return outcomes


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise MalformedMessage(f"a response does not name a topic by its id; name={text[:50]!r}") from None
