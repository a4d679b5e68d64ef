"""The metadata store's door: facts as rows, every call one transaction.

Data path   leases before the first append, one commit per flush, the index of runs for fetch, marks for the collector
Owns        the door; what each call promises
Leaves      SQL to the engines and `sql/`, meaning to `broker`

Every call is all or nothing. Trouble of the store itself is `errors.Unavailable`: the call may or may not have
happened, and every call here may be repeated with the same arguments. Every implementation passes
`tests/contracts/metadata_store.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from streamhouse.config.fields import Address
from streamhouse.model.cluster import AbandonedRange, Change, Membership, PartitionState, PutReport, Session
from streamhouse.model.external_commit import ExternalCommit, QueryId, StoredCommit
from streamhouse.model.group import CommittedOffset, GroupOffset, ShardCommit, StoredGroup
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object that runs name. Later objects have higher numbers."""

    number: int
    key: str
    size_bytes: int


class ObjectRange(NamedTuple):
    """Offsets [base, end) of a partition, as an object holds them."""

    partition: PartitionId
    base: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingDeletion:
    """An object that no row refers to any more; its bytes go once the grace time has passed."""

    key: str
    doomed_at_ms: int


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
        """Calls that ended in `Unavailable` since the last one that didn't."""
        ...

    # --- changes
    @property
    def is_listening(self) -> bool:
        """Whether changes made by others are heard now. Where they aren't, copies grow old unnoticed."""
        ...

    def subscribe(self, heard: Callable[[Change], None]) -> Callable[[], None]:
        """Call `heard` on the event loop for every change that this store or another one on the same database commits.

        Listening begins with the first subscription, and goes on by itself across failures: whenever it begins or ends,
        `EVERYTHING` is heard, because anything may have been missed. Heartbeats and commits of segments, groups and
        offsets are no changes. `heard` must be quick; whatever it raises is logged. Returns what ends the subscription.
        """
        ...

    async def cluster_id(self, proposed: str) -> str:
        """The name by which clients know this cluster: the first one that anybody proposed."""
        ...

    async def schema_version(self) -> int:
        """The version of the tables; another agent, of a newer release, may have changed it since this store was
        opened."""
        ...

    # --- topics
    async def create_topic(self, topic: Topic) -> None:
        """Add the topic and its partitions, with empty logs.

        No-op when the same id is there already; raise `TopicExists` when another topic has the name.
        """
        ...

    async def delete_topic(self, topic_id: TopicId) -> None:
        """Remove topic, partitions, runs and offsets committed in it, and doom objects left without runs.

        Where there are very many runs its records are deleted first, in several transactions, so that a call that fails
        may leave a topic without records.

        With the internal topic go the groups of its shards. No error when it isn't there.
        """
        ...

    async def topics(self) -> Sequence[Topic]: ...

    async def alter_topic(
        self, topic_id: TopicId, *, expected: Mapping[str, str], overrides: Mapping[str, str]
    ) -> Topic:
        """Replace a topic's settings if they still are the `expected` ones.

        Returns the topic as it is then: somebody who was quicker is seen by settings that are not `overrides`. Raise
        `UnknownTopicId` when it isn't there.
        """
        ...

    async def add_partitions(self, topic_id: TopicId, *, from_count: int, to_count: int) -> Topic:
        """Give a topic that has `from_count` partitions `to_count` of them, the new ones with empty logs.

        Returns the topic as it is then: with another number when somebody was quicker. Raise `UnknownTopicId` when it
        isn't there.
        """
        ...

    async def partitions(self, topic_ids: Sequence[TopicId]) -> Sequence[PartitionState]:
        """Every partition of these topics, ordered; unknown topics have none."""
        ...

    async def sizes(self, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, int]:
        """Bytes of the runs that are kept of these topics, by partition; those that have no records are left out.

        However many runs there are, each partition costs the same.
        """
        ...

    # --- settings of agents
    async def broker_settings(self) -> Mapping[NodeId | None, Mapping[str, str]]:
        """What was changed while agents run, by node; None: for every agent. Nodes without changes are left out."""
        ...

    async def alter_broker_settings(
        self, node_id: NodeId | None, *, expected: Mapping[str, str], configs: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Replace what was changed for one node, or for every agent, if it still is what is `expected`.

        Returns what it is then: somebody who was quicker is seen by settings that are not `configs`.
        """
        ...

    # --- sessions and leases
    async def open_session(self, session: NewSession) -> Session:
        """Begin a session, live for `ttl_ms` from now by the store's clock, with the lowest free node id.

        Repeated while the session is live it renews it and returns it; raise `SessionLost` when that id was claimed or
        has ended: an id never comes back.
        """
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
        """The heartbeat: extend the session and so all its leases; raise `SessionLost` unless it is still live.

        A session that expired but that nobody has claimed yet is live again by this. `wal_start` tells whoever may have
        to recover it where its log begins, `wal_durable` below which number all its objects were durable; neither ever
        goes back. `puts` tells the others whether this agent's writes reach the object store.
        """
        ...

    async def drain_session(self, session_id: SessionId, *, draining: bool = True) -> None:
        """Say that a session hands its leases over and takes no more, or that it doesn't after all.

        Raise `SessionLost` when it has ended or was claimed.
        """
        ...

    async def end_session(self, session_id: SessionId) -> None:
        """End a live session and free what it still holds. For a holder that has flushed everything.

        No-op when it has ended; raise `SessionLost` when it was claimed, because its leases are the recoverer's now.
        """
        ...

    async def membership(self) -> Membership:
        """All sessions that have not ended, by node id, and the store's clock, in one snapshot."""
        ...

    async def acquire(self, session_id: SessionId, partitions: Sequence[PartitionId]) -> Sequence[PartitionState]:
        """Take the leases that are free, each with a new epoch; those already held by this session stay as they are.

        Returns the states of those now held by this session, ordered; others are left out. Raise `SessionLost` unless
        the session is live and unexpired.
        """
        ...

    async def release(self, session_id: SessionId, partitions: Sequence[PartitionId]) -> None:
        """Give up leases held by this session; the epoch stays.

        Raise `SessionLost` when the session was claimed: what it had not flushed must be recovered before anybody else
        may lead. No-op for a session that has ended.
        """
        ...

    async def claim_recovery(self, dead: SessionId, *, by: SessionId, proven_dead: bool) -> int | None:
        """Claim a session for recovery; returns the claim's number, which only grows, or None when it can't be claimed.

        It can be claimed when it has not ended and either its time is up by the store's clock or `proven_dead` (the
        caller holds the lock of its disk). From here on its heartbeats and commits are refused, and so are those of an
        earlier claim. A session can't claim itself; raise `SessionLost` unless `by` is live.

        Once claimed, only its claimer may claim it again, as long as that one is live and unexpired, unless it is
        `proven_dead`: healthy agents don't take a recovery away from each other, and a recoverer's death frees it.
        """
        ...

    async def held_by(self, session_id: SessionId) -> Sequence[PartitionState]:
        """The partitions whose lease this session holds."""
        ...

    async def finish_recovery(
        self,
        dead: SessionId,
        claim: int,
        commits: Sequence[SegmentCommit],
        *,
        continue_at: Mapping[PartitionId, int] | None = None,
    ) -> None:
        """Publish what was recovered, free the dead session's leases and end it, together. The partitions in
        `continue_at` go on there, if that is above their end: offsets below it may have been given to lost records.

        Raise `SessionLost` if the claim is not the newest, and `LeaseLost` naming the partitions whose guard failed, as
        `commit_segments` does (their topic was deleted meanwhile: leave them out and finish again). Repeating a finish
        that happened is a no-op.
        """
        ...

    async def forget_sessions(self, older_than_ms: int, limit: int) -> int:
        """Remove sessions that ended at least so long ago, oldest first; returns how many went.

        Never one that holds a lease or has abandoned ranges.
        """
        ...

    # --- where partitions belong
    async def pin_partitions(self, pins: Mapping[PartitionId, NodeId | None]) -> None:
        """Say who should lead partitions; None: whoever would otherwise. Unknown partitions are passed over."""
        ...

    # --- offsets that only a disk knows of
    async def reserve_offsets(self, session_id: SessionId, until: Mapping[PartitionId, int]) -> None:
        """Reserve all offsets below the given ones for this holder; what was reserved before stays so.

        All or nothing: raise `LeaseLost` naming the partitions that this session doesn't hold, and `SessionLost` unless
        it is live and unexpired.
        """
        ...

    async def abandon_recovery(self, dead: SessionId, claim: int) -> None:
        """Give up the unflushed records of a dead session whose disk can't be reached, free its leases and end it.

        Every partition that it holds goes on behind what was reserved, so that nobody uses an offset twice, and an
        `AbandonedRange` is kept of each, for when the disk comes back; an empty one where nothing was reserved. Raise
        `SessionLost` if the claim is not the newest. Repeating it, or following a finish of the same claim, is a no-op.
        """
        ...

    async def abandoned_ranges(self, session_id: SessionId) -> Sequence[AbandonedRange]:
        """What was given up of a session, by partition; without topics that were deleted since."""
        ...

    async def abandoned_sessions(self) -> Mapping[SessionId, int]:
        """The sessions of which something was given up, and how many partitions may have lost records with them."""
        ...

    async def forget_abandoned(self, session_id: SessionId) -> None:
        """Drop a session's ranges, whose records were appended again. No error when there are none."""
        ...

    # --- segments
    async def commit_segments(self, session_id: SessionId, commits: Sequence[SegmentCommit]) -> None:
        """Publish segment objects: each run must begin at its partition's flushed end, under its epoch and this holder.

        All or nothing: raise `LeaseLost` naming the partitions whose guard failed (all of them when the session is no
        longer live; an expired session that nobody has claimed may still commit). Repeating a commit that happened is a
        no-op, known by its object keys; a known key with a run that was never published under it fails the guard (one
        that was replaced since was published). Aborted transactions are published with
        the runs in which their markers stand.
        """
        ...

    async def runs(self, partition: PartitionId, *, from_offset: int, limit: int) -> Sequence[Run]:
        """Up to `limit` runs with `end > from_offset`, by offset."""
        ...

    async def runs_of(self, from_offsets: Mapping[PartitionId, int], *, limit: int) -> Sequence[Run]:
        """Up to `limit` runs of each partition with `end` above its offset, by partition and offset."""
        ...

    async def last_runs(self, partitions: Sequence[PartitionId]) -> Sequence[Run]:
        """The newest run of each, which always stays, because it carries the producers' state, its own or that of the
        run before those that were placed; ordered. Partitions without runs are left out."""
        ...

    async def runs_before(self, partition: PartitionId, *, before: int, limit: int) -> Sequence[Run]:
        """Runs that begin below an offset, newest first, each with where the producers' state after it stands."""
        ...

    async def run_at_time(self, partition: PartitionId, *, timestamp_ms: int, from_offset: int) -> Run | None:
        """The first run with `end > from_offset` that has a record as late as the timestamp."""
        ...

    async def latest_run(self, partition: PartitionId, *, from_offset: int) -> Run | None:
        """The first of the runs with `end > from_offset` that have the largest timestamp."""
        ...

    async def epoch_end(self, partition: PartitionId, epoch: int) -> EpochEnd | None:
        """The newest epoch with a run that is not newer than `epoch`, and where it ends; None when all are newer."""
        ...

    async def replace_runs(self, session_id: SessionId, expected: Sequence[Run], commit: SegmentCommit) -> bool:
        """Put the runs of a new object in the place of consecutive runs of a partition, which a live session may do
        whoever holds the lease.

        The new runs cover exactly the offsets of the expected ones, each offset under its epoch (`Internal` otherwise).
        All or nothing: False, and nothing changed, unless exactly the expected rows are still there. Objects left
        without runs are doomed. Repeating a replacement that happened is a no-op and True, known by its object key.
        Raise `SessionLost` unless the session is live.
        """
        ...

    async def mark_cleaned(self, partition: PartitionId, up_to: int) -> None:
        """Remember that all below `up_to` was compacted: never back, never past the flushed end. No error when the
        partition isn't there."""
        ...

    async def cleaned(self, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, int]:
        """How far the partitions of these topics were compacted; those that never were are left out."""
        ...

    # --- placing
    async def commit_external_segments(self, placement: ExternalCommit) -> StoredCommit:
        """Publish segments that others wrote behind what several sessions hold, and remember the commit.

        All or nothing: raise `LeaseLost` naming the partitions whose guard failed, which is that of `commit_segments`
        with each partition's own holder. A commit of the same query and epoch that happened is told again, whatever its
        segments were; an epoch older than the newest one is `StaleCommit`; objects that are known already, placed or
        given up, are `CommitRefused`. With a fence, `PipelineMoved` unless the pipeline is owned under its epoch.
        """
        ...

    async def find_commit(self, query: QueryId, epoch: int) -> StoredCommit | None:
        """What a commit placed, if it happened; only the newest few of a query are remembered."""
        ...

    async def last_commit(self, query: QueryId) -> StoredCommit | None: ...

    async def forget_commits(self, older_than_ms: int, limit: int) -> int:
        """Forget queries whose last commit was at least so long ago, oldest first; returns how many went."""
        ...

    async def abandon_objects(self, keys: Sequence[str]) -> None:
        """Doom objects that no row names: nobody places them from now on. Those that were placed stay."""
        ...

    # --- retention and collection
    async def advance_log_start(self, starts: Mapping[PartitionId, int]) -> bool:
        """Move log starts forward (never back, never past the flushed end), and drop what lies below them.

        Runs that end at or below the log start go, except each partition's newest; objects left without runs are
        doomed. Aborted transactions go when their markers lie below. Unknown partitions are passed over. However many
        runs there are, a call drops the oldest thousand or so: True when more may be left, which the same call drops
        next.
        """
        ...

    async def objects_pending_deletion(self, *, grace_ms: int, limit: int) -> Sequence[PendingDeletion]:
        """Objects doomed at least `grace_ms` ago by the store's clock, oldest first."""
        ...

    async def stored_objects(self, *, after: int, limit: int) -> Sequence[StoredObject]:
        """Objects that runs name, by number, from the first one above `after` on."""
        ...

    async def newest_objects(self, *, limit: int) -> Sequence[StoredObject]:
        """The last objects that were registered, the newest first."""
        ...

    async def ranges_of_object(self, key: str) -> Sequence[ObjectRange] | None:
        """The offsets that an object holds, ordered; none where only producers' state in it is needed. None: no run
        names it."""
        ...

    async def forget_objects(self, keys: Sequence[str]) -> None:
        """Drop the rows of doomed objects whose bytes are gone."""
        ...

    async def known_objects(self) -> frozenset[str]:
        """Every key that any row names, live or doomed, read in one snapshot."""
        ...

    async def known_among(self, keys: Sequence[str]) -> frozenset[str]:
        """Which of these keys any row names, live or doomed."""
        ...

    # --- groups
    async def commit_groups(self, session_id: SessionId, commits: Sequence[ShardCommit]) -> None:
        """Change groups and offsets of shards that this session holds, each shard once, its changes in order.

        All or nothing: raise `LeaseLost` naming the shards whose guard failed: another holder or epoch, a session that
        is no longer live (all of them), or a commit that comes after a later one of its epoch. Repeating the last
        commit of a shard is a no-op. An offset of a partition that is gone is passed over.
        """
        ...

    async def load_groups(self, shards: Sequence[PartitionId]) -> Sequence[ShardGroup]:
        """All groups of these shards, by shard and group id."""
        ...

    async def committed_offsets(self, requested: Sequence[OffsetsRequest]) -> Sequence[OffsetStored]:
        """What the groups have committed, in the order asked, each group's by partition; what is not there is left
        out."""
        ...

    async def groups_to_review(self, shards: Sequence[PartitionId], *, before_ms: int, now_ms: int) -> Sequence[str]:
        """Groups of these shards that have no offset at all, or one committed at `before_ms` or earlier, or one that
        was to expire by `now_ms`."""
        ...

    # --- producers
    async def allocate_producer_ids(self, count: int) -> int:
        """Reserve `count` ids that nobody ever had; returns the first."""
        ...

    async def now_ms(self) -> int:
        """The store's clock, which decides about leases."""
        ...

    async def aclose(self) -> None: ...
