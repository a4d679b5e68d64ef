"""Metadata, API key 3, versions 0-13: topics, partitions and leaders.

Behaviour   without requested topics (v0: an empty list, later: null) all topics
            an unknown topic is created if the request and `topics.auto_create` allow it, or else
            UNKNOWN_TOPIC_OR_PARTITION; LEADER_NOT_AVAILABLE while the client has created more partitions than its
            quota allows
            topics by id from v12 on; an unknown id is UNKNOWN_TOPIC_ID
            the leader is the agent that holds the partition's lease, or the one that will acquire it on the first
            request; then the epoch is -1. LEADER_NOT_AVAILABLE while there is no such agent
            as many replicas are named as the topic was created with, the leader first, then other agents, then ids that
            no agent has: tools compare the number. All are in sync: the store makes records durable
            a dead agent is listed for a few seconds more: clients that remove it would fail the batches that wait for
            its partitions. Kafka's Java client and librdkafka since 2.10 bind calls to a node id and would wait for it
            until the call's deadline: for a minute, the id of an agent that died or left is listed with the address of
            the agent that responds
            the controller is the agent with the lowest node id; every agent answers what clients ask a controller
            an agent's rack is its zone (`agent.zone`)
            authorised operations are what the caller may do (KIP-430)
Left out    nothing
Versions    v1 controller, internal topics · v2 cluster id · v4 auto-creation may be refused · v5 offline replicas
            v7 leader epoch · v9 flexible · v10 topic ids · v12 asking by id · v13 top-level error
"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from streamhouse.broker.cluster.cluster import Leader
from streamhouse.errors import InvalidTopicName, QuotaExceeded, StreamhouseError, UnknownTopic
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, Resource, ResourceType
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import PartitionId, check_topic_name
from streamhouse.model.needs import all_of, need
from streamhouse.model.topic import Topic
from streamhouse.wire.kafka.access import NOT_REQUESTED, authorized_operations, cluster_operations
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import CloseConnection, Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from streamhouse.wire.kafka.resources import replicas_of
from streamhouse.wire.kafka.schema import ZERO_UUID

IDS_SINCE: Final = 12


@handles(
    MetadataRequest,
    (0, 13),
    needs=all_of(
        need((Operation.DESCRIBE, ResourceType.TOPIC)),
        need(
            (Operation.CREATE, ResourceType.CLUSTER),
            (Operation.CREATE, ResourceType.TOPIC),
            when="for a topic that the request creates",
        ),
        need((Operation.DESCRIBE, ResourceType.CLUSTER), when="for the cluster's authorised operations"),
    ),
)
async def handle(context: Context, request: MetadataRequest) -> HandlerResult:
    topics = await _topics(context, request)
    zones = context.zones()
    if request.include_topic_authorized_operations:
        for topic in topics:
            if not topic.error_code:
                resource = Resource(ResourceType.TOPIC, topic.name or "")
                topic.topic_authorized_operations = authorized_operations(context, resource)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=address.host, port=address.port, rack=zones.get(node))
            for node, address in sorted([*context.agents(), *context.departed()])
        ],
        cluster_id=context.cluster_id,
        controller_id=min(node for node, _ in context.agents()),
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(context) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


async def _topics(context: Context, request: MetadataRequest) -> list[MetadataResponseTopic]:
    if request.topics is None or (not request.topics and context.version == 0):
        topics = [topic for topic in await context.broker.topics() if _may_describe(context, topic.name)]
        leaders = await context.broker.leaders(topics)
        agents = [node for node, _ in context.agents()]
        return [_describe(topic, leaders, agents) async for topic in iterate_fairly(topics)]
    if context.version < IDS_SINCE and any(
        requested.name is None or requested.topic_id.int for requested in request.topics
    ):
        raise CloseConnection(f"topics are requested by name before v{IDS_SINCE}; version={context.version}")
    unique = {(requested.topic_id, requested.name): requested for requested in request.topics}
    create = request.allow_auto_topic_creation
    return [await _topic(context, requested, create=create) async for requested in iterate_fairly(unique.values())]


async def _topic(context: Context, requested: MetadataRequestTopic, *, create: bool) -> MetadataResponseTopic:
    try:
        topic = await _find(context, requested.topic_id, requested.name, create=create)
        if requested.topic_id != ZERO_UUID:
            context.check_topic(Operation.DESCRIBE, topic.name)
        return _describe(topic, await context.broker.leaders([topic]), [node for node, _ in context.agents()])
    except StreamhouseError as error:
        # A client above its quota asks again after a while, as for a topic that is being created.
        code = ErrorCode.LEADER_NOT_AVAILABLE if isinstance(error, QuotaExceeded) else error
        return MetadataResponseTopic(
            error_code=context.count_error(code), name=requested.name, topic_id=requested.topic_id
        )


async def _find(context: Context, topic_id: UUID, name: str | None, *, create: bool) -> Topic:
    if topic_id != ZERO_UUID:
        return await context.topic_by_id(topic_id)
    if name is None:
        raise InvalidTopicName("the request has neither a name nor an id")
    context.check_topic(Operation.DESCRIBE, name)
    check_topic_name(name)
    try:
        return await context.broker.topic(name)
    except UnknownTopic:
        if not (create and context.broker.settings.topics.auto_create):
            raise
    context.check_create_topic(name)
    context.charge_mutations(context.broker.settings.topics.default_partitions)
    return await context.broker.topic(name, create=True)


def _may_describe(context: Context, topic: str) -> bool:
    return context.allows_topic(Operation.DESCRIBE, topic)


def _describe(topic: Topic, leaders: Mapping[PartitionId, Leader], agents: Sequence[int]) -> MetadataResponseTopic:
    factor = topic.replication_factor
    open_partitions = [leaders[PartitionId(topic.topic_id, number)] for number in range(topic.partitions)]
    replicas = {
        leader_key: replicas_of(leader_key[0], assigned=leader_key[1], factor=factor, agents=agents)
        for leader_key in {_leader_key(leader) for leader in open_partitions}
    }
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name == OFFSETS_TOPIC,
        partitions=[
            _partition(number, leader, replicas[_leader_key(leader)]) for number, leader in enumerate(open_partitions)
        ],
    )


def _leader_key(leader: Leader) -> tuple[int | None, tuple[int, ...]]:
    return leader.node_id if leader.session is not None else None, leader.replicas


def _partition(number: int, leader: Leader, replicas: Sequence[int]) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if replicas else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=leader.node_id,
        leader_epoch=leader.epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(replicas),
        offline_replicas=[],
    )
