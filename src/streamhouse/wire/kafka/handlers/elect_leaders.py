"""ElectLeaders, API key 43, versions 0-2: partitions get their preferred leader, or any at all.

Behaviour   the preferred leader is the agent that the partition was moved to, or else the one that the cluster chose;
            agents see to it by themselves, so an election is ELECTION_NOT_NEEDED, also an unclean one
            a partition that is on its way to its preferred leader is answered as elected: it gets there without help
            without an agent that could lead it a partition is PREFERRED_LEADER_NOT_AVAILABLE, or in an unclean
            election ELIGIBLE_LEADERS_NOT_AVAILABLE
            for all partitions (null) only elected ones and errors are returned
            unknown partitions are UNKNOWN_TOPIC_OR_PARTITION
            an unknown kind of election is INVALID_REQUEST
Left out    timeout_ms: the response is immediate
Versions    v1 kind of election, top-level error · v2 flexible
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final

from streamhouse.broker.admin.cluster_admin import PartitionStatus
from streamhouse.errors import StreamhouseError, UnknownTopic
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import needs
from streamhouse.model.topic import Topic
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from streamhouse.wire.kafka.resources import find_topics

PREFERRED: Final = 0
UNCLEAN: Final = 1
TOP_LEVEL_SINCE: Final = 1


@handles(ElectLeadersRequest, (0, 2), needs=needs(Operation.ALTER, ResourceType.CLUSTER))
async def handle(context: Context, request: ElectLeadersRequest) -> HandlerResult:
    if not context.allows_cluster(Operation.ALTER):
        return _denied(context, request)
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=context.count_error(ErrorCode.INVALID_REQUEST))
    unclean = request.election_type == UNCLEAN
    if request.topic_partitions is None:
        return await _elect_all(context, unclean=unclean)
    return await _elect_named(context, request.topic_partitions, unclean=unclean)


def _denied(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Before v1 there is no place for the error but the partitions."""
    code = context.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return ElectLeadersResponse(
        error_code=code if context.version >= TOP_LEVEL_SINCE else ErrorCode.NONE,
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=[PartitionResult(partition_id=number, error_code=code) for number in each.partitions],
            )
            for each in request.topic_partitions or ()
        ],
    )


async def _elect_all(context: Context, *, unclean: bool) -> ElectLeadersResponse:
    try:
        results = await context.broker.cluster_admin.leadership(await context.broker.topics())
    except StreamhouseError as error:
        return ElectLeadersResponse(error_code=context.count_error(error))
    reported = [
        (name, result)
        for name, status in results.items()
        if (result := _result(context, status, unclean=unclean)).error_code != ErrorCode.ELECTION_NOT_NEEDED
    ]
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=[result for _, result in some])
            for topic, some in groupby(reported, key=lambda each: each[0].topic)
        ]
    )


async def _elect_named(
    context: Context, requested: Sequence[TopicPartitions], *, unclean: bool
) -> ElectLeadersResponse:
    topics = await find_topics(context, [each.topic for each in requested])
    try:
        results = await context.broker.cluster_admin.leadership(
            [each for each in topics.values() if isinstance(each, Topic)]
        )
    except StreamhouseError as error:
        return ElectLeadersResponse(error_code=context.count_error(error))
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=[
                    _of_partition(context, results, TopicPartition(each.topic, number), unclean=unclean)
                    if not isinstance(refusal := topics[each.topic], StreamhouseError)
                    else _rejection(context, number, refusal)
                    async for number in iterate_fairly(each.partitions)
                ],
            )
            async for each in iterate_fairly(requested)
        ]
    )


def _of_partition(
    context: Context, results: Mapping[TopicPartition, PartitionStatus], name: TopicPartition, *, unclean: bool
) -> PartitionResult:
    if (status := results.get(name)) is None:
        return _rejection(context, name.partition, UnknownTopic(name))
    return _result(context, status, unclean=unclean)


def _result(context: Context, status: PartitionStatus, *, unclean: bool) -> PartitionResult:
    result = PartitionResult(partition_id=status.name.partition, error_message=None)
    if status.owner is None and (status.leader is None or not unclean):
        missing = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if unclean else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        result.error_code, result.error_message = context.count_error(missing), "no agent takes the partition now"
    elif unclean or not status.is_moving:
        result.error_code = ErrorCode.ELECTION_NOT_NEEDED
        result.error_message = "the preferred leader leads the partition already"
    return result


def _rejection(context: Context, number: int, error: StreamhouseError) -> PartitionResult:
    return PartitionResult(partition_id=number, error_code=context.count_error(error), error_message=str(error))
