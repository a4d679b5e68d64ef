"""OffsetFetch, API key 9, versions 1-10: the committed offsets of groups.

Behaviour   one group, or several from v8 on, each of which succeeds or fails on its own
            no topics (null, v2): all partitions for which the group committed something
            a partition without a commit, or an unknown one, is offset -1 without an error; an unknown topic id is
            UNKNOWN_TOPIC_ID
            an unknown group has no committed offsets
            any agent answers, not only the coordinator: after NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE
            librdkafka stays in the group and reads nothing; while the metadata store is unavailable,
            COORDINATOR_LOAD_IN_PROGRESS, which all clients retry
            errors of the whole group are returned per partition in v1, once from v2 on
            with require_stable (v7), a partition whose offset a transaction may still change is UNSTABLE_OFFSET_COMMIT,
            which consumers retry; without it, the previous committed offset is returned
Left out    member id and epoch (v9) mean something to the newer group protocol only
Versions    v2 all partitions · v5 leader epoch · v6 flexible · v7 require_stable · v8 several groups
            v9 member and epoch · v10 topics by id
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.group import CommittedOffset
from streamhouse.model.group_requests import Stable
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from streamhouse.wire.kafka.offset_commits import name_of, permitted
from streamhouse.wire.kafka.resources import split_groups
from streamhouse.wire.kafka.schema import ZERO_UUID

TOP_LEVEL_SINCE: Final = 2
MANY_SINCE: Final = 8
IDS_SINCE: Final = 10
NOTHING: Final = CommittedOffset(offset=-1, committed_at_ms=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedTopic:
    """`name` is an error code if the id is unknown, or if the caller may not describe the topic."""

    name: str | ErrorCode
    given_name: str
    topic_id: UUID
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedGroup:
    """`topics` None: all topics."""

    group_id: str
    topics: Sequence[RequestedTopic] | None

    def names(self) -> list[TopicPartition] | None:
        if self.topics is None:
            return None
        return [
            TopicPartition(topic.name, partition)
            for topic in self.topics
            if isinstance(topic.name, str)
            for partition in topic.partitions
        ]


CommittedByPartition = Stable | StreamhouseError


@handles(
    OffsetFetchRequest,
    (1, 10),
    needs=all_of(need((Operation.DESCRIBE, ResourceType.GROUP)), need((Operation.DESCRIBE, ResourceType.TOPIC))),
)
async def handle(context: Context, request: OffsetFetchRequest) -> HandlerResult:
    if context.version >= MANY_SINCE:
        requested = [await _requested_groups(context, group) async for group in iterate_fairly(request.groups)]
        result = await _committed(context, requested, stable=request.require_stable)
        groups = [await _group(context, group, result[group.group_id]) async for group in iterate_fairly(requested)]
        return OffsetFetchResponse(groups=groups)
    topics = None
    if request.topics is not None:
        topics = [
            RequestedTopic(
                name=permitted(context, Operation.DESCRIBE, each.name),
                given_name=each.name,
                topic_id=ZERO_UUID,
                partitions=each.partition_indexes,
            )
            for each in request.topics
        ]
    group = RequestedGroup(group_id=request.group_id, topics=topics)
    result = await _committed(context, [group], stable=request.require_stable)
    return _single_group_response(context, group, result[group.group_id])


async def _committed(
    context: Context, groups: Sequence[RequestedGroup], *, stable: bool
) -> Mapping[str, CommittedByPartition]:
    """What was committed, as far as the caller may know it, by group."""
    allowed, denied = split_groups(context, Operation.DESCRIBE, [group.group_id for group in groups])
    partitions = _requested_partitions(group for group in groups if group.group_id not in denied)
    result = await context.broker.groups.fetch(partitions, stable=stable) if allowed else {}
    return {**result, **denied}


async def _requested_groups(context: Context, group: OffsetFetchRequestGroup) -> RequestedGroup:
    if group.topics is None:
        return RequestedGroup(group_id=group.group_id, topics=None)
    by_id = context.version >= IDS_SINCE
    return RequestedGroup(
        group_id=group.group_id,
        topics=[
            RequestedTopic(
                name=permitted(
                    context, Operation.DESCRIBE, await name_of(context, each.topic_id) if by_id else each.name
                ),
                given_name=each.name,
                topic_id=each.topic_id,
                partitions=each.partition_indexes,
            )
            async for each in iterate_fairly(group.topics)
        ],
    )


def _requested_partitions(groups: Iterable[RequestedGroup]) -> dict[str, list[TopicPartition] | None]:
    """The partitions to look up by group; a group that occurs twice is looked up once."""
    target: dict[str, list[TopicPartition] | None] = {}
    for group in groups:
        names, known = group.names(), target.get(group.group_id, [])
        target[group.group_id] = None if names is None or known is None else known + names
    return target


# --- responses


async def _group(context: Context, requested: RequestedGroup, result: CommittedByPartition) -> OffsetFetchResponseGroup:
    if isinstance(result, StreamhouseError):
        return OffsetFetchResponseGroup(group_id=requested.group_id, error_code=context.count_error(result))
    topics = requested.topics if requested.topics is not None else await _all(context, result)
    if any(topic.name is ErrorCode.COORDINATOR_NOT_AVAILABLE for topic in topics):  # an id that can't be looked up now
        code = context.count_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return OffsetFetchResponseGroup(group_id=requested.group_id, error_code=code)
    return OffsetFetchResponseGroup(
        group_id=requested.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.given_name,
                topic_id=topic.topic_id,
                partitions=[_partition(context, topic, partition, result) for partition in topic.partitions],
            )
            async for topic in iterate_fairly(topics)
        ],
    )


def _partition(
    context: Context, topic: RequestedTopic, partition: int, result: Stable
) -> OffsetFetchResponsePartitions:
    committed, code = NOTHING, ErrorCode.NONE
    if isinstance(topic.name, ErrorCode):
        code = topic.name
    else:
        committed, code = _topic(context, result.get(TopicPartition(topic.name, partition), NOTHING))
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def _topic(context: Context, each: CommittedOffset | StreamhouseError) -> tuple[CommittedOffset, ErrorCode]:
    return (NOTHING, context.count_error(each)) if isinstance(each, StreamhouseError) else (each, ErrorCode.NONE)


async def _all(context: Context, result: Stable) -> list[RequestedTopic]:
    """All topics with committed offsets, with their ids if the version has them."""
    topics: list[RequestedTopic] = []
    for name, partitions in _by_topic(context, result).items():
        topic_id = ZERO_UUID
        if context.version >= IDS_SINCE:
            try:
                topic_id = (await context.broker.catalog.find(name)).topic_id
            except StreamhouseError:
                continue  # deleted a moment ago
        topics.append(RequestedTopic(name=name, given_name=name, topic_id=topic_id, partitions=partitions))
    return topics


def _by_topic(context: Context, result: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of topics that the caller may describe."""
    topics: dict[str, list[int]] = {}
    for name in sorted(result):
        topics.setdefault(name.topic, []).append(name.partition)
    return {topic: numbers for topic, numbers in topics.items() if context.allows_topic(Operation.DESCRIBE, topic)}


# --- before v8


def _single_group_response(
    context: Context, requested: RequestedGroup, result: CommittedByPartition
) -> OffsetFetchResponse:
    code = ErrorCode.NONE
    if isinstance(result, StreamhouseError):
        code, result = context.count_error(result), {}
    topics = {topic.given_name: list(topic.partitions) for topic in requested.topics or ()}
    codes = {topic.given_name: topic.name for topic in requested.topics or () if isinstance(topic.name, ErrorCode)}
    if code and context.version >= TOP_LEVEL_SINCE:
        topics = {}
    elif requested.topics is None:
        topics = _by_topic(context, result)
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    _old_partition(context, TopicPartition(name, each), result, code or codes.get(name, code))
                    for each in partitions
                ],
            )
            for name, partitions in topics.items()
        ],
    )


def _old_partition(
    context: Context, name: TopicPartition, result: Stable, code: ErrorCode
) -> OffsetFetchResponsePartition:
    committed, own = _topic(context, result.get(name, NOTHING))
    return OffsetFetchResponsePartition(
        partition_index=name.partition,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code or own,
    )
