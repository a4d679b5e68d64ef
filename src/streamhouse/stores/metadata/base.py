"""The metadata store's door: facts as rows, every call one transaction.

Data path   leases before the first append, one commit per flush, the index of runs for fetch, marks for the collector
Owns        the door; what each call promises
Leaves      SQL to the engines and `sql/`, meaning to `broker`

Every call is all or nothing. Trouble of the store itself is `errors.Unavailable`: the call may or may not have happened, and every
call here may be repeated with the same arguments. Every implementation passes `tests/contracts/metadata_store.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streamhouse.model.lease import Address, PartitionState, Session
from streamhouse.model.names import PartitionId, SessionId, TopicId
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.model.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    session_id: SessionId
    kafka: Address
    http: Address
    ttl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DoomedObject:
    """An object that no row refers to any more; its bytes go once the grace time has passed."""

    key: str
    doomed_at_ms: int


class MetadataStore(Protocol):
    # --- topics
    async def create_topic(self, topic: Topic) -> None:
        """Add the topic and its partitions, with empty logs; raise `TopicExists` unless the same id is there already."""
        ...

    async def delete_topic(self, topic_id: TopicId) -> None:
        """Remove topic, partitions and runs, and doom objects left without runs; no error when it isn't there."""
        ...

    async def topics(self) -> Sequence[Topic]: ...

    async def partitions(self, topic_ids: Sequence[TopicId]) -> Sequence[PartitionState]:
        """Every partition of these topics, ordered; unknown topics have none."""
        ...

    # --- sessions and leases
    async def open_session(self, session: NewSession) -> Session:
        """Begin a session, live for `ttl_ms` from now by the store's clock, with the lowest free node id."""
        ...

    async def renew_session(self, session_id: SessionId, ttl_ms: int) -> None:
        """The heartbeat: extend the session and so all its leases; raise `SessionLost` unless it is still live.

        A session that expired but that nobody has claimed yet is live again by this.
        """
        ...

    async def end_session(self, session_id: SessionId) -> None:
        """End a live session and free what it still holds. For a holder that has flushed everything."""
        ...

    async def sessions(self) -> Sequence[Session]:
        """All that have not ended, by node id."""
        ...

    async def acquire(self, session_id: SessionId, partitions: Sequence[PartitionId]) -> Sequence[PartitionState]:
        """Take the leases that are free, each with a new epoch; those already held by this session stay as they are.

        Returns the states of those now held by this session; others are left out. Raise `SessionLost` unless the session is live
        and unexpired.
        """
        ...

    async def release(self, session_id: SessionId, partitions: Sequence[PartitionId]) -> None:
        """Give up leases held by this session; the epoch stays."""
        ...

    async def claim_recovery(self, dead: SessionId, *, by: SessionId, proven_dead: bool) -> int | None:
        """Claim a session for recovery; returns the claim's number, which only grows, or None when it can't be claimed.

        It can be claimed when it has not ended and either its time is up by the store's clock or `proven_dead` (the caller holds the lock
        of its disk). From here on its heartbeats and commits are refused, and so are those of an earlier claim.
        """
        ...

    async def held_by(self, session_id: SessionId) -> Sequence[PartitionState]:
        """The partitions whose lease this session holds."""
        ...

    async def finish_recovery(self, dead: SessionId, claim: int, commits: Sequence[SegmentCommit]) -> None:
        """Publish what was recovered, free the dead session's leases and end it, together; raise `SessionLost` if the
        claim is no longer the newest. Repeating a finish that happened is a no-op."""
        ...

    # --- segments
    async def commit_segments(self, session_id: SessionId, commits: Sequence[SegmentCommit]) -> None:
        """Publish segment objects: every run must begin at its partition's flushed end, under the run's epoch and this holder.

        All or nothing: raise `LeaseLost` naming the partitions whose guard failed. Repeating a commit that happened is a no-op,
        known by its object keys.
        """
        ...

    async def runs(self, partition: PartitionId, *, from_offset: int, limit: int) -> Sequence[Run]:
        """Up to `limit` runs with `end > from_offset`, by offset."""
        ...

    async def last_run(self, partition: PartitionId) -> Run | None:
        """The newest run, which always stays, because it carries the producers' state."""
        ...

    # --- retention and collection
    async def advance_log_start(self, starts: Mapping[PartitionId, int]) -> None:
        """Move log starts forward (never back, never past the flushed end), drop the runs that end at or below them, except each
        partition's newest, and doom objects left without runs."""
        ...

    async def doomed_objects(self, *, grace_ms: int, limit: int) -> Sequence[DoomedObject]:
        """Objects doomed at least `grace_ms` ago by the store's clock, oldest first."""
        ...

    async def forget_objects(self, keys: Sequence[str]) -> None:
        """Drop the rows of doomed objects whose bytes are gone."""
        ...

    async def known_objects(self) -> frozenset[str]:
        """Every key that any row names, live or doomed, read in one snapshot."""
        ...

    # --- producers
    async def allocate_producer_ids(self, count: int) -> int:
        """Reserve `count` ids that nobody ever had; returns the first."""
        ...

    async def now_ms(self) -> int:
        """The store's clock, which decides about leases."""
        ...

    async def aclose(self) -> None: ...
