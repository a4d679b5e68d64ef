"""Administration over gRPC: topics, partitions and offsets; consumer groups and their lag; agents and producer ids."""

from collections.abc import Mapping
from typing import Final

from streamhouse import __version__
from streamhouse.broker.admin.cluster_admin import AgentStatus, PartitionStatus
from streamhouse.broker.broker import Broker
from streamhouse.config import Address
from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.group_lag import PartitionLag
from streamhouse.model.group_requests import OffsetToCommit, Outcomes
from streamhouse.model.names import TopicPartition
from streamhouse.model.topic import Topic, topic_values
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.grpc.calls import Call
from streamhouse.wire.grpc.errors import as_message
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.requests import Start, check_count, partition_name, resolve_offsets


class TopicAdmin:
    def __init__(self, broker: Broker, *, limit: int) -> None:
        self._broker = broker
        self._limit = limit

    async def create(self, request: pb.CreateTopicRequest, call: Call) -> pb.CreateTopicResponse:
        name = partition_name(request.name, "name")
        if call.access.allows_cluster(Operation.CREATE):
            call.access.require_cluster(Operation.CREATE)
        else:
            call.access.require_topic(Operation.CREATE, name)
        if not request.dry_run:
            call.access.charge_mutations(request.partitions or self._broker.settings.topics.default_partitions)
        topic = await self._broker.create_topic(
            name,
            partitions=request.partitions if request.HasField("partitions") else None,
            overrides=dict(request.config),
            dry_run=request.dry_run,
        )
        return pb.CreateTopicResponse(topic=topic_message(topic, call.access))

    async def list_all(self, request: pb.ListTopicsRequest, call: Call) -> pb.ListTopicsResponse:
        access = call.access
        topics = [each for each in await self._broker.topics() if access.allows_topic(Operation.DESCRIBE, each.name)]
        shown = [each for each in topics if request.include_internal or each.name != OFFSETS_TOPIC]
        return pb.ListTopicsResponse(topics=[topic_message(each, access) for each in shown])

    async def describe(self, request: pb.DescribeTopicRequest, call: Call) -> pb.DescribeTopicResponse:
        await self._broker.catalog.renew()
        topic = await self._broker.topic(partition_name(request.name, "name"))
        partitions = await self._broker.cluster_admin.partitions([topic])
        config = topic_values(topic.overrides, self._broker.catalog.dynamic.topic_defaults)
        return pb.DescribeTopicResponse(
            topic=topic_message(topic, call.access),
            effective_config=config if _shows_config(topic, call.access) else {},
            partitions=map(partition_message, partitions),
        )

    async def alter(self, request: pb.AlterTopicRequest, call: Call) -> pb.AlterTopicResponse:
        """Change the settings, then the number of partitions: rejected settings leave the topic as it is."""
        name, topic_admin = partition_name(request.name, "name"), self._broker.topic_admin
        if request.set_config or request.unset_config:
            call.access.require_topic(Operation.ALTER_CONFIGS, name)
        if request.HasField("partitions"):
            call.access.require_topic(Operation.ALTER, name)
        topic = await self._broker.topic(name)
        if contradictory := set(request.set_config) & set(request.unset_config):
            raise Rejected(f"a setting can't be set and unset; field=unset_config names={sorted(contradictory)}")
        if request.set_config or request.unset_config:
            topic = await topic_admin.alter_topic(name, lambda old: _changed(old, request), dry_run=request.dry_run)
        if request.HasField("partitions"):
            if not request.dry_run:
                call.access.charge_mutations(max(0, request.partitions - topic.partitions))
            topic = await topic_admin.grow_topic(name, request.partitions, dry_run=request.dry_run)
        return pb.AlterTopicResponse(topic=topic_message(topic, call.access))

    async def delete(self, request: pb.DeleteTopicRequest, call: Call) -> pb.DeleteTopicResponse:
        topic = await self._broker.topic(partition_name(request.name, "name"))
        call.access.charge_mutations(topic.partitions)
        await self._broker.delete_topic(topic)
        return pb.DeleteTopicResponse()

    async def partitions(self, request: pb.ListPartitionsRequest, call: Call) -> pb.ListPartitionsResponse:
        if request.topic:
            call.access.require_topic(Operation.DESCRIBE, request.topic)
        topics = [await self._broker.topic(request.topic)] if request.topic else await self._broker.topics()
        shown = [each for each in topics if call.access.allows_topic(Operation.DESCRIBE, each.name)]
        partitions = await self._broker.cluster_admin.partitions(shown)
        return pb.ListPartitionsResponse(partitions=map(partition_message, partitions))

    async def offsets(self, request: pb.ListOffsetsRequest, call: Call) -> pb.ListOffsetsResponse:
        check_count(len(request.positions), self._limit)
        for position in request.positions:
            call.access.require_topic(Operation.DESCRIBE, position.topic)
        starts = await resolve_offsets(self._broker, request.positions, limit=self._limit, or_end=False)
        return pb.ListOffsetsResponse(offsets=map(offset_message, starts))


