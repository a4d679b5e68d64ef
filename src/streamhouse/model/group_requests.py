"""Group requests: requests of members and administrators to groups, and their results.

Data path   wire -> **group_requests** -> groups -> **group_requests** -> wire
Owns        the types of both directions
Leaves      versions and codes to the wires; stored state to `model.group`

Errors are raised, or are the result of a part if one call has many parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamhouse.errors import StreamhouseError, UnstableOffsets
from streamhouse.model.group import CommittedOffset, GroupState, OfferedProtocol
from streamhouse.model.names import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A member wants to be part of the next generation.

    `member_id` is empty for a new member. With `learns_id`, a new dynamic member gets an id first and must join again
    with it (KIP-394). `may_skip_assignment`: a returning static leader supports skipping the assignment (KIP-814).
    """

    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[OfferedProtocol, ...]
    learns_id: bool = True
    may_skip_assignment: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """A generation, for one of its members; only the leader gets the `members`."""

    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member requests its assignment; the leader sends those of all."""

    member_id: str
    instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    protocol_type: str | None
    protocol: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRef:
    """The caller: a member of a generation, or without any field a client outside of group management."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """A member that leaves, or without its id, the static member to remove."""

    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetToCommit:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A described group; metadata, assignments and protocol are only set if the group is stable."""

    group_id: str
    state: GroupState
    protocol_type: str
    protocol: str
    generation: int
    members: tuple[DescribedMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    group_id: str
    protocol_type: str
    state: GroupState
    group_type: str


Fetched = Mapping[TopicPartition, CommittedOffset]
"""Committed offsets of a group; partitions without a commit are left out."""

Stable = Mapping[TopicPartition, CommittedOffset | UnstableOffsets]
"""The same with require_stable: an offset that an open transaction may change is an error."""

Outcomes = Mapping[TopicPartition, StreamhouseError | None]
"""The outcome of each partition; None: success."""

LeaveResults = Sequence[StreamhouseError | None]
"""The outcome of each leaving member, in order; None: success."""
