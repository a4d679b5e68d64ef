"""Common parts of OffsetCommit, TxnOffsetCommit and OffsetFetch: topics by id, offsets of a request, and the member.

Owns        names for topic ids, and the code for an id that is unknown or cannot be looked up now; the offsets of a
            request, and the code of each partition
Leaves      committing, and the codes of each version, to the handlers
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar
from uuid import UUID

from streamhouse.broker.groups import MemberRef, OffsetToCommit
from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation
from streamhouse.model.names import TopicPartition
from streamhouse.wire.kafka.context import Context
from streamhouse.wire.kafka.errors import ErrorCode


async def name_of(context: Context, topic_id: UUID) -> str | ErrorCode:
    """The topic's name, or the error code. Members retry coordinator errors, but not storage errors."""
    try:
        return (await context.topic_by_id(topic_id)).name
    except Unavailable:
        return context.count_error(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except StreamhouseError as error:
        return context.count_error(error)


class RequestedPartition(Protocol):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class RequestedTopic(Protocol):
    name: str
    topic_id: UUID

    @property
    def partitions(self) -> Sequence[RequestedPartition]: ...


class Member(Protocol):
    member_id: str
    group_instance_id: str | None
    generation_id_or_member_epoch: int


T = TypeVar("T", bound=RequestedTopic)
Codes: TypeAlias = Mapping[TopicPartition, ErrorCode]
Named: TypeAlias = str | ErrorCode
"""A topic's name, or the error code for an unknown id."""


async def name_topics(context: Context, topics: Iterable[T], *, ids_since: int) -> list[tuple[T, Named]]:
    """The topics of a commit, each with its name, or with the code of a topic that the caller may not read."""
    named: list[tuple[T, Named]] = []
    async for topic in iterate_fairly(topics):
        name = topic.name if context.version < ids_since else await name_of(context, topic.topic_id)
        named.append((topic, permitted(context, Operation.READ, name)))
    return named


def permitted(context: Context, operation: Operation, name: Named) -> Named:
    """The name of a topic to which the caller may do this, or a code."""
    if isinstance(name, ErrorCode) or context.allows_topic(operation, name):
        return name
    return context.count_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def offsets_of(named: Iterable[tuple[RequestedTopic, Named]]) -> dict[TopicPartition, OffsetToCommit]:
    return {
        TopicPartition(name, part.partition_index): OffsetToCommit(
            offset=part.committed_offset,
            leader_epoch=part.committed_leader_epoch,
            metadata=part.committed_metadata or "",
        )
        for topic, name in named
        if isinstance(name, str)
        for part in topic.partitions
    }


def member_of(request: Member) -> MemberRef:
    return MemberRef(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id_or_member_epoch,
    )


def code_of(name: Named, part: RequestedPartition, codes: Codes) -> ErrorCode:
    return codes[TopicPartition(name, part.partition_index)] if isinstance(name, str) else name