def _changed(old: Mapping[str, str], request: pb.AlterTopicRequest) -> Mapping[str, str]:
    unchanged = {name: value for name, value in old.items() if name not in request.unset_config}
    return unchanged | dict(request.set_config)


def _shows_config(topic: Topic, access: RequestAccess) -> bool:
    return access.allows_topic(Operation.DESCRIBE_CONFIGS, topic.name)


def topic_message(topic: Topic, access: RequestAccess) -> pb.Topic:
    return pb.Topic(
        name=topic.name,
        topic_id=str(topic.topic_id),
        partitions=topic.partitions,
        config=topic.overrides if _shows_config(topic, access) else {},
        created_at_ms=topic.created_at_ms,
    )


def partition_message(status: PartitionStatus) -> pb.Partition:
    return pb.Partition(
        topic=status.name.topic,
        partition=status.name.partition,
        leader=status.leader.node_id if status.leader is not None else None,
        owner=status.owner.node_id if status.owner is not None else None,
        epoch=status.state.epoch,
        log_start=status.log_start,
        flushed_end=status.flushed_end,
        high_watermark=status.high_watermark,
        size_bytes=status.size_bytes,
    )


def offset_message(start: Start) -> pb.FoundOffset:
    topic, partition = start.name
    if isinstance(start.result, StreamhouseError):
        return pb.FoundOffset(
            topic=topic,
            partition=partition,
            offset=-1,
            timestamp_ms=-1,
            leader_epoch=-1,
            error=as_message(start.result),
        )
    return pb.FoundOffset(
        topic=topic,
        partition=partition,
        offset=start.result.offset,
        timestamp_ms=start.result.timestamp_ms,
        leader_epoch=start.result.leader_epoch,
    )


UNKNOWN: Final = -1


def _lag_message(lag: PartitionLag) -> pb.PartitionLag:
    committed = lag.committed
    part = pb.PartitionLag(
        topic=lag.name.topic,
        partition=lag.name.partition,
        committed_offset=UNKNOWN if committed is None else committed.offset,
        metadata="" if committed is None else committed.metadata,
        end_offset=UNKNOWN if lag.end is None else lag.end,
        lag=UNKNOWN if lag.lag is None else lag.lag,
    )
    if lag.error is not None:
        part.error.CopyFrom(as_message(lag.error))
    return part


def _raise_first(outcomes: Outcomes) -> None:
    for error in outcomes.values():
        if error is not None:
            raise error


