"""MetadataStore: the interface of the metadata store; every call is one transaction.

Data path   leases before the first append, one commit per flush, the index of runs for fetch, deletion marks
Owns        the interface and the contract of each call
Leaves      SQL to the engines and `sql/`, meaning to `broker`

Every call is atomic. Errors of the store itself are `errors.Unavailable`: the call may or may not have been applied,
and it may be repeated with the same arguments. Every implementation passes `tests/contracts/metadata_store.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from streamhouse.config.fields import Address
from streamhouse.model.cluster import (
    AbandonedRange,
    Change,
    Departure,
    Membership,
    PartitionState,
    PutReport,
    Session,
)
from streamhouse.model.external_commit import ExternalCommit, QueryId, StoredCommit
from streamhouse.model.group import CommittedOffset, GroupOffset, ShardCommit, StoredGroup
from streamhouse.model.group_lag import LagHistory
from streamhouse.model.names import Epoch, NodeId, PartitionId, SessionId, TopicId
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.identity_store import IdentityStore
from streamhouse.stores.metadata.pipeline_store import PipelineStore
from streamhouse.stores.metadata.schema_store import SchemaStore
from streamhouse.stores.metadata.security_store import SecurityStore
from streamhouse.stores.metadata.transaction_store import OffsetsRequest as OffsetsRequest
from streamhouse.stores.metadata.transaction_store import TransactionStore


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    session_id: SessionId
    kafka: Address
    http: Address
    ttl_ms: int
    wal: str = "disk"
    listeners: tuple[tuple[str, Address], ...] = ()
    zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object that runs reference. Later objects have higher numbers."""

    number: int
    key: str
    size_bytes: int


class ObjectRange(NamedTuple):
    """Offsets [base, end) of a partition in an object."""

    partition: PartitionId
    base: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDeletion:
    """An object that no row references; it is deleted after the grace time."""

    key: str
    marked_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    epoch: Epoch
    end: int


class ShardGroup(NamedTuple):
    shard: PartitionId
    group: StoredGroup


class OffsetStored(NamedTuple):
    at: GroupOffset
    committed: CommittedOffset


