"""SqlMetadataStore: the metadata store's door over an SQL engine.

Data path   broker -> **store** -> one transaction each
Owns        the connection between the door's calls and their transactions
Leaves      what happens in them to `transactions`, running them to the engines, the registry's calls to `schema_store`,
            those about pipelines to `pipeline_store`, those about transactions of producers to `producing_store`, those
            about the cluster's identity to `identity_store`

SqlIdentityStore: the calls about the cluster's identity over an SQL engine.

Data path   broker.cluster.identity -> **identity store** -> one transaction each
Owns        the connection between the calls and their transactions
Leaves      what happens in them to `transactions.identity`, running them to the engines

SqlPipelineStore: the calls for tables, pipelines, views and SQL workers over an SQL engine.

Data path   broker.pipelines, broker.views, broker.tables, broker.sql -> **pipeline store** -> one transaction each
Owns        the connection between the calls and their transactions
Leaves      what happens in them to `transactions`, running them to the engines

SqlTransactionStore: the calls for transactions of producers over an SQL engine.

Data path   broker.transactions, broker.groups, broker.reading -> **producing store** -> one transaction each
Owns        the connection between the calls and their transactions
Leaves      what happens in them to `transactions.producing`, running them to the engines

SqlSchemaStore: the schema registry's calls over an SQL engine.

Data path   broker.schemas -> **schema store** -> one transaction each
Owns        the connection between the calls and their transactions
Leaves      what happens in them to `transactions`, running them to the engines
"""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Final

from streamhouse.model.cluster import AbandonedRange, Membership, PartitionState, PutReport, Session
from streamhouse.model.cluster_identity import DatabaseIdentity
from streamhouse.model.external_commit import ExternalCommit, QueryId, StoredCommit
from streamhouse.model.group import GroupOffset, ShardCommit
from streamhouse.model.names import Epoch, NodeId, PartitionId, SessionId, TopicId
from streamhouse.model.orphan_adoption import Adoption
from streamhouse.model.pipeline import (
    Event,
    Heartbeat,
    Pipeline,
    PipelineName,
    SqlWorker,
    StoredPipeline,
    Supervisor,
    SupervisorId,
    ViewPage,
    ViewPart,
    ViewRow,
    ViewState,
    WorkerId,
)
from streamhouse.model.schema import (
    Deleted,
    Mode,
    NewVersion,
    RegisteredSchema,
    Rules,
    StoredSchema,
    Subject,
    SubjectState,
    SubjectVersion,
    VersionKey,
)
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.model.table import Table
from streamhouse.model.topic import Topic
from streamhouse.model.transaction import (
    AbortedTransaction,
    InitProducerRequest,
    PendingOffset,
    StoredTransaction,
    TransactionCall,
)
from streamhouse.stores.metadata.base import (
    EpochEnd,
    NewSession,
    ObjectRange,
    OffsetStored,
    PendingDeletion,
    ShardGroup,
    StoredObject,
)
from streamhouse.stores.metadata.engine import CountedEngine, Engine, OnChange
from streamhouse.stores.metadata.procedures import (
    external_commits,
    groups,
    identity,
    pipelines,
    schema_admin,
    schemas,
    segments,
    sessions,
    sql_catalog,
    topics,
    transactions,
)
from streamhouse.stores.metadata.procedures import pipelines as supervisors
from streamhouse.stores.metadata.procedures import schemas as schema_rules
from streamhouse.stores.metadata.procedures import segments as replacements
from streamhouse.stores.metadata.procedures import sessions as reservations
from streamhouse.stores.metadata.procedures import topics as settings
from streamhouse.stores.metadata.procedures.orphan_adoption import adopt
from streamhouse.stores.metadata.transaction_store import OffsetsRequest


