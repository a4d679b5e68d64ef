"""Consumer groups: the stored state of groups, and their shards.

Owns        the stored types (group, members, committed offsets, changes), and the shard of a group
Leaves      the group protocol to `broker.groups`, rows to the metadata store

A shard is a partition of `__consumer_offsets`, which exists only for its leases: the holder of the lease coordinates
the shard's groups, and every durable change has the lease's epoch.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from streamhouse.model.names import Epoch, PartitionId

OFFSETS_TOPIC: Final = "__consumer_offsets"
CONSUMER: Final = "consumer"
"""The protocol type of consumers: the one whose member metadata names topics."""


class GroupState(StrEnum):
    """States with Kafka's names, which tools print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class OfferedProtocol(NamedTuple):
    """A protocol (assignor) that a member supports, with its metadata for the group leader."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[OfferedProtocol, ...]
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """A group as of its last completed generation, or as of when it became empty.

    `protocol_type` is None for a simple group, which has committed offsets and never had members.
    """

    group_id: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[StoredMember, ...]
    changed_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """`expires_at_ms` is set if an old client requested its own retention."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_at_ms: int
    expires_at_ms: int | None = None


class GroupOffset(NamedTuple):
    """A group and a partition: the key of a committed offset."""

    group_id: str
    partition: PartitionId


# --- changes of a shard, in order, in one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class PutGroup:
    group: StoredGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class DropGroup:
    """Delete a group with all its offsets; with `unless_offsets`, only if it has none."""

    group_id: str
    unless_offsets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOffset:
    at: GroupOffset
    committed: CommittedOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class DropOffset:
    """Delete an offset; with `committed_at_ms`, only the one committed then, so that a newer one is kept."""

    at: GroupOffset
    committed_at_ms: int | None = None


GroupChange = PutGroup | DropGroup | PutOffset | DropOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCommit:
    """Changes to the groups of one shard, under the epoch of its lease.

    `sequence` grows with every commit of an epoch. The store rejects a commit that arrives after a later one, so a
    write that timed out can't undo later changes.
    """

    shard: PartitionId
    epoch: Epoch
    sequence: int
    changes: tuple[GroupChange, ...]


@lru_cache(maxsize=8192)
def shard_of(group_id: str, shards: int) -> int:
    """The shard of a group as in Kafka: Java's string hash without sign, modulo the number of shards."""
    units = group_id.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFF_FFFF
    magnitude = hashed if hashed < 2**31 else 2**32 - hashed
    return (magnitude if magnitude < 2**31 else 0) % shards