class MetadataStore(SchemaStore, PipelineStore, TransactionStore, IdentityStore, SecurityStore, Protocol):
    @property
    def failures_in_a_row(self) -> int:
        """Consecutive calls that ended in `Unavailable`."""
        ...

    # --- changes
    @property
    def is_listening(self) -> bool:
        """Whether changes by other agents are received now. Otherwise caches may be stale."""
        ...

    def subscribe(self, on_change: Callable[[Change], None]) -> Callable[[], None]:
        """Call `on_change` on the event loop for every change that any store on this database commits.

        Listening starts with the first subscription and is resumed after failures: whenever it starts or ends,
        `EVERYTHING` is sent, because changes may have been missed. Heartbeats and commits of segments, groups and
        offsets are not sent. `on_change` must be quick; its errors are logged. Returns a function that ends the
        subscription."""
        ...

    async def cluster_id(self, proposed: str) -> str:
        """The cluster id: the first one that was proposed."""
        ...

    async def schema_version(self) -> int:
        """The schema version of the tables; an agent of a newer release may have changed it since this store was
        opened."""
        ...

    # --- topics
    async def create_topic(self, topic: Topic) -> None:
        """Add the topic and its partitions, with empty logs.

        No-op when the same id is there already; raise `TopicExists` when another topic has the name.
        """
        ...

    async def delete_topic(self, topic_id: TopicId) -> None:
        """Remove topic, partitions, runs and committed offsets, and mark unreferenced objects for deletion.

        Many runs are deleted first, in several transactions, so that a failed call may leave a topic without records.
        With the internal topic the groups of its shards are deleted. No error if the topic doesn't exist."""
        ...

    async def topics(self) -> Sequence[Topic]: ...

    async def alter_topic(
        self, topic_id: TopicId, *, expected: Mapping[str, str], overrides: Mapping[str, str]
    ) -> Topic:
        """Replace a topic's settings if they are the `expected` ones.

        Returns the resulting topic; after a concurrent change its settings differ from `overrides`. Raises
        `UnknownTopicId`."""
        ...

    async def add_partitions(self, topic_id: TopicId, *, from_count: int, to_count: int) -> Topic:
        """Increase a topic's partitions from `from_count` to `to_count`; the new ones have empty logs.

        Returns the resulting topic; after a concurrent change it has another number of partitions. Raises
        `UnknownTopicId`."""
        ...

    async def partitions(self, topic_ids: Sequence[TopicId]) -> Sequence[PartitionState]:
        """All partitions of these topics, ordered; unknown topics have none."""
        ...

    async def sizes(self, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, int]:
        """Bytes of these topics' runs, by partition; empty partitions are left out. The cost per partition doesn't
        depend on the number of runs."""
        ...

    # --- settings of agents
    async def broker_settings(self) -> Mapping[NodeId | None, Mapping[str, str]]:
        """Dynamic settings by node; None: of all agents. Nodes without changes are left out."""
        ...

    async def alter_broker_settings(
        self, node_id: NodeId | None, *, expected: Mapping[str, str], configs: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Replace the dynamic settings of one node, or of all agents, if they are the `expected` ones.

        Returns the resulting settings; after a concurrent change they differ from `configs`."""
        ...

    # --- sessions and leases
    async def open_session(self, session: NewSession) -> Session:
        """Open a session that is live for `ttl_ms` by the store's clock, with the lowest free node id.

        A repeated call renews and returns a live session; raises `SessionLost` if the session was claimed or has ended:
        ids are never reused."""
        ...

    async def renew_session(
        self,
        session_id: SessionId,
        ttl_ms: int,
        *,
        wal_start: int = 0,
        wal_durable: int = 0,
        puts: PutReport | None = None,
    ) -> None:
        """The heartbeat: extend the session and so all its leases; raises `SessionLost` unless it is live. A session
        that has expired but is not claimed becomes live again. `wal_start` is where a recovery starts to read its log,
        below `wal_durable` all its objects were durable; neither ever decreases. `puts` reports whether this agent's
        writes reach the object store."""
        ...

    async def drain_session(self, session_id: SessionId, *, draining: bool = True) -> None:
        """Mark a session as draining, or not. Raises `SessionLost` if it has ended or was claimed."""
        ...

    async def end_session(self, session_id: SessionId) -> None:
        """End a live session and release its leases. For a session that has flushed everything. No-op if it has ended;
        raises `SessionLost` if it was claimed, because the recovering agent owns its leases."""
        ...

    async def membership(self) -> Membership:
        """All sessions that have not ended, by node id, and the store's clock, in one snapshot."""
        ...

    async def departures(self, within_ms: int, limit: int) -> Sequence[Departure]:
        """The sessions that ended or expired at most `within_ms` ago, newest first."""
        ...

    async def acquire(self, session_id: SessionId, partitions: Sequence[PartitionId]) -> Sequence[PartitionState]:
        """Acquire the free leases, each with a new epoch; those already held by this session are unchanged. Returns the
        states of those held by this session, ordered. Raises `SessionLost` unless the session is live and unexpired."""
        ...

    async def release(self, session_id: SessionId, partitions: Sequence[PartitionId]) -> None:
        """Release leases held by this session; the epoch is kept. Raises `SessionLost` if the session was claimed: its
        unflushed records must be recovered before another agent may lead. No-op for an ended session."""
        ...

    async def claim_recovery(self, dead: SessionId, *, by: SessionId, proven_dead: bool) -> int | None:
        """Claim a session for recovery; returns the claim's number, which only grows, or None when it can't be claimed.

        A session can be claimed if it has not ended, and either has expired by the store's clock or is `proven_dead`
        (the caller holds the lock of its disk). From then on its heartbeats and commits are rejected, and so are those
        of an earlier claim. A session can't claim itself. Raises `SessionLost` unless `by` is live.

        A claimed session can be claimed again by the same claimant, or by another one if the claimant is dead or
        expired or the session is `proven_dead`: healthy agents don't take recoveries away from each other.
        """
        ...

    async def held_by(self, session_id: SessionId) -> Sequence[PartitionState]:
        """The partitions whose leases this session holds."""
        ...

    async def finish_recovery(
        self,
        dead: SessionId,
        claim: int,
        commits: Sequence[SegmentCommit],
        *,
        continue_at: Mapping[PartitionId, int] | None = None,
    ) -> None:
        """Publish the recovered segments, free the dead session's leases and end it, in one transaction. Partitions in
        `continue_at` continue at that offset if it is above their end: offsets below it may belong to lost records.

        Raises `SessionLost` if the claim is not the newest, and `LeaseLost` naming the partitions whose guard failed,
        as in `commit_segments`; their topic was deleted meanwhile, so leave them out and call again. Repeating an
        applied call is a no-op.
        """
        ...

    async def forget_sessions(self, older_than_ms: int, limit: int) -> int:
        """Remove sessions that ended at least `older_than_ms` ago, oldest first; returns their number. Never one that
        holds a lease or has abandoned ranges."""
        ...

    # --- preferred leaders
    async def pin_partitions(
        self, pins: Mapping[PartitionId, NodeId | None], replicas: Mapping[PartitionId, Sequence[int]] | None = None
    ) -> None:
        """Set preferred leaders; None: the default. Unknown partitions are skipped. `replicas` has, for partitions
        that were assigned to several agents, all of them in order, the preferred leader first."""
        ...

    # --- reserved offsets
    async def reserve_offsets(self, session_id: SessionId, until: Mapping[PartitionId, int]) -> None:
        """Reserve all offsets below the given ones for this session; earlier reservations are kept. Atomic: raises
        `LeaseLost` with the partitions that this session doesn't hold, and `SessionLost` unless it is live and
        unexpired."""
        ...

    async def abandon_recovery(self, dead: SessionId, claim: int) -> None:
        """Give up the unflushed records of a dead session whose disk can't be reached, free its leases and end it.

        Each partition that it holds continues after its reserved offsets, so that no offset is used twice. An
        `AbandonedRange` is stored for each, for when the disk comes back; it is empty if nothing was reserved. Raises
        `SessionLost` if the claim is not the newest. A no-op if repeated, or after a finish of the same claim.
        """
        ...

    async def abandoned_ranges(self, session_id: SessionId) -> Sequence[AbandonedRange]:
        """The abandoned ranges of a session, by partition; without topics that were deleted since."""
        ...

    async def abandoned_sessions(self) -> Mapping[SessionId, int]:
        """The abandoned sessions, with the number of partitions that may have lost records."""
        ...

    async def forget_abandoned(self, session_id: SessionId) -> None:
        """Delete a session's abandoned ranges after their records were re-appended. No error if there are none."""
        ...

    # --- segments
    async def commit_segments(self, session_id: SessionId, commits: Sequence[SegmentCommit]) -> None:
        """Publish segment objects: each run must begin at its partition's flushed end, under its epoch and this holder.

        Atomic: raises `LeaseLost` naming the partitions whose guard failed: all of them if the session is no longer
        live. An expired session that was not claimed may still commit. Repeating an applied commit, recognised by its
        object keys, is a no-op, also if its runs were replaced since; a known key with a run that was never published
        under it fails the guard. Aborted transactions are published with the runs that contain their markers.
        """
        ...

    async def runs(self, partition: PartitionId, *, from_offset: int, limit: int) -> Sequence[Run]:
        """Up to `limit` runs with `end > from_offset`, by offset."""
        ...

    async def runs_of(self, from_offsets: Mapping[PartitionId, int], *, limit: int) -> Sequence[Run]:
        """Up to `limit` runs of each partition with `end` above its offset, by partition and offset."""
        ...

    async def last_runs(self, partitions: Sequence[PartitionId]) -> Sequence[Run]:
        """The newest run of each partition, ordered; partitions without runs are left out. It is never deleted, because
        it has the producers' state: its own, or the state before runs of external commits."""
        ...

    async def runs_before(self, partition: PartitionId, *, before: int, limit: int) -> Sequence[Run]:
        """Runs that begin below an offset, newest first, each with the location of its producer snapshot."""
        ...

    async def run_at_time(self, partition: PartitionId, *, timestamp_ms: int, from_offset: int) -> Run | None:
        """The first run with `end > from_offset` that has a record at or after the timestamp."""
        ...

    async def latest_run(self, partition: PartitionId, *, from_offset: int) -> Run | None:
        """The first of the runs with `end > from_offset` that have the largest timestamp."""
        ...

    async def epoch_end(self, partition: PartitionId, epoch: int) -> EpochEnd | None:
        """The newest epoch at most `epoch` that has a run, and its end; None if all are newer."""
        ...

    async def replace_runs(self, session_id: SessionId, expected: Sequence[Run], commit: SegmentCommit) -> bool:
        """Replace consecutive runs of a partition by the runs of a new object. Any live session may do it, whether or
        not it holds the lease.

        The new runs cover exactly the offsets of the expected ones, each offset under its epoch (`Internal` otherwise).
        Atomic: returns False and changes nothing unless exactly the expected rows exist. Objects that no run
        references any more are marked for deletion. Repeating an applied replacement, recognised by its object key, is
        a no-op and returns True. Raises `SessionLost` unless the session is live.
        """
        ...

    async def mark_cleaned(self, partition: PartitionId, up_to: int) -> None:
        """Store that everything below `up_to` was compacted; never decreases, never exceeds the flushed end. No error
        if the partition doesn't exist."""
        ...

    async def cleaned(self, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, int]:
        """The compacted offsets of these topics' partitions; partitions that never were compacted are left out."""
        ...

    # --- external commits
    async def commit_external_segments(self, placement: ExternalCommit) -> StoredCommit:
        """Publish segments that an external writer (Spark) stored, at the flushed ends of frozen partitions, and store
        the commit.

        Atomic: raises `LeaseLost` naming the partitions whose guard failed, as in `commit_segments` but with each
        partition's own leader. A repeated commit of a query and epoch returns the first result, whatever its segments.
        Raises `StaleCommit` for an epoch older than the query's newest, `CommitRefused` for objects that are already
        registered or marked for deletion, and, with a fence, `PipelineMoved` unless the pipeline is owned under its
        epoch.
        """
        ...

    async def find_commit(self, query: QueryId, epoch: int) -> StoredCommit | None:
        """A stored commit, if it was applied; only the newest few of a query are stored."""
        ...

    async def last_commit(self, query: QueryId) -> StoredCommit | None: ...

    async def forget_commits(self, older_than_ms: int, limit: int) -> int:
        """Delete queries whose last commit is at least `older_than_ms` old, oldest first; returns their number."""
        ...

    async def abandon_objects(self, keys: Sequence[str]) -> None:
        """Mark unreferenced objects for deletion, so that no commit uses them. Committed ones are kept."""
        ...

    # --- retention and collection
    async def advance_log_start(self, starts: Mapping[PartitionId, int]) -> bool:
        """Move log starts forward (never back, never past the flushed end), and drop what lies below them.

        Deletes runs that end at or below the log start, except each partition's newest, and aborted transactions whose
        markers are below it. Objects that no run references any more are marked for deletion. Unknown partitions are
        skipped. A call deletes about a thousand runs, oldest first; returns True if more may remain: call again.
        """
        ...

    async def objects_pending_deletion(self, *, grace_ms: int, limit: int) -> Sequence[PendingDeletion]:
        """Objects marked for deletion at least `grace_ms` ago by the store's clock, oldest first."""
        ...

    async def stored_objects(self, *, after: int, limit: int) -> Sequence[StoredObject]:
        """Objects that runs reference, by number, above `after`."""
        ...

    async def newest_objects(self, *, limit: int) -> Sequence[StoredObject]:
        """The last registered objects, newest first."""
        ...

    async def ranges_of_object(self, key: str) -> Sequence[ObjectRange] | None:
        """The offsets in an object, ordered; empty if only its producer snapshots are needed. None: no run references
        it."""
        ...

    async def forget_objects(self, keys: Sequence[str]) -> None:
        """Delete the rows of deleted objects."""
        ...

    async def known_objects(self) -> frozenset[str]:
        """All keys in rows, live or marked for deletion, read in one snapshot."""
        ...

    async def known_among(self, keys: Sequence[str]) -> frozenset[str]:
        """The subset of these keys that is in rows, live or marked for deletion."""
        ...

    # --- groups
    async def commit_groups(self, session_id: SessionId, commits: Sequence[ShardCommit]) -> None:
        """Change groups and offsets of shards that this session holds, each shard once, its changes in order.

        Atomic: raises `LeaseLost` naming the shards whose guard failed: another leader or epoch, a session that is no
        longer live (all shards), or a commit that is older than one that was applied under its epoch. Repeating the
        last commit of a shard is a no-op. Offsets of deleted partitions are skipped.
        """
        ...

    async def load_groups(self, shards: Sequence[PartitionId]) -> Sequence[ShardGroup]:
        """All groups of these shards, by shard and group id."""
        ...

    async def committed_offsets(self, requested: Sequence[OffsetsRequest]) -> Sequence[OffsetStored]:
        """The committed offsets of groups, in the requested order, by partition; missing ones are left out."""
        ...

    async def groups_to_review(self, shards: Sequence[PartitionId], *, before_ms: int, now_ms: int) -> Sequence[str]:
        """Groups of these shards without offsets, or with one committed at `before_ms` or earlier, or one that expires
        by `now_ms`."""
        ...

    async def put_group_lags(self, histories: Sequence[LagHistory], *, now_ms: int, forget_ms: int) -> None:
        """Keep what was measured of groups, and forget what is older than `forget_ms`."""
        ...

    async def group_lags(self, group_ids: Sequence[str]) -> Sequence[LagHistory]:
        """What is known of the lag of these groups, by group id; unknown ones are left out."""
        ...

    # --- producers
    async def allocate_producer_ids(self, count: int) -> int:
        """Reserve `count` new producer ids; returns the first."""
        ...

    async def now_ms(self) -> int:
        """The store's clock, by which leases expire."""
        ...

    async def aclose(self) -> None: ...
