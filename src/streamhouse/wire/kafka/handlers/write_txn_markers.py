"""WriteTxnMarkers, API key 27, versions 1-2: write the markers of ended transactions.

Behaviour   answered when the markers are as durable as records are; each partition on its own
            a marker that the partition has, or that comes late, is no error and changes nothing: `coordinator_epoch`
            is the number of the producer's transaction, and each counts once
            agents name partitions to each other by topic id
            used by administrators to end a hanging transaction: kafka-transactions abort
            a partition that another agent leads is NOT_LEADER_OR_FOLLOWER
Left out    nothing
Versions    v1 flexible · v2 transaction version
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import AGENT, Operation, ResourceType
from streamhouse.model.names import TopicId, TopicPartition
from streamhouse.model.needs import all_of, need
from streamhouse.model.transaction import Marker, ProducerIdentity
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from streamhouse.wire.kafka.schema import Response
from streamhouse.wire.kafka.transaction_errors import BackgroundResponse

Named = Sequence[tuple[WritableTxnMarkerTopic, str | ErrorCode]]


@handles(
    WriteTxnMarkersRequest,
    (1, 2),
    needs=all_of(
        need(
            (Operation.ALTER, ResourceType.CLUSTER),
            (Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
            processes=(AGENT,),
        )
    ),
)
async def handle(context: Context, request: WriteTxnMarkersRequest) -> HandlerResult:
    if not context.allows_cluster(Operation.ALTER) and not context.allows_cluster(Operation.CLUSTER_ACTION):
        return _denied(context, request)
    return BackgroundResponse(_write(context, request), name="markers")


def _denied(context: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    code = context.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id, topics=[_topic(topic, code, {}) for topic in marker.topics]
            )
            for marker in request.markers
        ]
    )


async def _write(context: Context, request: WriteTxnMarkersRequest) -> Response:
    return WriteTxnMarkersResponse(
        markers=[await _marker(context, each) async for each in iterate_fairly(request.markers)]
    )


async def _marker(context: Context, requested: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = Marker(
        producer=ProducerIdentity(requested.producer_id, requested.producer_epoch),
        number=requested.coordinator_epoch,
        is_commit=requested.transaction_result,
    )
    named = [(topic, await _name_of(context, topic)) async for topic in iterate_fairly(requested.topics)]
    codes = await _mark(context, marker, named)
    return WritableTxnMarkerResult(
        producer_id=requested.producer_id, topics=[_topic(topic, name, codes) for topic, name in named]
    )


async def _name_of(context: Context, topic: WritableTxnMarkerTopic) -> str | ErrorCode:
    if not context.is_agent:
        return topic.name
    try:
        return (await context.broker.catalog.find_by_id(TopicId(UUID(topic.name)))).name
    except StreamhouseError as error:
        return context.count_error(error)
    except ValueError:
        return context.count_error(ErrorCode.INVALID_REQUEST)


async def _mark(context: Context, marker: Marker, named: Named) -> Mapping[TopicPartition, ErrorCode]:
    names = [
        TopicPartition(name, number)
        for topic, name in named
        if isinstance(name, str)
        for number in topic.partition_indexes
    ]
    try:
        outcomes = await context.broker.transactions.mark(marker, names, only_due=context.is_agent)
    except StreamhouseError as error:
        return dict.fromkeys(names, context.count_error(error))
    return {
        name: ErrorCode.NONE if error is None else context.count_error(error)
        async for name, error in iterate_fairly(outcomes.items())
    }


def _topic(
    topic: WritableTxnMarkerTopic, name: str | ErrorCode, codes: Mapping[TopicPartition, ErrorCode]
) -> WritableTxnMarkerTopicResult:
    return WritableTxnMarkerTopicResult(
        name=topic.name,
        partitions=[
            WritableTxnMarkerPartitionResult(
                partition_index=number,
                error_code=codes[TopicPartition(name, number)] if isinstance(name, str) else name,
            )
            for number in topic.partition_indexes
        ],
    )
