"""Topics over gRPC: created, listed, described, altered, deleted; their partitions and offsets."""

from collections.abc import Mapping

from streamhouse.broker.broker import Broker
from streamhouse.broker.cluster.oversight import PartitionStatus
from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.topic import Topic, topic_values

from .calls import Call
from .errors import as_message
from .generated import streamhouse_pb2 as pb
from .positions import Start, find_starts
from .requests import named


class TopicAdmin:
    def __init__(self, broker: Broker, *, limit: int) -> None:
        self._broker = broker
        self._limit = limit

    async def create(self, request: pb.CreateTopicRequest, _: Call) -> pb.CreateTopicResponse:
        topic = await self._broker.create_topic(
            named(request.name, "name"),
            partitions=request.partitions if request.HasField("partitions") else None,
            overrides=dict(request.config),
            dry_run=request.dry_run,
        )
        return pb.CreateTopicResponse(topic=topic_message(topic))

    async def list_all(self, request: pb.ListTopicsRequest, _: Call) -> pb.ListTopicsResponse:
        topics = await self._broker.topics()
        shown = [each for each in topics if request.include_internal or each.name != OFFSETS_TOPIC]
        return pb.ListTopicsResponse(topics=map(topic_message, shown))

    async def describe(self, request: pb.DescribeTopicRequest, _: Call) -> pb.DescribeTopicResponse:
        await self._broker.catalogue.renew()
        topic = await self._broker.topic(named(request.name, "name"))
        found = await self._broker.oversight.partitions([topic])
        return pb.DescribeTopicResponse(
            topic=topic_message(topic),
            effective_config=topic_values(topic.overrides, self._broker.catalogue.dynamic.topic_defaults),
            partitions=map(partition_message, found),
        )

    async def alter(self, request: pb.AlterTopicRequest, _: Call) -> pb.AlterTopicResponse:
        """The settings first: if they are refused, nothing has happened."""
        name, administration = named(request.name, "name"), self._broker.administration
        topic = await self._broker.topic(name)
        if contradictory := set(request.set_config) & set(request.unset_config):
            raise Rejected(f"a setting can't be set and unset; field=unset_config names={sorted(contradictory)}")
        if request.set_config or request.unset_config:
            topic = await administration.alter_topic(name, lambda old: _changed(old, request), dry_run=request.dry_run)
        if request.HasField("partitions"):
            topic = await administration.grow_topic(name, request.partitions, dry_run=request.dry_run)
        return pb.AlterTopicResponse(topic=topic_message(topic))

    async def delete(self, request: pb.DeleteTopicRequest, _: Call) -> pb.DeleteTopicResponse:
        await self._broker.delete_topic(await self._broker.topic(named(request.name, "name")))
        return pb.DeleteTopicResponse()

    async def partitions(self, request: pb.ListPartitionsRequest, _: Call) -> pb.ListPartitionsResponse:
        topics = [await self._broker.topic(request.topic)] if request.topic else await self._broker.topics()
        found = await self._broker.oversight.partitions(topics)
        return pb.ListPartitionsResponse(partitions=map(partition_message, found))

    async def offsets(self, request: pb.ListOffsetsRequest, _: Call) -> pb.ListOffsetsResponse:
        starts = await find_starts(self._broker, request.positions, limit=self._limit, or_end=False)
        return pb.ListOffsetsResponse(offsets=map(offset_message, starts))


def _changed(old: Mapping[str, str], request: pb.AlterTopicRequest) -> Mapping[str, str]:
    kept = {name: value for name, value in old.items() if name not in request.unset_config}
    return kept | dict(request.set_config)


def topic_message(topic: Topic) -> pb.Topic:
    return pb.Topic(
        name=topic.name,
        topic_id=str(topic.topic_id),
        partitions=topic.partitions,
        config=topic.overrides,
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
    if isinstance(start.found, StreamhouseError):
        return pb.FoundOffset(
            topic=topic, partition=partition, offset=-1, timestamp_ms=-1, leader_epoch=-1, error=as_message(start.found)
        )
    return pb.FoundOffset(
        topic=topic,
        partition=partition,
        offset=start.found.offset,
        timestamp_ms=start.found.timestamp_ms,
        leader_epoch=start.found.leader_epoch,
    )
