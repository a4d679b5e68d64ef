"""SqliteMetadataStore: the metadata store's door over SQLite.

Data path   broker -> **store** -> one transaction each
Owns        nothing but the connection between the door's calls and their transactions
Leaves      the transactions to `topics`, `sessions`, `segments` and `groups`, running them to `database`
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Self

from streamhouse.clock import Clock
from streamhouse.model.group import ShardCommit
from streamhouse.model.lease import PartitionState, Session
from streamhouse.model.names import PartitionId, SessionId, TopicId
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.base import (
    DoomedObject,
    EpochEnd,
    NewSession,
    OffsetsAsked,
    OffsetStored,
    ShardGroup,
)
from streamhouse.stores.metadata.sqlite import groups, segments, sessions, topics
from streamhouse.stores.metadata.sqlite.database import Database, SqliteSettings


class SqliteMetadataStore:
    """A `MetadataStore`. The store's clock is the `clock` it is given.

    Statements run through the event loop's `run_in_executor`: on one thread of its own, or on the `executor` given, or
    inline where a simulated loop says so.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        settings: SqliteSettings | None = None,
        executor: Executor | None = None,
    ) -> None:
        self._clock = clock
        self._database = Database(path, clock=clock, settings=settings or SqliteSettings(), executor=executor)

    def __repr__(self) -> str:
        return f"<SqliteMetadataStore {self._database!r}>"

    @property
    def failures_in_a_row(self) -> int:
        return self._database.failures_in_a_row

    async def open(self) -> Self:
        """Open or create the database; must come before any other call."""
        await self._database.open()
        return self

    async def cluster_id(self, proposed: str) -> str:
        return await self._database.write(partial(topics.cluster_id, proposed=proposed))

    # --- topics
    async def create_topic(self, topic: Topic) -> None:
        await self._database.write(partial(topics.create_topic, topic=topic))

    async def delete_topic(self, topic_id: TopicId) -> None:
        await self._database.write(partial(topics.delete_topic, topic_id=topic_id))

    async def topics(self) -> Sequence[Topic]:
        return await self._database.read(topics.list_topics)

    async def alter_topic(
        self, topic_id: TopicId, *, expected: Mapping[str, str], overrides: Mapping[str, str]
    ) -> Topic:
        return await self._database.write(
            partial(topics.alter_topic, topic_id=topic_id, expected=expected, overrides=overrides)
        )

    async def add_partitions(self, topic_id: TopicId, *, from_count: int, to_count: int) -> Topic:
        return await self._database.write(
            partial(topics.add_partitions, topic_id=topic_id, from_count=from_count, to_count=to_count)
        )

    async def partitions(self, topic_ids: Sequence[TopicId]) -> Sequence[PartitionState]:
        return await self._database.read(partial(topics.list_partitions, topic_ids=topic_ids))

    async def sizes(self, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, int]:
        return await self._database.read(partial(topics.list_sizes, topic_ids=topic_ids))

    # --- sessions and leases
    async def open_session(self, session: NewSession) -> Session:
        return await self._database.write(partial(sessions.open_session, new=session))

    async def renew_session(self, session_id: SessionId, ttl_ms: int) -> None:
        await self._database.write(partial(sessions.renew_session, session_id=session_id, ttl_ms=ttl_ms))

    async def end_session(self, session_id: SessionId) -> None:
        await self._database.write(partial(sessions.end_session, session_id=session_id))

    async def sessions(self) -> Sequence[Session]:
        return await self._database.read(sessions.list_sessions)

    async def acquire(self, session_id: SessionId, partitions: Sequence[PartitionId]) -> Sequence[PartitionState]:
        return await self._database.write(partial(sessions.acquire, session_id=session_id, partitions=partitions))

    async def release(self, session_id: SessionId, partitions: Sequence[PartitionId]) -> None:
        await self._database.write(partial(sessions.release, session_id=session_id, partitions=partitions))

    async def claim_recovery(self, dead: SessionId, *, by: SessionId, proven_dead: bool) -> int | None:
        return await self._database.write(partial(sessions.claim_recovery, dead=dead, by=by, proven_dead=proven_dead))

    async def held_by(self, session_id: SessionId) -> Sequence[PartitionState]:
        return await self._database.read(partial(sessions.held_by, session_id=session_id))

    async def finish_recovery(self, dead: SessionId, claim: int, commits: Sequence[SegmentCommit]) -> None:
        await self._database.write(partial(sessions.finish_recovery, dead=dead, claim=claim, commits=commits))

    # --- segments
    async def commit_segments(self, session_id: SessionId, commits: Sequence[SegmentCommit]) -> None:
        await self._database.write(partial(segments.commit_segments, session_id=session_id, commits=commits))

    async def runs(self, partition: PartitionId, *, from_offset: int, limit: int) -> Sequence[Run]:
        work = partial(segments.list_runs, partition=partition, from_offset=from_offset, limit=limit)
        return await self._database.read(work)

    async def last_run(self, partition: PartitionId) -> Run | None:
        return await self._database.read(partial(segments.last_run, partition=partition))

    async def run_at_time(self, partition: PartitionId, *, timestamp_ms: int, from_offset: int) -> Run | None:
        work = partial(segments.run_at_time, partition=partition, timestamp_ms=timestamp_ms, from_offset=from_offset)
        return await self._database.read(work)

    async def latest_run(self, partition: PartitionId, *, from_offset: int) -> Run | None:
        return await self._database.read(partial(segments.latest_run, partition=partition, from_offset=from_offset))

    async def epoch_end(self, partition: PartitionId, epoch: int) -> EpochEnd | None:
        return await self._database.read(partial(segments.epoch_end, partition=partition, epoch=epoch))

    # --- retention and collection
    async def advance_log_start(self, starts: Mapping[PartitionId, int]) -> None:
        await self._database.write(partial(segments.advance_log_start, starts=starts))

    async def doomed_objects(self, *, grace_ms: int, limit: int) -> Sequence[DoomedObject]:
        return await self._database.read(partial(segments.doomed_objects, grace_ms=grace_ms, limit=limit))

    async def forget_objects(self, keys: Sequence[str]) -> None:
        await self._database.write(partial(segments.forget_objects, keys=keys))

    async def known_objects(self) -> frozenset[str]:
        return await self._database.read(segments.known_objects)

    # --- groups
    async def commit_groups(self, session_id: SessionId, commits: Sequence[ShardCommit]) -> None:
        await self._database.write(partial(groups.commit_groups, session_id=session_id, commits=commits))

    async def load_groups(self, shards: Sequence[PartitionId]) -> Sequence[ShardGroup]:
        return await self._database.read(partial(groups.load_groups, shards=shards))

    async def committed_offsets(self, asked: Sequence[OffsetsAsked]) -> Sequence[OffsetStored]:
        return await self._database.read(partial(groups.committed_offsets, asked=asked))

    async def groups_to_review(self, shards: Sequence[PartitionId], *, before_ms: int, now_ms: int) -> Sequence[str]:
        work = partial(groups.groups_to_review, shards=shards, before_ms=before_ms, now_ms=now_ms)
        return await self._database.read(work)

    # --- producers
    async def allocate_producer_ids(self, count: int) -> int:
        return await self._database.write(partial(segments.allocate_producer_ids, count=count))

    async def now_ms(self) -> int:
        return self._clock.now_ms()

    async def aclose(self) -> None:
        await self._database.aclose()
