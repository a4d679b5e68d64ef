"""SqlMetadataStore: the `MetadataStore` over an SQL engine.

Each call is one transaction. `MetadataStore` has the contract of a call, a function of `procedures` implements it, and
one line here binds them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from streamhouse.model.names import PartitionId, SessionId, TopicId
from streamhouse.model.pipeline import (
    Heartbeat,
    StoredPipeline,
)
from streamhouse.model.schema import (
    Deleted,
    RegisteredSchema,
    Subject,
    VersionKey,
)
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.model.transaction import (
    AbortedTransaction,
)
from streamhouse.stores.metadata.engine import (
    CountedEngine,
    Engine,
    OnChange,
    read_one,
    read_snapshot,
    write,
    write_urgent,
)
from streamhouse.stores.metadata.procedures import (
    external_commits,
    groups,
    orphan_adoption,
    schema_admin,
    schemas,
    security,
    segments,
    sessions,
    sql_catalog,
)
from streamhouse.stores.metadata.procedures import identity as identity_procedures
from streamhouse.stores.metadata.procedures import pipelines as pipeline_procedures
from streamhouse.stores.metadata.procedures import topics as topic_procedures
from streamhouse.stores.metadata.procedures import transactions as transaction_procedures

DELETED_PER_TRANSACTION: Final = 1000
"""Maximum runs that one transaction deletes: others wait for it, and calls have a timeout."""


class SqlMetadataStore:
    """A `MetadataStore`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = CountedEngine(engine)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._engine!r}>"

    @property
    def failures_in_a_row(self) -> int:
        return self._engine.failures_in_a_row

    # --- changes, and the cluster

    @property
    def is_listening(self) -> bool:
        return self._engine.is_listening

    def subscribe(self, on_change: OnChange) -> Callable[[], None]:
        return self._engine.subscribe(on_change)

    cluster_id = write(topic_procedures.cluster_id)
    schema_version = read_one(topic_procedures.schema_version)

    # --- topics

    create_topic = write(topic_procedures.create_topic)

    async def delete_topic(self, topic_id: TopicId) -> None:
        empty = partial(topic_procedures.empty_topic, topic_id=topic_id, limit=DELETED_PER_TRANSACTION)
        while await self._engine.write(empty):
            pass
        await self._engine.write(partial(topic_procedures.delete_topic, topic_id=topic_id))

    topics = read_one(topic_procedures.list_topics)
    alter_topic = write(topic_procedures.alter_topic)
    add_partitions = write(topic_procedures.add_partitions)
    partitions = read_one(topic_procedures.list_partitions)
    sizes = read_one(topic_procedures.list_sizes)

    # --- settings of agents

    broker_settings = read_one(topic_procedures.list_broker_settings)
    alter_broker_settings = write(topic_procedures.alter_broker_settings)

    # --- sessions and leases

    open_session = write(sessions.open_session)
    renew_session = write_urgent(sessions.renew_session)
    drain_session = write(sessions.drain_session)
    end_session = write(sessions.end_session)
    membership = read_snapshot(sessions.membership)
    departures = read_snapshot(sessions.departures)
    acquire = write(sessions.acquire)
    release = write(sessions.release)
    claim_recovery = write(sessions.claim_recovery)
    held_by = read_one(sessions.held_by)

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

    forget_sessions = write(sessions.forget_sessions)

    # --- preferred leaders

    pin_partitions = write(sessions.pin_partitions)

    # --- reserved offsets

    reserve_offsets = write(sessions.reserve_offsets)
    abandon_recovery = write(sessions.abandon_recovery)
    abandoned_ranges = read_one(sessions.abandoned_ranges)
    abandoned_sessions = read_one(sessions.abandoned_sessions)
    forget_abandoned = write(sessions.forget_abandoned)

    # --- segments

    commit_segments = write(segments.commit_segments)
    runs = read_one(segments.list_runs)

    async def runs_of(self, from_offsets: Mapping[PartitionId, int], *, limit: int) -> Sequence[Run]:
        return (
            await self._engine.read_one(partial(segments.runs_of, from_offsets=from_offsets, limit=limit))
            if from_offsets
            else []
        )

    last_runs = read_one(segments.last_runs)
    runs_before = read_one(segments.runs_before)
    run_at_time = read_one(segments.run_at_time)
    latest_run = read_snapshot(segments.latest_run)
    epoch_end = read_one(segments.epoch_end)
    replace_runs = write(segments.replace_runs)
    mark_cleaned = write(segments.mark_cleaned)
    cleaned = read_one(segments.list_cleaned)

    # --- retention

    async def advance_log_start(self, starts: Mapping[PartitionId, int]) -> bool:
        return await self._engine.write(
            partial(segments.advance_log_start, starts=starts, limit=DELETED_PER_TRANSACTION)
        )

    objects_pending_deletion = read_snapshot(segments.objects_pending_deletion)
    stored_objects = read_one(segments.stored_objects)
    newest_objects = read_one(segments.newest_objects)
    ranges_of_object = read_one(segments.ranges_of_object)
    forget_objects = write(segments.forget_objects)
    known_objects = read_one(segments.known_objects)

    # --- external commits

    commit_external_segments = write(external_commits.commit_external_segments)
    find_commit = read_one(external_commits.find_commit)
    last_commit = read_one(external_commits.last_commit)
    forget_commits = write(external_commits.forget_commits)
    abandon_objects = write(external_commits.abandon_objects)
    known_among = read_one(segments.known_among)

    # --- groups

    commit_groups = write(groups.commit_groups)
    load_groups = read_one(groups.load_groups)
    committed_offsets = read_snapshot(groups.committed_offsets)
    groups_to_review = read_one(groups.groups_to_review)
    put_group_lags = write(groups.put_group_lags)
    group_lags = read_one(groups.group_lags)

    # --- producers

    allocate_producer_ids = write(segments.allocate_producer_ids)

    # --- transactions

    init_producer = write(transaction_procedures.init_producer)
    add_transaction_partitions = write(transaction_procedures.add_partitions)
    find_transaction = read_one(transaction_procedures.find_transaction)
    transaction_of = read_one(transaction_procedures.transaction_of_producer)
    end_transaction = write(transaction_procedures.end_transaction)
    expire_transaction = write(transaction_procedures.expire_transaction)
    complete_transaction = write(transaction_procedures.complete_transaction)
    due_transactions = read_snapshot(transaction_procedures.due_transactions)
    transactions = read_one(transaction_procedures.list_transactions)
    forget_transactions = write(transaction_procedures.forget_transactions)
    put_pending_offsets = write(transaction_procedures.put_pending_offsets)
    pending_offsets = read_snapshot(transaction_procedures.pending_offsets)

    async def aborted(
        self, from_offsets: Mapping[PartitionId, int], *, limit: int
    ) -> Mapping[PartitionId, Sequence[AbortedTransaction]]:
        return (
            await self._engine.read_one(
                partial(transaction_procedures.aborted_transactions, from_offsets=from_offsets, limit=limit)
            )
            if from_offsets
            else {}
        )

    forget_aborted = write(transaction_procedures.forget_aborted)

    # --- schemas

    subject_state = read_snapshot(schemas.subject_state)
    add_version = write(schemas.add_version)
    schema_of_id = read_one(schemas.schema_of_id)
    ids_of_guid = read_one(schemas.ids_of_guid)
    schema_contexts = read_one(schemas.contexts)

    async def schema_versions(self, keys: Sequence[VersionKey]) -> Sequence[RegisteredSchema]:
        return await self._engine.read_one(partial(schemas.versions, keys=keys)) if keys else []

    latest_version = read_one(schemas.latest_version)
    versions_of_schema = read_one(schemas.versions_of_schema)

    async def list_subjects(
        self, context: str | None, prefix: str, *, deleted: Deleted, skipped: int, limit: int
    ) -> Sequence[Subject]:
        page = schemas.Page(context, prefix, skipped, limit)
        return await self._engine.read_one(partial(schemas.list_subjects, page=page, deleted=deleted))

    async def list_versions(
        self, context: str | None, prefix: str, *, with_deleted: bool, latest_only: bool, skipped: int, limit: int
    ) -> Sequence[RegisteredSchema]:
        page = schemas.Page(context, prefix, skipped, limit)
        work = partial(schemas.list_versions, page=page, with_deleted=with_deleted, latest_only=latest_only)
        return await self._engine.read_one(work)

    referrers = read_one(schemas.referrers)
    delete_version = write(schema_admin.delete_version)
    delete_subject = write(schema_admin.delete_subject)
    schema_rules = read_one(schemas.find_rules)
    change_config = write(schemas.change_config)
    drop_config = write(schemas.drop_config)
    set_mode = write(schema_admin.set_mode)
    drop_modes = write(schema_admin.drop_modes)

    # --- tables, pipelines, views, SQL workers

    tables = read_one(sql_catalog.list_tables)
    find_table = read_one(sql_catalog.find_table)
    put_table = write(sql_catalog.put_table)
    drop_table = write(sql_catalog.drop_table)
    pipelines = read_snapshot(pipeline_procedures.list_pipelines)
    find_pipeline = read_snapshot(pipeline_procedures.find_pipeline)
    put_pipeline = write(pipeline_procedures.put_pipeline)
    drop_pipeline = write(pipeline_procedures.drop_pipeline)
    pipeline_events = read_one(pipeline_procedures.list_events)
    pipeline_versions = read_one(pipeline_procedures.list_versions)

    async def heartbeat_supervisor(
        self, heartbeat: Heartbeat, *, ttl_ms: int, max_events: int, max_supervisors: int
    ) -> Sequence[StoredPipeline]:
        limits = pipeline_procedures.SupervisorLimits(
            ttl_ms=ttl_ms, max_events=max_events, max_supervisors=max_supervisors
        )
        return await self._engine.write(
            partial(pipeline_procedures.heartbeat_supervisor, heartbeat=heartbeat, limits=limits)
        )

    supervisors = read_snapshot(pipeline_procedures.list_supervisors)
    remove_supervisor = write(pipeline_procedures.remove_supervisor)
    views = read_one(sql_catalog.list_views)
    find_view = read_one(sql_catalog.find_view)
    change_view = write(sql_catalog.change_view)
    find_view_row = read_one(sql_catalog.find_view_row)
    view_rows = read_one(sql_catalog.list_view_rows)
    heartbeat_worker = write(sql_catalog.heartbeat_worker)
    workers = read_snapshot(sql_catalog.list_workers)
    drop_worker = write(sql_catalog.drop_worker)

    # --- the identity of the cluster

    identity = read_one(identity_procedures.find_identity)
    begin_generation = write(identity_procedures.begin_generation)
    store_generation = write(identity_procedures.store_generation)
    sessions_among = read_one(identity_procedures.sessions_among)
    adopt = write(orphan_adoption.adopt)

    # --- users, keys, rules, roles, quotas, delegation tokens

    acls = read_one(security.list_acls)
    add_acls = write(security.add_acls)
    delete_acls = write(security.delete_acls)
    users = read_one(security.list_users)
    find_user = read_one(security.find_user)
    put_credentials = write(security.put_credentials)
    delete_user = write(security.delete_user)
    keys = read_one(security.list_keys)
    find_key = read_one(security.find_key)
    add_key = write(security.add_key)
    delete_key = write(security.delete_key)
    role_members = read_one(security.list_role_members)
    change_role = write(security.change_role)
    quotas = read_one(security.list_quotas)
    put_quota = write(security.put_quota)
    exchange_quota_usage = write(security.exchange_quota_usage)
    delegation_tokens = read_snapshot(security.list_delegation_tokens)
    find_delegation_token = read_one(security.find_delegation_token)
    put_delegation_token = write(security.put_delegation_token)
    prolong_delegation_token = write(security.prolong_delegation_token)
    delete_delegation_token = write(security.delete_delegation_token)

    # --- the store itself

    async def now_ms(self) -> int:
        return await self._engine.now_ms()

    async def aclose(self) -> None:
        await self._engine.aclose()
