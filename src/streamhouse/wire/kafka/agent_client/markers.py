"""Markers: transaction markers for partitions that another agent leads.

Owns        WriteTxnMarkers requests between agents, and decoding their responses
Leaves      sending to `connections`

Topics are named by id, so that a topic that was created again under the same name gets no markers of the old one.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from streamhouse.config.fields import Address
from streamhouse.errors import StreamhouseError
from streamhouse.model.names import PartitionId, TopicId
from streamhouse.model.transaction import Marker
from streamhouse.wire.kafka.codec import MalformedMessage
from streamhouse.wire.kafka.errors import ErrorCode, error_from_code
from streamhouse.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

VERSION: Final = 1


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
