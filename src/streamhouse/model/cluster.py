"""Cluster: sessions, leases, membership, notifications of changes, and preferred leaders.

Owns        the types; the rule for preferred leaders: rendezvous hashing, so that an agent that joins or leaves moves
            only its own share
Leaves      granting, renewing and fencing to the metadata store, acting on them to `broker.session` and
            `broker.cluster`

A lease lives exactly as long as the session that holds it: one heartbeat of the session renews all its leases. Epochs
come from one counter of the whole cluster, so they only grow, also across release, deletion and re-creation. All agents
compute preferred leaders alike from the same list of members; while lists differ, leases decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

from streamhouse.config.fields import Address
from streamhouse.model.names import Epoch, NodeId, PartitionId, SessionId, TopicId


class ChangeKind(StrEnum):
    TOPICS = "topics"
    """A topic was created, altered, grown or deleted."""
    SESSIONS = "sessions"
    """An agent came, went, drains, or is being recovered."""
    LEASES = "leases"
    """Leases were taken, given up, freed or pinned."""
    SETTINGS = "settings"
    """Settings of agents were changed."""
    SCHEMAS = "schemas"
    """Versions of schemas were deleted. That there are new ones is no news: nobody keeps in mind what isn't there."""
    SECURITY = "security"
    """Users, keys, access rules, roles or quotas were changed."""
    EVERYTHING = "everything"
    """News may have been missed."""


class Change(NamedTuple):
    kind: ChangeKind
    topic_id: TopicId | None = None
    """Of which topic; None: of any."""


class SessionState(StrEnum):
    LIVE = "live"
    RECOVERING = "recovering"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One life of an agent. `node_id` is what Kafka clients see; it is unique among sessions that have not ended."""

    session_id: SessionId
    node_id: NodeId
    kafka: Address
    http: Address
    state: SessionState
    started_at_ms: int
    expires_at_ms: int
    claim: int = 0
    claimed_by: SessionId | None = None  # who made the newest claim
    draining: bool = False  # it takes no more leases, and hands over those it holds
    wal: str = "disk"  # where its unflushed records are: "disk" (its own) or "object" (the object store)
    wal_start: int = 0  # first object of its WAL that may still be needed
    wal_durable: int = 0  # all objects of its WAL below this were durable at its last heartbeat
    put_at_ms: int = 0  # when a write of its agent last reached the object store, by the metadata store; 0: unknown
    put_failing: bool = False  # its agent tries to write to the object store, and nothing gets there
    listeners: tuple[tuple[str, Address], ...] = ()  # the addresses of its Kafka listeners, by their names

    def kafka_at(self, listener: str) -> Address:
        """Where clients of the listener of this name find the agent's Kafka; `kafka` if it has no such listener."""
        return next((address for name, address in self.listeners if name == listener), self.kafka)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutReport:
    """What an agent's heartbeat tells of its writes to the object store."""

    age_ms: int | None = None  # of the last one that got there
    failing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Who is there, and what time it is for the store, in one snapshot."""

    now_ms: int
    sessions: Sequence[Session]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition as the metadata store knows it."""

    partition: PartitionId
    epoch: Epoch
    holder: SessionId | None
    log_start: int
    flushed_end: int
    pinned_to: NodeId | None = None  # who should lead it, whatever else would decide
    reserved_until: int = 0  # below it a holder with a disk of its own may have given offsets away


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonedRange:
    """Offsets [from_offset, until) that a dead session may have given to records, on a disk that nobody could reach.

    Nobody uses them again. When the disk comes back, the records are appended anew.
    """

    session_id: SessionId
    partition: PartitionId
    epoch: Epoch
    from_offset: int
    until: int


def preferred_node(key: bytes, nodes: Sequence[NodeId]) -> NodeId | None:
    """The node with the highest hash of key and node; None when there are no nodes."""
    return max(nodes, key=lambda node: (_weight(key, node), node), default=None)


def partition_key(partition: PartitionId) -> bytes:
    return partition.topic_id.bytes + partition.partition.to_bytes(4, "big")


def _weight(key: bytes, node: NodeId) -> bytes:
    return blake2b(key + node.to_bytes(8, "big"), digest_size=8).digest()
