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
    """An agent joined, left, is draining, or is being recovered."""
    LEASES = "leases"
    """Leases were acquired or released, or preferred leaders were set."""
    SETTINGS = "settings"
    """Settings of agents were changed."""
    SCHEMAS = "schemas"
    """Versions of schemas were deleted. New ones are not announced, because misses are not cached."""
    SECURITY = "security"
    """Users, keys, access rules, roles or quotas were changed."""
    EVERYTHING = "everything"
    """Changes may have been missed."""


class Change(NamedTuple):
    kind: ChangeKind
    topic_id: TopicId | None = None
    """The topic; None: any."""


class SessionState(StrEnum):
    LIVE = "live"
    RECOVERING = "recovering"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session of an agent. `node_id` is Kafka's broker id; it is unique among sessions that have not ended."""

    session_id: SessionId
    node_id: NodeId
    kafka: Address
    http: Address
    state: SessionState
    started_at_ms: int
    expires_at_ms: int
    claim: int = 0
    claimed_by: SessionId | None = None  # the session with the newest claim
    draining: bool = False  # it acquires no leases, and transfers those it holds
    wal: str = "disk"  # kind of its WAL: "disk" (the agent's own) or "object" (the object store)
    wal_start: int = 0  # first object of its WAL that may still be needed
    wal_durable: int = 0  # all objects of its WAL below this were durable at its last heartbeat
    put_at_ms: int = 0  # when a write of its agent last reached the object store, by the metadata store; 0: unknown
    put_failing: bool = False  # its agent's writes to the object store fail
    listeners: tuple[tuple[str, Address], ...] = ()  # the addresses of its Kafka listeners, by their names
    zone: str = ""  # the availability zone or rack of its agent; empty: unknown

    def kafka_at(self, listener: str) -> Address:
        """The advertised address of the listener of this name; `kafka` if the agent has no such listener."""
        return next((address for name, address in self.listeners if name == listener), self.kafka)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutReport:
    """A heartbeat's report about the agent's writes to the object store."""

    age_ms: int | None = None  # since the last successful write
    failing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The sessions that have not ended, and the store's time, in one snapshot."""

    now_ms: int
    sessions: Sequence[Session]


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A session that ended or expired, and how long ago by the store's clock."""

    session: Session
    ago_ms: int
    died: bool  # it expired before it ended


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The row of a partition."""

    partition: PartitionId
    epoch: Epoch
    holder: SessionId | None
    log_start: int
    flushed_end: int
    pinned_to: NodeId | None = None  # the preferred leader that was set for it
    replicas: tuple[NodeId, ...] = ()  # the agents it was assigned to, that one first
    reserved_until: int = 0  # offsets reserved for a leader with a disk WAL end here


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonedRange:
    """Offsets [from_offset, until) that a dead session may have assigned to records on an unreachable disk. They are
    never assigned again. When the disk is back, its records are re-appended."""

    session_id: SessionId
    partition: PartitionId
    epoch: Epoch
    from_offset: int
    until: int


def preferred_node(key: bytes, nodes: Sequence[NodeId]) -> NodeId | None:
    """The node with the highest hash of key and node; None without nodes."""
    return max(nodes, key=lambda node: (_weight(key, node), node), default=None)


def partition_key(partition: PartitionId) -> bytes:
    return partition.topic_id.bytes + partition.partition.to_bytes(4, "big")


def _weight(key: bytes, node: NodeId) -> bytes:
    return blake2b(key + node.to_bytes(8, "big"), digest_size=8).digest()
