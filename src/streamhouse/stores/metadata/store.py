"""SqlMetadataStore: the metadata store's door over an SQL engine.

Data path   broker -> **store** -> one transaction each
Owns        the connection between the door's calls and their transactions
Leaves      what happens in them to `transactions`, running them to the engines, the registry's calls to `schema_store`,
            those about pipelines to `pipeline_store`, those about transactions of producers to `producing_store`, those
            about the cluster's identity to `identity_store`
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from streamhouse.model.group import ShardCommit
from streamhouse.model.lease import AbandonedRange, PartitionState, PutReport, RollCall, Session
from streamhouse.model.names import NodeId, PartitionId, SessionId, TopicId
from streamhouse.model.placing import Placement, QueryId, StoredCommit
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.base import (
    DoomedObject,
    EpochEnd,
    NewSession,
    ObjectRange,
    OffsetsAsked,
    OffsetStored,
    ShardGroup,
    StoredObject,
)
from streamhouse.stores.metadata.engine import CountedEngine, Engine
from streamhouse.stores.metadata.identity_store import SqlIdentityStore
from streamhouse.stores.metadata.listeners import Heard
from streamhouse.stores.metadata.pipeline_store import SqlPipelineStore
from streamhouse.stores.metadata.producing_store import SqlTransactionStore
from streamhouse.stores.metadata.schema_store import SqlSchemaStore
from streamhouse.stores.metadata.transactions import (
    groups,
    placing,
    replacements,
    reservations,
    segments,
    sessions,
    settings,
    topics,
)

DROPPED_AT_ONCE: Final = 1000
"""Runs that one transaction drops: others wait for it, and a call has a deadline."""


class SqlMetadataStore(SqlSchemaStore, SqlPipelineStore, SqlTransactionStore, SqlIdentityStore):
    """A `MetadataStore`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = CountedEngine(engine)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._engine!r}>"

    @property
    def failures_in_a_row(self) -> int:
        return self._engine.failures_in_a_row

    # --- changes
    @property
    def is_listening(self) -> bool:
        return self._engine.is_listening

    def subscribe(self, heard: Heard) -> Callable[[], None]:
        return self._engine.subscribe(heard)

    async def cluster_id(self, proposed: str) -> str:
        return await self._engine.write(partial(topics.cluster_id, proposed=proposed))

    async def schema_version(self) -> int:
        return await self._engine.look(topics.schema_version)

    # --- topics
    async def create_topic(self, topic: Topic) -> None:
        await self._engine.write(partial(topics.create_topic, topic=topic))

    async def delete_topic(self, topic_id: TopicId) -> None:
        while await self._engine.write(partial(topics.empty_topic, topic_id=topic_id, limit=DROPPED_AT_ONCE)):
            pass
        await self._engine.write(partial(topics.delete_topic, topic_id=topic_id))

    async def topics(self) -> Sequence[Topic]:
        return await self._engine.look(topics.list_topics)

    async def alter_topic(
        self, topic_id: TopicId, *, expected: Mapping[str, str], overrides: Mapping[str, str]
    ) -> Topic:
        return await self._engine.write(
            partial(topics.alter_topic, topic_id=topic_id, expected=expected, overrides=overrides)
        )

    async def add_partitions(self, topic_id: TopicId, *, from_count: int, to_count: int) -> Topic:
        return await self._engine.write(
            partial(topics.add_partitions, topic_id=topic_id, from_count=from_count, to_count=to_count)
        )

    async def partitions(self, topic_ids: Sequence[TopicId]) -> Sequence[PartitionState]:
        return await self._engine.look(partial(topics.list_partitions, topic_ids=topic_ids))

    async def sizes(self, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, int]:
        return await self._engine.look(partial(topics.list_sizes, topic_ids=topic_ids))

    # --- settings of agents
    async def broker_settings(self) -> Mapping[NodeId | None, Mapping[str, str]]:
        return await self._engine.look(settings.list_settings)

    async def alter_broker_settings(
        self, node_id: NodeId | None, *, expected: Mapping[str, str], configs: Mapping[str, str]
    ) -> Mapping[str, str]:
        return await self._engine.write(
            partial(settings.alter_settings, node_id=node_id, expected=expected, configs=configs)
        )

    # --- sessions and leases
    async def open_session(self, session: NewSession) -> Session:
        return await self._engine.write(partial(sessions.open_session, new=session))

    async def renew_session(
        self,
        session_id: SessionId,
        ttl_ms: int,
        *,
        wal_start: int = 0,
        wal_durable: int = 0,
        puts: PutReport | None = None,
    ) -> None:
        work = partial(
            sessions.renew_session,
            session_id=session_id,
            ttl_ms=ttl_ms,
            wal_start=wal_start,
            wal_durable=wal_durable,
            puts=puts,
        )
        await self._engine.urgent(work)

    async def drain_session(self, session_id: SessionId, *, draining: bool = True) -> None:
        await self._engine.write(partial(sessions.drain_session, session_id=session_id, draining=draining))

    async def end_session(self, session_id: SessionId) -> None:
        await self._engine.write(partial(sessions.end_session, session_id=session_id))

    async def roll_call(self) -> RollCall:
        return await self._engine.read(sessions.roll_call)

    async def acquire(self, session_id: SessionId, partitions: Sequence[PartitionId]) -> Sequence[PartitionState]:
        return await self._engine.write(partial(sessions.acquire, session_id=session_id, partitions=partitions))

    async def release(self, session_id: SessionId, partitions: Sequence[PartitionId]) -> None:
        await self._engine.write(partial(sessions.release, session_id=session_id, partitions=partitions))

    async def claim_recovery(self, dead: SessionId, *, by: SessionId, proven_dead: bool) -> int | None:
        return await self._engine.write(partial(sessions.claim_recovery, dead=dead, by=by, proven_dead=proven_dead))

    async def held_by(self, session_id: SessionId) -> Sequence[PartitionState]:
        return await self._engine.look(partial(sessions.held_by, session_id=session_id))

    async def finish_recovery(
        self,
        dead: SessionId,
        claim: int,
        commits: Sequence[SegmentCommit],
        *,
        continue_at: Mapping[PartitionId, int] | None = None,
    ) -> None:
        work = partial(sessions.finish_recovery, dead=dead, claim=claim, commits=commits, continue_at=continue_at or {})
        await self._engine.write(work)

    async def forget_sessions(self, older_than_ms: int, limit: int) -> int:
        return await self._engine.write(partial(sessions.forget_sessions, older_than_ms=older_than_ms, limit=limit))

    # --- where partitions belong
    async def pin_partitions(self, pins: Mapping[PartitionId, NodeId | None]) -> None:
        await self._engine.write(partial(sessions.pin_partitions, pins=pins))

    # --- offsets that only a disk knows of
    async def reserve_offsets(self, session_id: SessionId, until: Mapping[PartitionId, int]) -> None:
        await self._engine.write(partial(reservations.reserve_offsets, session_id=session_id, until=until))

    async def abandon_recovery(self, dead: SessionId, claim: int) -> None:
        await self._engine.write(partial(reservations.abandon_recovery, dead=dead, claim=claim))

    async def abandoned_ranges(self, session_id: SessionId) -> Sequence[AbandonedRange]:
        return await self._engine.look(partial(reservations.abandoned_ranges, session_id=session_id))

    async def abandoned_sessions(self) -> Mapping[SessionId, int]:
        return await self._engine.look(reservations.abandoned_sessions)

    async def forget_abandoned(self, session_id: SessionId) -> None:
        await self._engine.write(partial(reservations.forget_abandoned, session_id=session_id))

    # --- segments
    async def commit_segments(self, session_id: SessionId, commits: Sequence[SegmentCommit]) -> None:
        await self._engine.write(partial(segments.commit_segments, session_id=session_id, commits=commits))

    async def runs(self, partition: PartitionId, *, from_offset: int, limit: int) -> Sequence[Run]:
        work = partial(segments.list_runs, partition=partition, from_offset=from_offset, limit=limit)
        return await self._engine.look(work)

    async def runs_of(self, wanted: Mapping[PartitionId, int], *, limit: int) -> Sequence[Run]:
        return await self._engine.look(partial(segments.runs_of, wanted=wanted, limit=limit)) if wanted else []

    async def last_runs(self, partitions: Sequence[PartitionId]) -> Sequence[Run]:
        return await self._engine.look(partial(segments.last_runs, partitions=partitions))

    async def runs_before(self, partition: PartitionId, *, before: int, limit: int) -> Sequence[Run]:
        work = partial(segments.runs_before, partition=partition, before=before, limit=limit)
        return await self._engine.look(work)

    async def run_at_time(self, partition: PartitionId, *, timestamp_ms: int, from_offset: int) -> Run | None:
        work = partial(segments.run_at_time, partition=partition, timestamp_ms=timestamp_ms, from_offset=from_offset)
        return await self._engine.look(work)

    async def latest_run(self, partition: PartitionId, *, from_offset: int) -> Run | None:
        return await self._engine.read(partial(segments.latest_run, partition=partition, from_offset=from_offset))

    async def epoch_end(self, partition: PartitionId, epoch: int) -> EpochEnd | None:
        return await self._engine.look(partial(segments.epoch_end, partition=partition, epoch=epoch))

    async def replace_runs(self, session_id: SessionId, expected: Sequence[Run], commit: SegmentCommit) -> bool:
        work = partial(replacements.replace_runs, session_id=session_id, expected=expected, commit=commit)
        return await self._engine.write(work)

    async def mark_cleaned(self, partition: PartitionId, up_to: int) -> None:
        await self._engine.write(partial(replacements.mark_cleaned, partition=partition, up_to=up_to))

    async def cleaned(self, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, int]:
        return await self._engine.look(partial(replacements.list_cleaned, topic_ids=topic_ids))

    # --- retention and collection
    async def advance_log_start(self, starts: Mapping[PartitionId, int]) -> bool:
        return await self._engine.write(partial(segments.advance_log_start, starts=starts, limit=DROPPED_AT_ONCE))

    async def doomed_objects(self, *, grace_ms: int, limit: int) -> Sequence[DoomedObject]:
        return await self._engine.read(partial(segments.doomed_objects, grace_ms=grace_ms, limit=limit))

    async def stored_objects(self, *, after: int, limit: int) -> Sequence[StoredObject]:
        return await self._engine.look(partial(segments.stored_objects, after=after, limit=limit))

    async def newest_objects(self, *, limit: int) -> Sequence[StoredObject]:
        return await self._engine.look(partial(segments.newest_objects, limit=limit))

    async def ranges_of_object(self, key: str) -> Sequence[ObjectRange] | None:
        return await self._engine.look(partial(segments.ranges_of_object, key=key))

    async def forget_objects(self, keys: Sequence[str]) -> None:
        await self._engine.write(partial(segments.forget_objects, keys=keys))

    async def known_objects(self) -> frozenset[str]:
        return await self._engine.look(segments.known_objects)

    # --- placing
    async def place_segments(self, placement: Placement) -> StoredCommit:
        return await self._engine.write(partial(placing.place_segments, placement=placement))

    async def find_commit(self, query: QueryId, epoch: int) -> StoredCommit | None:
        return await self._engine.look(partial(placing.find_commit, query=query, epoch=epoch))

    async def last_commit(self, query: QueryId) -> StoredCommit | None:
        return await self._engine.look(partial(placing.last_commit, query=query))

    async def forget_commits(self, older_than_ms: int, limit: int) -> int:
        return await self._engine.write(partial(placing.forget_commits, older_than_ms=older_than_ms, limit=limit))

    async def give_up_objects(self, keys: Sequence[str]) -> None:
        await self._engine.write(partial(placing.give_up_objects, keys=keys))

    async def known_among(self, keys: Sequence[str]) -> frozenset[str]:
        return await self._engine.look(partial(segments.known_among, keys=keys))

    # --- groups
    async def commit_groups(self, session_id: SessionId, commits: Sequence[ShardCommit]) -> None:
        await self._engine.write(partial(groups.commit_groups, session_id=session_id, commits=commits))

    async def load_groups(self, shards: Sequence[PartitionId]) -> Sequence[ShardGroup]:
        return await self._engine.look(partial(groups.load_groups, shards=shards))

    async def committed_offsets(self, asked: Sequence[OffsetsAsked]) -> Sequence[OffsetStored]:
        return await self._engine.read(partial(groups.committed_offsets, asked=asked))

    async def groups_to_review(self, shards: Sequence[PartitionId], *, before_ms: int, now_ms: int) -> Sequence[str]:
        work = partial(groups.groups_to_review, shards=shards, before_ms=before_ms, now_ms=now_ms)
        return await self._engine.look(work)

    # --- producers
    async def allocate_producer_ids(self, count: int) -> int:
        return await self._engine.write(partial(segments.allocate_producer_ids, count=count))

    async def now_ms(self) -> int:
        return await self._engine.now_ms()

    async def aclose(self) -> None:
        await self._engine.aclose()
