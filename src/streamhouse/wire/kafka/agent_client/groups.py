"""Groups: requests to the agent that coordinates a group.

Owns        requests about groups between agents, and decoding their responses
Leaves      sending to `connections`
"""

from collections.abc import Mapping
from typing import Final

from streamhouse.broker.groups import DescribedGroup, DescribedMember, ListedGroup, OffsetToCommit
from streamhouse.config.fields import Address
from streamhouse.errors import GroupNotFound
from streamhouse.model.group import GroupState
from streamhouse.model.group_requests import Outcomes
from streamhouse.model.names import TopicPartition
from streamhouse.wire.kafka.codec import MalformedMessage
from streamhouse.wire.kafka.errors import ErrorCode, error_from_code
from streamhouse.wire.kafka.messages.delete_groups import DeleteGroupsResponse
from streamhouse.wire.kafka.messages.describe_groups import DescribeGroupsResponse
from streamhouse.wire.kafka.messages.list_groups import ListGroupsResponse
from streamhouse.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

LIST_VERSION: Final = 5
DESCRIBE_VERSION: Final = 6
DELETE_VERSION: Final = 3
COMMIT_VERSION: Final = 9


def listed_groups(response: ListGroupsResponse, at: Address) -> list[ListedGroup]:
    if response.error_code != ErrorCode.NONE:
        raise error_from_code(response.error_code, None, at=at, what="groups")
    return [
        ListedGroup(
            group_id=each.group_id,
            protocol_type=each.protocol_type,
            state=_state(each.group_state),
            group_type=each.group_type,
        )
        for each in response.groups
    ]


def described_group(response: DescribeGroupsResponse, at: Address, group_id: str) -> DescribedGroup:
    if len(response.groups) != 1:
        raise MalformedMessage(f"a response for one group has {len(response.groups)} parts")
    (reported,) = response.groups
    if reported.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise GroupNotFound(group_id)
    if reported.error_code != ErrorCode.NONE:
        raise error_from_code(reported.error_code, reported.error_message, at=at, what=group_id)
    return DescribedGroup(
        group_id=reported.group_id,
        state=_state(reported.group_state),
        protocol_type=reported.protocol_type,
        protocol=reported.protocol_data,
        generation=-1,
        members=tuple(
            DescribedMember(
                member_id=each.member_id,
                instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                metadata=bytes(each.member_metadata),
                assignment=bytes(each.member_assignment),
            )
            for each in reported.members
        ),
    )


def commit_request(group_id: str, offsets: Mapping[TopicPartition, OffsetToCommit]) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for name, each in offsets.items():
        topics.setdefault(name.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=name.partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                committed_metadata=each.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )


def commit_results(response: OffsetCommitResponse, at: Address) -> Outcomes:
    return {
        (name := TopicPartition(topic.name, part.partition_index)): (
            None if part.error_code == ErrorCode.NONE else error_from_code(part.error_code, None, at=at, what=name)
        )
        for topic in response.topics
        for part in topic.partitions
    }


def check_deleted(response: DeleteGroupsResponse, at: Address, group_id: str) -> None:
    if len(response.results) != 1:
        raise MalformedMessage(f"a response for one group has {len(response.results)} parts")
    (reported,) = response.results
    if reported.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise GroupNotFound(group_id)
    if reported.error_code != ErrorCode.NONE:
        raise error_from_code(reported.error_code, reported.error_message, at=at, what=group_id)


def _state(text: str) -> GroupState:
    try:
        return GroupState(text)
    except ValueError:
        raise MalformedMessage(f"a group is in an unknown state; state={text[:50]!r}") from None
