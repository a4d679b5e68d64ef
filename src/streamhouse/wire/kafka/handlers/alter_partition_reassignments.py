"""AlterPartitionReassignments, API key 45, versions 0-1: move partitions to other brokers.

Behaviour   a partition is handed over to the first agent of its assignment, its preferred leader as long as that agent
            lives; no data moves, because records are in the store
            tools see the assigned agents in this order, and their number as the topic's
            replication factor; where it may not change (v1), another number is INVALID_REPLICATION_FACTOR
            the response is sent when that is stored; the transfer begins at once, and ListPartitionReassignments shows
            when it is done
            none, unknown, draining or repeated brokers are INVALID_REPLICA_ASSIGNMENT
            to cancel a move (null) keeps the partition with its current leader; without a move it is
            NO_REASSIGNMENT_IN_PROGRESS
            unknown partitions are UNKNOWN_TOPIC_OR_PARTITION
Left out    timeout_ms: the decision is made when the response is sent
Versions    v1 whether the replication factor may change
"""

from collections.abc import Callable, Mapping, Sequence

from streamhouse.broker.admin.cluster_admin import PartitionStatus
from streamhouse.errors import InvalidAssignment, InvalidReplication, StreamhouseError, UnknownTopic
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.needs import needs
from streamhouse.model.topic import Topic
from streamhouse.model.topic_settings import MAX_REPLICATION, REPLICATION_FACTOR
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from streamhouse.wire.kafka.resources import MAX_NAMED, eligible_brokers, find_topics


@handles(AlterPartitionReassignmentsRequest, (0, 1), needs=needs(Operation.ALTER, ResourceType.CLUSTER))
async def handle(context: Context, request: AlterPartitionReassignmentsRequest) -> HandlerResult:
    if not context.allows_cluster(Operation.ALTER):
        code = context.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return AlterPartitionReassignmentsResponse(error_code=code, error_message="not authorised to alter the cluster")
    topics = await find_topics(context, [topic.name for topic in request.topics])
    plan = _Plan(context, topics, may_change_factor=request.allow_replication_factor_change)
    try:
        await plan.read_moves(request.topics)
        responses = [
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[plan.answer(topic.name, part) async for part in iterate_fairly(topic.partitions)],
            )
            async for topic in iterate_fairly(request.topics)
        ]
        await plan.apply()
    except StreamhouseError as error:
        return AlterPartitionReassignmentsResponse(error_code=context.count_error(error), error_message=str(error))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None, responses=responses
    )


class _Plan:
    """The new preferred leaders: computed for the whole request, then applied at once."""

    def __init__(
        self, context: Context, topics: Mapping[str, Topic | StreamhouseError], *, may_change_factor: bool
    ) -> None:
        self._context = context
        self._topics = topics
        self._eligible = eligible_brokers(context)
        self._states: Mapping[TopicPartition, PartitionStatus] = {}
        self._pins: dict[PartitionId, int] = {}
        self._replicas: dict[PartitionId, list[int]] = {}
        self._may_change_factor = may_change_factor
        self._factors: dict[str, int] = {}

    async def read_moves(self, requested: Sequence[ReassignableTopic]) -> None:
        """Read from the metadata store whether there are moves to cancel."""
        names = {topic.name for topic in requested for part in topic.partitions if part.replicas is None}
        result = [self._topics[name] for name in names]
        self._states = await self._context.broker.cluster_admin.leadership([t for t in result if isinstance(t, Topic)])

    async def apply(self) -> None:
        if self._pins:
            await self._context.broker.cluster_admin.pin(self._pins, self._replicas)
        for name, factor in self._factors.items():
            await self._context.broker.topic_admin.alter_topic(name, _with_factor(factor))

    def answer(self, name: str, requested: ReassignablePartition) -> ReassignablePartitionResponse:
        response = ReassignablePartitionResponse(partition_index=requested.partition_index, error_message=None)
        try:
            if isinstance(topic := self._topics[name], StreamhouseError):
                raise topic
            node = self._target(topic, requested)
        except StreamhouseError as error:
            response.error_code, response.error_message = self._context.count_error(error), str(error)
            return response
        if node is None:
            response.error_code = self._context.count_error(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            response.error_message = "the partition is not being moved"
        else:
            partition = PartitionId(topic.topic_id, requested.partition_index)
            self._pins[partition] = node
            if requested.replicas is not None:
                self._replicas[partition] = requested.replicas
        return response

    def _target(self, topic: Topic, requested: ReassignablePartition) -> int | None:
        """The new leader of the partition; None to cancel a move that doesn't exist."""
        name = TopicPartition(topic.name, requested.partition_index)
        if not 0 <= requested.partition_index < topic.partitions:
            raise UnknownTopic(name)
        if requested.replicas is None:
            status = self._states.get(name)
            return status.leader.node_id if status is not None and status.is_moving and status.leader else None
        nodes = requested.replicas
        if not nodes or len(set(nodes)) < len(nodes) or not self._eligible.issuperset(nodes):
            raise InvalidAssignment(
                f"brokers of a partition are missing, repeated, unknown or draining; brokers={nodes[:MAX_NAMED]} "
                f"known={sorted(self._eligible)}"
            )
        self._note_factor(topic, len(nodes))
        return nodes[0]

    def _note_factor(self, topic: Topic, factor: int) -> None:
        """Note the topic's replication factor: the largest of its partitions in this request."""
        if factor != topic.replication_factor and not self._may_change_factor:
            raise InvalidReplication(
                f"the replication factor may not change; factor={topic.replication_factor} requested={factor}"
            )
        factor = min(max(factor, self._factors.get(topic.name, 1)), MAX_REPLICATION)
        if factor != topic.replication_factor or topic.name in self._factors:
            self._factors[topic.name] = factor


def _with_factor(factor: int) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
    return lambda settings: {**settings, REPLICATION_FACTOR: str(factor)}
