"""Calls: what members and administrators ask of a group, and what they are answered.

Data path   wire -> **calls** -> groups -> **calls** -> wire
Owns        the nouns of both directions, in our own vocabulary
Leaves      versions and codes to the wires; what is at rest to `model.group`

An answer that is an error is raised, or stands in the place of its part where one call has many parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamhouse.errors import StreamhouseError, UnstableOffsets
from streamhouse.model.group import CommittedOffset, GroupState, OfferedProtocol
from streamhouse.model.names import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A member wants to be part of the next generation.

    `member_id` is empty for a new one; with `learns_id`, a new dynamic member is first told its id and must come again
    with it (KIP-394). `may_skip_assignment`: a returning static leader understands that it has nothing to assign.
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
    """A generation, as one of its members learns of it; only the leader is told who the `members` are."""

    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings those of all."""

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
    """Who speaks: a member of a generation, or, with nothing of it, somebody outside group management."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """A member that leaves, or, without its id, the static member that is to be removed."""

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
    """Metadata and assignments are told only of a stable group, and so is the protocol."""

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
"""What a group has committed; partitions without a commit are left out."""

Stable = Mapping[TopicPartition, CommittedOffset | UnstableOffsets]
"""The same for whoever wants no offset that a transaction is about to change: an error stands in its place."""

Outcomes = Mapping[TopicPartition, StreamhouseError | None]
"""What became of each partition; None: it is done."""

LeaveResults = Sequence[StreamhouseError | None]
"""What became of each leaver, in their order; None: it has left."""