class GroupAdmin:
    def __init__(self, broker: Broker, *, limit: int) -> None:
        self._broker = broker
        self._limit = limit

    async def list_all(self, request: pb.ListGroupsRequest, call: Call) -> pb.ListGroupsResponse:
        access, groups = call.access, sorted(await self._broker.records.groups(), key=lambda each: each.group_id)
        if not access.allows_cluster(Operation.DESCRIBE):
            groups = [each for each in groups if access.allows(Operation.DESCRIBE, ResourceType.GROUP, each.group_id)]
        return pb.ListGroupsResponse(
            groups=[
                pb.Group(group_id=each.group_id, state=each.state, protocol_type=each.protocol_type) for each in groups
            ]
        )

    async def describe(self, request: pb.DescribeGroupRequest, _: Call) -> pb.DescribeGroupResponse:
        group = await self._broker.records.describe_group(partition_name(request.group_id, "group_id"))
        return pb.DescribeGroupResponse(
            group=pb.Group(group_id=group.group_id, state=group.state, protocol_type=group.protocol_type),
            protocol=group.protocol,
            members=[
                pb.GroupMember(
                    member_id=each.member_id,
                    instance_id=each.instance_id or "",
                    client_id=each.client_id,
                    client_host=each.client_host,
                )
                for each in group.members
            ],
        )

    async def lag(self, request: pb.GetGroupLagRequest, call: Call) -> pb.GetGroupLagResponse:
        lags = (await self._broker.records.lag(partition_name(request.group_id, "group_id"))).partitions
        parts = [_lag_message(each) for each in lags if call.access.allows_topic(Operation.DESCRIBE, each.name.topic)]
        return pb.GetGroupLagResponse(partitions=parts, total_lag=sum(max(0, each.lag) for each in parts))

    async def reset(self, request: pb.ResetGroupRequest, call: Call) -> pb.ResetGroupResponse:
        """Commit all offsets or none: a position that can't be resolved fails the call before the commit."""
        group_id = partition_name(request.group_id, "group_id")
        check_count(len(request.positions), self._limit)
        for position in request.positions:
            call.access.require_topic(Operation.READ, position.topic)
        starts = await resolve_offsets(self._broker, request.positions, limit=self._limit)
        offsets: dict[TopicPartition, OffsetToCommit] = {}
        for name, start in starts:
            if isinstance(start, StreamhouseError):
                raise start
            offsets[name] = OffsetToCommit(offset=start.offset)
        if not request.dry_run:
            _raise_first(await self._broker.records.commit(group_id, offsets))
        return pb.ResetGroupResponse(offsets=map(offset_message, starts))

    async def delete(self, request: pb.DeleteGroupRequest, _: Call) -> pb.DeleteGroupResponse:
        await self._broker.records.delete_group(partition_name(request.group_id, "group_id"))
        return pb.DeleteGroupResponse()


class ClusterAdmin:
    def __init__(self, broker: Broker, *, cluster_id: str, address: Address) -> None:
        self._broker = broker
        self._cluster_id = cluster_id
        self._address = address

    async def agents(self, request: pb.ListAgentsRequest, _: Call) -> pb.ListAgentsResponse:
        return pb.ListAgentsResponse(agents=map(self._message, await self._broker.cluster_admin.agents()))

    async def cluster(self, request: pb.GetClusterRequest, _: Call) -> pb.GetClusterResponse:
        return pb.GetClusterResponse(
            cluster_id=self._cluster_id,
            version=__version__,
            agents=map(self._message, await self._broker.cluster_admin.agents()),
            bootstrap_servers=",".join(str(each.kafka) for each in self._broker.agents()),
        )

    async def allocate_producer_id(
        self, request: pb.AllocateProducerIdRequest, call: Call
    ) -> pb.AllocateProducerIdResponse:
        if not call.access.allows_any(Operation.WRITE, ResourceType.TOPIC):
            call.access.require_cluster(Operation.IDEMPOTENT_WRITE)
        return pb.AllocateProducerIdResponse(producer_id=await self._broker.allocate_producer_id(), producer_epoch=0)

    def _message(self, status: AgentStatus) -> pb.Agent:
        session = status.session
        return pb.Agent(
            node_id=session.node_id,
            session_id=session.session_id,
            kafka=str(session.kafka),
            http=str(session.http),
            grpc=str(self._address) if status.is_responder else "",  # sessions don't store the gRPC address
            state=status.condition,
            started_at_ms=session.started_at_ms,
            partitions=status.partitions,
            asked=status.is_responder,
        )