class SqlIdentityStore:
    """An `IdentityStore` over an SQL engine."""

    _engine: CountedEngine

    async def identity(self) -> DatabaseIdentity:
        return await self._engine.look(identity.find_identity)

    async def begin_generation(self) -> int:
        return await self._engine.write(identity.begin_generation)

    async def note_generation(self, generation: int) -> None:
        await self._engine.write(partial(identity.store_generation, generation=generation))

    async def sessions_among(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        return await self._engine.look(partial(identity.sessions_among, session_ids=session_ids))

    async def adopt(self, adoption: Adoption) -> None:
        await self._engine.write(partial(adopt, adoption=adoption))


class SqlPipelineStore:
    """A `PipelineStore` over an SQL engine."""

    _engine: CountedEngine

    async def tables(self) -> Sequence[Table]:
        return await self._engine.look(sql_catalog.list_tables)

    async def find_table(self, name: str) -> Table | None:
        return await self._engine.look(partial(sql_catalog.find_table, name=name))

    async def put_table(self, table: Table, *, max_tables: int) -> bool:
        return await self._engine.write(partial(sql_catalog.put_table, table=table, max_tables=max_tables))

    async def drop_table(self, name: str) -> bool:
        return await self._engine.write(partial(sql_catalog.drop_table, name=name))

    async def pipelines(self) -> Sequence[StoredPipeline]:
        return await self._engine.read(pipelines.list_pipelines)

    async def find_pipeline(self, name: PipelineName) -> StoredPipeline | None:
        return await self._engine.read(partial(pipelines.find_pipeline, name=name))

    async def put_pipeline(self, pipeline: Pipeline, *, expected: Pipeline | None, max_pipelines: int) -> bool:
        work = partial(pipelines.put_pipeline, pipeline=pipeline, expected=expected, max_pipelines=max_pipelines)
        return await self._engine.write(work)

    async def drop_pipeline(self, name: PipelineName) -> bool:
        return await self._engine.write(partial(pipelines.drop_pipeline, name=name))

    async def pipeline_events(self, name: PipelineName, limit: int) -> Sequence[Event]:
        return await self._engine.look(partial(pipelines.list_events, name=name, limit=limit))

    async def beat(
        self, heartbeat: Heartbeat, *, ttl_ms: int, max_events: int, max_supervisors: int
    ) -> Sequence[StoredPipeline]:
        limits = supervisors.SupervisorLimits(ttl_ms=ttl_ms, max_events=max_events, max_supervisors=max_supervisors)
        return await self._engine.write(partial(supervisors.heartbeat_supervisor, heartbeat=heartbeat, limits=limits))

    async def supervisors(self) -> Sequence[Supervisor]:
        return await self._engine.read(supervisors.list_supervisors)

    async def leave(self, supervisor: SupervisorId) -> None:
        await self._engine.write(partial(supervisors.remove_supervisor, supervisor=supervisor))

    async def views(self) -> Sequence[ViewState]:
        return await self._engine.look(sql_catalog.list_views)

    async def find_view(self, name: str) -> ViewState | None:
        return await self._engine.look(partial(sql_catalog.find_view, name=name))

    async def change_view(self, part: ViewPart, *, max_rows: int) -> ViewState:
        return await self._engine.write(partial(sql_catalog.change_view, part=part, max_rows=max_rows))

    async def find_view_row(self, name: str, found_by: str) -> ViewRow | None:
        return await self._engine.look(partial(sql_catalog.find_view_row, name=name, found_by=found_by))

    async def view_rows(self, name: str, *, cursor: str | None, limit: int, max_bytes: int) -> ViewPage:
        work = partial(sql_catalog.list_view_rows, name=name, cursor=cursor, limit=limit, max_bytes=max_bytes)
        return await self._engine.look(work)

    async def beat_worker(self, worker: SqlWorker, *, ttl_ms: int, max_workers: int) -> None:
        await self._engine.write(
            partial(sql_catalog.heartbeat_worker, worker=worker, ttl_ms=ttl_ms, max_workers=max_workers)
        )

    async def workers(self) -> Sequence[SqlWorker]:
        return await self._engine.read(sql_catalog.list_workers)

    async def drop_worker(self, worker: WorkerId) -> None:
        await self._engine.write(partial(sql_catalog.drop_worker, worker=worker))


class SqlTransactionStore:
    """A `TransactionStore` over an SQL engine."""

    _engine: CountedEngine

    async def init_producer(self, asked: InitProducerRequest, *, by: SessionId | None = None) -> StoredTransaction:
        return await self._engine.write(partial(transactions.init_producer, asked=asked, by=by))

    async def enlist(
        self, call: TransactionCall, partitions: Sequence[PartitionId], *, limit: int
    ) -> StoredTransaction:
        return await self._engine.write(
            partial(transactions.add_partitions, call=call, partitions=partitions, limit=limit)
        )

    async def find_transaction(self, transactional_id: str) -> StoredTransaction | None:
        return await self._engine.look(partial(transactions.find_transaction, transactional_id=transactional_id))

    async def transaction_of(self, producer_id: int) -> StoredTransaction | None:
        return await self._engine.look(partial(transactions.transaction_of_producer, producer_id=producer_id))

    async def end_transaction(
        self, call: TransactionCall, *, commit: bool, bump: bool, fresh_id: int, by: SessionId | None = None
    ) -> StoredTransaction:
        work = partial(transactions.end_transaction, call=call, commit=commit, bump=bump, fresh_id=fresh_id, by=by)
        return await self._engine.write(work)

    async def expire_transaction(self, transactional_id: str, number: int) -> StoredTransaction | None:
        work = partial(transactions.expire_transaction, transactional_id=transactional_id, number=number)
        return await self._engine.write(work)

    async def complete_transaction(self, transactional_id: str, number: int) -> None:
        work = partial(transactions.complete_transaction, transactional_id=transactional_id, number=number)
        await self._engine.write(work)

    async def due_transactions(
        self, *, prepared_before_ms: int, limit: int, after: StoredTransaction | None = None
    ) -> Sequence[StoredTransaction]:
        work = partial(transactions.due_transactions, prepared_before_ms=prepared_before_ms, limit=limit, after=after)
        return await self._engine.read(work)

    async def transactions(self, *, after: str | None, limit: int) -> Sequence[StoredTransaction]:
        return await self._engine.look(partial(transactions.list_transactions, after=after, limit=limit))

    async def forget_transactions(self, older_than_ms: int, limit: int) -> int:
        work = partial(transactions.forget_transactions, older_than_ms=older_than_ms, limit=limit)
        return await self._engine.write(work)

    async def put_pending_offsets(
        self,
        session_id: SessionId,
        shard: PartitionId,
        epoch: Epoch,
        call: TransactionCall,
        group_id: str,
        offsets: Sequence[PendingOffset],
        *,
        begins: bool,
    ) -> None:
        work = partial(
            transactions.put_pending_offsets,
            session_id=session_id,
            shard=shard,
            epoch=epoch,
            call=call,
            group_id=group_id,
            offsets=offsets,
            begins=begins,
        )
        await self._engine.write(work)

    async def pending_offsets(self, asked: Sequence[OffsetsRequest]) -> Set[GroupOffset]:
        return await self._engine.read(partial(transactions.pending_offsets, asked=asked))

    async def aborted(
        self, wanted: Mapping[PartitionId, int], *, limit: int
    ) -> Mapping[PartitionId, Sequence[AbortedTransaction]]:
        return (
            await self._engine.look(partial(transactions.aborted_transactions, wanted=wanted, limit=limit))
            if wanted
            else {}
        )

    async def forget_aborted(self, partition: PartitionId, last_offsets: Sequence[int]) -> None:
        await self._engine.write(partial(transactions.forget_aborted, partition=partition, last_offsets=last_offsets))


class SqlSchemaStore:
    """A `SchemaStore` over an SQL engine."""

    _engine: CountedEngine

    async def subject_state(self, subject: Subject) -> SubjectState:
        return await self._engine.read(partial(schemas.subject_state, subject=subject))

    async def add_version(self, new: NewVersion, *, max_subjects: int) -> RegisteredSchema | None:
        return await self._engine.write(partial(schemas.add_version, new=new, max_subjects=max_subjects))

    async def schema_of_id(self, context: str, schema_id: int) -> StoredSchema | None:
        return await self._engine.look(partial(schemas.schema_of_id, context=context, schema_id=schema_id))

    async def ids_of_guid(self, guid: str) -> Sequence[tuple[str, int]]:
        return await self._engine.look(partial(schemas.ids_of_guid, guid=guid))

    async def schema_contexts(self) -> Mapping[str, int]:
        return await self._engine.look(schemas.contexts)

    async def schema_versions(self, keys: Sequence[VersionKey]) -> Sequence[RegisteredSchema]:
        return await self._engine.look(partial(schemas.versions, keys=keys)) if keys else []

    async def latest_version(self, subject: Subject) -> RegisteredSchema | None:
        return await self._engine.look(partial(schemas.latest_version, subject=subject))

    async def versions_of_schema(self, context: str, schema_id: int) -> Sequence[SubjectVersion]:
        return await self._engine.look(partial(schemas.versions_of_schema, context=context, schema_id=schema_id))

    async def list_subjects(
        self, context: str | None, prefix: str, *, deleted: Deleted, skipped: int, limit: int
    ) -> Sequence[Subject]:
        page = schemas.Page(context, prefix, skipped, limit)
        return await self._engine.look(partial(schemas.list_subjects, page=page, deleted=deleted))

    async def list_versions(
        self, context: str | None, prefix: str, *, with_deleted: bool, latest_only: bool, skipped: int, limit: int
    ) -> Sequence[RegisteredSchema]:
        page = schemas.Page(context, prefix, skipped, limit)
        work = partial(schemas.list_versions, page=page, with_deleted=with_deleted, latest_only=latest_only)
        return await self._engine.look(work)

    async def referrers(self, key: VersionKey) -> Sequence[SubjectVersion]:
        return await self._engine.look(partial(schemas.referrers, key=key))

    async def delete_version(self, subject: Subject, version: int | None, *, permanent: bool) -> int:
        work = partial(schema_admin.delete_version, subject=subject, version=version, permanent=permanent)
        return await self._engine.write(work)

    async def delete_subject(self, subject: Subject, *, permanent: bool) -> Sequence[int]:
        work = partial(schema_admin.delete_subject, subject=subject, permanent=permanent)
        return await self._engine.write(work)

    async def schema_rules(self, scopes: Sequence[Subject]) -> Sequence[Rules]:
        return await self._engine.look(partial(schema_rules.find_rules, scopes=scopes))

    async def change_config(self, scope: Subject, changes: Mapping[str, object]) -> Mapping[str, object]:
        return await self._engine.write(partial(schema_rules.change_config, scope=scope, changes=changes))

    async def drop_config(self, scope: Subject) -> None:
        await self._engine.write(partial(schema_rules.drop_config, scope=scope))

    async def set_mode(self, scope: Subject, mode: Mode | None, *, must_be_empty: bool = False) -> None:
        work = partial(schema_admin.set_mode, scope=scope, mode=mode, must_be_empty=must_be_empty)
        await self._engine.write(work)

    async def drop_modes(self, context: str) -> None:
        await self._engine.write(partial(schema_admin.drop_modes, context=context))


DELETED_PER_TRANSACTION: Final = 1000
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

    def subscribe(self, heard: OnChange) -> Callable[[], None]:
        return self._engine.subscribe(heard)

    async def cluster_id(self, proposed: str) -> str:
        return await self._engine.write(partial(topics.cluster_id, proposed=proposed))

    async def schema_version(self) -> int:
        return await self._engine.look(topics.schema_version)

    # --- topics
    async def create_topic(self, topic: Topic) -> None:
        await self._engine.write(partial(topics.create_topic, topic=topic))

    async def delete_topic(self, topic_id: TopicId) -> None:
        while await self._engine.write(partial(topics.empty_topic, topic_id=topic_id, limit=DELETED_PER_TRANSACTION)):
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
        return await self._engine.look(settings.list_broker_settings)

    async def alter_broker_settings(
        self, node_id: NodeId | None, *, expected: Mapping[str, str], configs: Mapping[str, str]
    ) -> Mapping[str, str]:
        return await self._engine.write(
            partial(settings.alter_broker_settings, node_id=node_id, expected=expected, configs=configs)
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

    async def roll_call(self) -> Membership:
        return await self._engine.read(sessions.membership)

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
        return await self._engine.write(
            partial(segments.advance_log_start, starts=starts, limit=DELETED_PER_TRANSACTION)
        )

    async def doomed_objects(self, *, grace_ms: int, limit: int) -> Sequence[PendingDeletion]:
        return await self._engine.read(partial(segments.objects_pending_deletion, grace_ms=grace_ms, limit=limit))

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
    async def place_segments(self, placement: ExternalCommit) -> StoredCommit:
        return await self._engine.write(partial(external_commits.commit_external_segments, placement=placement))

    async def find_commit(self, query: QueryId, epoch: int) -> StoredCommit | None:
        return await self._engine.look(partial(external_commits.find_commit, query=query, epoch=epoch))

    async def last_commit(self, query: QueryId) -> StoredCommit | None:
        return await self._engine.look(partial(external_commits.last_commit, query=query))

    async def forget_commits(self, older_than_ms: int, limit: int) -> int:
        forget = partial(external_commits.forget_commits, older_than_ms=older_than_ms, limit=limit)
        return await self._engine.write(forget)

    async def give_up_objects(self, keys: Sequence[str]) -> None:
        await self._engine.write(partial(external_commits.abandon_objects, keys=keys))

    async def known_among(self, keys: Sequence[str]) -> frozenset[str]:
        return await self._engine.look(partial(segments.known_among, keys=keys))

    # --- groups
    async def commit_groups(self, session_id: SessionId, commits: Sequence[ShardCommit]) -> None:
        await self._engine.write(partial(groups.commit_groups, session_id=session_id, commits=commits))

    async def load_groups(self, shards: Sequence[PartitionId]) -> Sequence[ShardGroup]:
        return await self._engine.look(partial(groups.load_groups, shards=shards))

    async def committed_offsets(self, asked: Sequence[OffsetsRequest]) -> Sequence[OffsetStored]:
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
