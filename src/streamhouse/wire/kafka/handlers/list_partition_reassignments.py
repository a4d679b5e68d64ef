"""ListPartitionReassignments, API key 46, versions 0-0: partitions that are being moved.

Behaviour   partitions whose leader is not the preferred one: after a reassignment, or because an agent joined, drains
            or died; the preferred leader is listed as adding, the current one as removing, unless it stays in the list
            of agents that the partition was given to
            null means all topics; unknown topics and partitions are left out
Left out    timeout_ms: the response is immediate
Versions    v0 flexible
"""

from itertools import groupby

from streamhouse.broker.admin.cluster_admin import PartitionStatus
from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@handles(ListPartitionReassignmentsRequest, (0, 0), needs=needs(Operation.DESCRIBE, ResourceType.CLUSTER))
async def handle(context: Context, request: ListPartitionReassignmentsRequest) -> HandlerResult:
    try:
        context.check_cluster(Operation.DESCRIBE)
        moving = await _moving(context, request)
    except StreamhouseError as error:
        return ListPartitionReassignmentsResponse(error_code=context.count_error(error), error_message=str(error))
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=[_partition(each) for each in some])
            for name, some in groupby(moving, key=lambda each: each.name.topic)
        ],
    )


async def _moving(context: Context, request: ListPartitionReassignmentsRequest) -> list[PartitionStatus]:
    """The requested partitions that are being reassigned, by topic and number."""
    topics = await context.broker.topics()
    requested = None
    if request.topics is not None:
        requested = {(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
        names = {topic.name for topic in request.topics}
        topics = [topic for topic in topics if topic.name in names]
    result = await context.broker.cluster_admin.leadership(topics)
    return [status for name, status in result.items() if status.is_moving and (requested is None or name in requested)]


def _partition(status: PartitionStatus) -> OngoingPartitionReassignment:
    assert status.leader is not None
    assert status.owner is not None
    owner, leader, replicas = status.owner.node_id, status.leader.node_id, status.state.replicas
    return OngoingPartitionReassignment(
        partition_index=status.name.partition,
        replicas=list(dict.fromkeys([*replicas, owner, leader])),
        adding_replicas=[owner],
        removing_replicas=[leader] if leader not in replicas else [],
    )
