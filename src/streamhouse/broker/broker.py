"""Broker: the facade that every protocol calls; it builds, starts and stops the broker's parts.

Data path   wire -> **broker** -> produce, fetch, groups, transactions, catalog … -> stores
Leaves      frames and error codes to the wires; each part's work to its own module
"""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from streamhouse.broker.admin.cluster_admin import ClusterAdmin
from streamhouse.broker.admin.damaged_wals import DamagedWals
from streamhouse.broker.admin.health_check import HealthCheck
from streamhouse.broker.admin.topic_admin import TopicAdmin
from streamhouse.broker.cluster.cluster import Leader
from streamhouse.broker.context import build_context
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.external_commits.coordinator import ExternalCommits
from streamhouse.broker.external_commits.partition_freezes import PartitionFreezes
from streamhouse.broker.failover.cluster_sync import (
    DeadSessionRecovery,
    LeadershipBalancer,
    MetadataChangeListener,
    within,
)
from streamhouse.broker.failover.store_isolation import StoreIsolation
from streamhouse.broker.failover.wal_reappend import WalReappend
from streamhouse.broker.fetch.fetch import Fetcher
from streamhouse.broker.fetch.list_offsets import ListOffsets
from streamhouse.broker.fetch.read_plans import ReadPlans, RunListing
from streamhouse.broker.forwarding.lag_monitor import GroupLagMonitor
from streamhouse.broker.forwarding.producer_ids import ProducerIdAllocator
from streamhouse.broker.forwarding.records import RecordService
from streamhouse.broker.groups import Groups
from streamhouse.broker.maintenance.compaction import Compactor
from streamhouse.broker.maintenance.jobs import MaintenanceJobs
from streamhouse.broker.maintenance.object_check import ObjectCheck
from streamhouse.broker.maintenance.retention import RetentionManager
from streamhouse.broker.maintenance.run_rewriter import AbortedCleanup
from streamhouse.broker.partition.log import PartitionLog, PendingAppend
from streamhouse.broker.pipelines.pipelines import Pipelines
from streamhouse.broker.pipelines.tables_and_views import Tables, Views
from streamhouse.broker.pipelines.workers import SqlWorkers, SupervisorRegistry
from streamhouse.broker.produce.append import AppendService, Inspection, ProduceTransaction
from streamhouse.broker.record_traces import RecordTraces
from streamhouse.broker.schemas import SchemaRegistry
from streamhouse.broker.security.security import Security
from streamhouse.broker.segments.transaction_isolation import StableFlushedOffset
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.broker.session.recovery import RecoveryStats
from streamhouse.broker.session.session_lifecycle import UnfinishedShutdown
from streamhouse.broker.transactions import TransactionCoordinator
from streamhouse.config import Settings
from streamhouse.errors import (
    AppendFailed,
    InvalidTopicName,
    StreamhouseError,
    TopicExists,
    UnknownTopic,
)
from streamhouse.format.batch import Buffer
from streamhouse.model.cluster import Session
from streamhouse.model.fetch import FetchResult, OffsetResult, PartitionFetch
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import NodeId, PartitionId, TopicPartition
from streamhouse.model.record import Acks, NewRecord
from streamhouse.model.topic import Topic
from streamhouse.tracing import Tracer

log = logging.getLogger(__name__)

AUDIT_TIMEOUT_S: Final = 10.0


class Broker:
    """The broker. Its parts are public attributes, which protocols and jobs call like the methods below."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings
        self._stopping = asyncio.Event()

        self.security = Security(dependencies)
        context = build_context(dependencies, on_settings_changed=self._apply_settings)
        self.traffic, self.budget, self.reader = context.traffic, context.budget, context.reader
        self.decoder = context.decoder
        self.catalog, self.cluster = context.catalog, context.cluster
        self._session_manager, self._open_partitions = context.session_manager, context.open_partitions

        # Writing: appends, and commits of segments that jobs wrote.
        self.schemas = SchemaRegistry(dependencies)
        self._producer_ids = ProducerIdAllocator(dependencies.metadata)
        self.transactions = TransactionCoordinator(context, allocate=self._producer_ids.take)
        self._append_service = AppendService(
            context, schema_check=self.schemas.check, verifier=self.transactions.verify
        )
        self.freezes = PartitionFreezes(context)
        self.commits = ExternalCommits(context, holds=self.freezes)

        # Reading: partitions that this agent leads, and groups.
        self._fetcher = Fetcher(context)
        self.offsets = ListOffsets(self.decoder, reader=self.reader, metadata=dependencies.metadata)
        self.groups = Groups(dependencies, catalog=self.catalog, current_session=self._current, cluster=self.cluster)

        # Both at any agent, for HTTP and gRPC; and read plans for jobs.
        self.records = RecordService(dependencies, self)
        self.group_lag = GroupLagMonitor(dependencies, self, reader=self.records.lag_reader)
        self.run_listing = RunListing(dependencies, reader=self.reader)
        self.stable_flushed = StableFlushedOffset(dependencies, reader=self.reader)
        self.plans = ReadPlans(
            dependencies, catalog=self.catalog, stable_flushed=self.stable_flushed, stable_end=self.records.stable_end
        )

        # The cluster: changes by other agents, transfers to them, recovery of dead ones.
        self._change_listener = MetadataChangeListener(context, schemas=self.schemas)
        self.balancer = LeadershipBalancer(dependencies, cluster=self.cluster, groups=self.groups)
        self.dead_session_recovery = DeadSessionRecovery(dependencies, cluster=self.cluster)
        self._store_isolation = StoreIsolation(dependencies, cluster=self.cluster)
        self.wal_reappend = WalReappend(
            dependencies,
            cluster=self.cluster,
            append=self.append,
            acknowledge=self.acknowledge,
            latest=self.records.latest,
        )

        # Maintenance of stored records.
        aborted_cleanup = AbortedCleanup(dependencies, logs=lambda: self._current().logs)
        self.retention = RetentionManager(
            dependencies,
            configs=self.catalog.configs,
            on_log_starts_changed=self._session_manager.on_log_starts_changed,
            cluster=self.cluster,
            identity=context.session_manager.identity,
        )
        self.object_check = ObjectCheck(context)
        self.compactor = Compactor(context, stable_flushed=self.stable_flushed, aborted_cleanup=aborted_cleanup)
        self.maintenance = MaintenanceJobs(context, plans=self.plans, aborted_cleanup=aborted_cleanup)

        # Administration; definitions of pipelines, tables and views.
        self.topic_admin = TopicAdmin(context)
        self.cluster_admin = ClusterAdmin(context)
        self.damaged_logs = DamagedWals(dependencies)
        self.health_check = HealthCheck(
            context, not_ready=self.not_ready, object_check=self.object_check, damaged_logs=self.damaged_logs
        )
        self.tables = Tables(dependencies, catalog=self.catalog)
        self.pipelines = Pipelines(dependencies, catalog=self.catalog)
        self.supervisors = SupervisorRegistry(dependencies)
        self.views = Views(dependencies)
        self.sql = SqlWorkers(dependencies)

    def __repr__(self) -> str:
        return f"<Broker session={self.agent_session!r} budget={self.budget!r}>"

    @property
    def traces(self) -> RecordTraces | None:
        """None if tracing is off."""
        return self._dependencies.traces

    @property
    def tracer(self) -> Tracer | None:
        """None if tracing is off."""
        traces = self._dependencies.traces
        return None if traces is None else traces.tracer

    # --- lifecycle

    async def start(self) -> None:
        """Open the first session and recover dead ones; raises if the stores are unavailable for too long."""
        await self.reader.open()
        try:
            await self.security.start()
            await self._session_manager.open_first()
        except BaseException:
            self.security.close()
            await self.reader.aclose()
            raise

    async def run(self) -> None:
        """Serve until `stop`: keep a session, open another when it ends, coordinate groups, run maintenance."""
        try:
            async with asyncio.TaskGroup() as loops:
                groups = loops.create_task(self.groups.run(), name="groups")
                transactions = loops.create_task(self.transactions.run(), name="transactions")
                maintenance = loops.create_task(self._maintain(), name="maintenance")
                cluster = loops.create_task(self._change_listener.run(), name="cluster")
                security = loops.create_task(self.security.run(self._publish_audit), name="security")
                await self._run_session(self._current())
                while not self._stopping.is_set():
                    log.warning("session ended, opening another", extra={"why": str(self._current().end_reason)})
                    if await self._session_manager.reopen(stopping=self._stopping):
                        await self._run_session(self._current())
                for task in (groups, transactions, maintenance, cluster, security):
                    task.cancel()
        finally:
            await self.records.aclose()
            self.decoder.close()
            self.security.close()
            await self.reader.aclose()

    async def _run_session(self, agent_session: AgentSession) -> None:
        async with asyncio.TaskGroup() as loops:  # an unexpected error of any of them ends the agent
            beside = [
                loops.create_task(self.balancer.run(agent_session), name="leadership-balancer"),
                loops.create_task(
                    self.dead_session_recovery.run(self._session_manager.recovery(agent_session)),
                    name="dead-session-recovery",
                ),
                loops.create_task(self.wal_reappend.run(agent_session.session.session_id), name="wal-reappend"),
                loops.create_task(self.freezes.run(), name="partition-freezes"),
                loops.create_task(self._store_isolation.run(agent_session), name="store-isolation"),
                loops.create_task(self._drain(agent_session), name="drain"),
                loops.create_task(self._watch_identity(agent_session), name="identity"),
            ]
            await agent_session.run()
            for task in beside:
                task.cancel()
        self.groups.release("the session is over")

    async def _watch_identity(self, agent_session: AgentSession) -> None:
        is_its_turn = partial(self.cluster.owns_task, "identity")
        why = await self._session_manager.identity.watch(
            agent_session.session.session_id, agent_session, is_its_turn=is_its_turn
        )
        log.error("the session ends: the stores don't belong together any more", extra={"why": str(why)})
        agent_session.lose(why)

    async def wait_stopping(self) -> None:
        """Return when the agent stops; for long polls and streams."""
        await self._stopping.wait()

    def stop(self) -> None:
        """Transfer partitions to other agents, reject new appends and flush; `run` returns when that is done."""
        self._stopping.set()

    async def _drain(self, agent_session: AgentSession) -> None:
        await self._stopping.wait()
        if self.cluster.has_successors:
            limit_s = self._settings.agent.stop_timeout_s
            await within(
                limit_s, self.balancer.leave(agent_session), clock=self._dependencies.clock, what="handing over"
            )
        agent_session.stop()
        self.groups.release("the agent is stopping")

    async def _maintain(self) -> None:
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self.retention.run(), name="retention")
            loops.create_task(self.compactor.run(), name="compaction")
            loops.create_task(self.object_check.run(), name="object-check")
            loops.create_task(self.group_lag.run(), name="group-lag")

    def _current(self) -> AgentSession:
        return self._session_manager.current()

    @property
    def settings(self) -> Settings:
        """The effective settings: those of the start, with dynamic changes."""
        return self.catalog.dynamic.settings

    def _apply_settings(self) -> None:
        """Pass changed settings to all parts that keep them or values derived from them."""
        self.groups.configure(self.settings.groups)
        self._fetcher.configure(self.settings.fetch)
        if (agent_session := self.agent_session) is not None:
            agent_session.logs.configure_all(self.catalog.known)

    # --- state, for health checks and metadata responses

    @property
    def node_id(self) -> NodeId:
        return self._current().session.node_id

    @property
    def agent_session(self) -> AgentSession | None:
        return self._session_manager.agent_session()

    @property
    def left_behind(self) -> UnfinishedShutdown | None:
        """The unfinished work of the last session; other agents, or the next start, recover it."""
        return agent_session.left_behind if (agent_session := self.agent_session) is not None else None

    @property
    def cluster_id(self) -> str:
        """The cluster id, stored in the database and in the object store; known after `start`."""
        return self._session_manager.identity.cluster_id

    @property
    def recovered(self) -> RecoveryStats:
        return self._session_manager.recovered

    def not_ready(self) -> str | None:
        """Why the agent is not ready for traffic; None if it is."""
        if self._stopping.is_set():
            return "stopping"
        if (agent_session := self.agent_session) is None or agent_session.end_reason is not None:
            return "no session"
        if self._store_isolation.is_cut_off:
            return "cut off from the object store, while other agents write to it"
        failures = self._dependencies.metadata.failures_in_a_row
        if failures >= self._settings.metadata.failures_until_not_ready:
            return f"metadata store failed {failures} times in a row"
        if not agent_session.is_valid:
            return "the session's heartbeat is late"
        if self.budget.pressure >= 1:
            return "memory budget exhausted"
        return None

    def leader_epoch(self, name: TopicPartition) -> int:
        """The epoch under which this agent leads the partition; -1 if it doesn't."""
        opened = agent_session.logs.find(name) if (agent_session := self.agent_session) is not None else None
        return opened.epoch if opened is not None else -1

    def agents(self) -> Sequence[Session]:
        """The live agents by node id, including this one."""
        return [self._current().session] if self._dependencies.single_agent else self.cluster.live()

    def departed(self) -> Sequence[Session]:
        """Agents that died recently and are still advertised to clients."""
        return [] if self._dependencies.single_agent else self.cluster.departed.advertised(self.cluster.live())

    def redirected(self) -> Sequence[Session]:
        """Departed agents whose ids may be advertised with the address of a live agent."""
        return [] if self._dependencies.single_agent else self.cluster.departed.redirected(self.cluster.live())

    def misdirected(self) -> Sequence[tuple[float, float]]:
        """Monotonic time ranges in which clients may have connected here for the id of an agent that is back."""
        return [] if self._dependencies.single_agent else self.cluster.departed.misdirected()

    def departures(self) -> Sequence[float]:
        """Monotonic times of departures for whose ids clients may wait."""
        return [] if self._dependencies.single_agent else self.cluster.departed.noticed_times()

    async def leaders(self, topics: Sequence[Topic]) -> Mapping[PartitionId, Leader]:
        """The leaders of these topics' partitions; for unopened partitions, the agents that will lead them."""
        return await self._open_partitions.leaders(topics)

    # --- topics

    async def topics(self) -> Sequence[Topic]:
        return await self.catalog.all()

    async def topic(self, name: str, *, create: bool = False) -> Topic:
        """The topic of this name; with `create`, it is created if it doesn't exist and settings allow it."""
        try:
            return await self.catalog.find(name)
        except UnknownTopic:
            if not (create and self.settings.topics.auto_create) or name == OFFSETS_TOPIC:
                raise
        return await self.catalog.find_or_create(name)

    async def create_topic(
        self, name: str, *, partitions: int | None, overrides: Mapping[str, str], dry_run: bool = False
    ) -> Topic:
        _refuse_internal(name, "created")
        return await self.catalog.create(name, partitions=partitions, overrides=overrides, dry_run=dry_run)

    async def delete_topic(self, topic: Topic) -> None:
        _refuse_internal(topic.name, "deleted")
        await self.catalog.delete(topic)
        if (agent_session := self.agent_session) is not None:
            await agent_session.logs.drop_topic(topic)

    async def open_log(self, name: TopicPartition) -> PartitionLog:
        """The log of a partition, opened under a lease if it isn't open yet."""
        return await self._open_partitions.open_log(name)

    async def open_many(self, names: Sequence[TopicPartition]) -> None:
        """Open several partitions in one step before a request uses each of them; errors are raised at that use."""
        await self._open_partitions.open_many(names)

    async def _publish_audit(self, events: Sequence[bytes]) -> None:
        """Append events to the audit topic, which is created with the first ones."""
        security = self._settings.security
        if await self.catalog.find_if_any(security.audit_topic) is None:
            retention = {
                "retention.ms": str(round(security.audit_retention_s * 1000)),
                "retention.bytes": str(security.audit_retention_bytes),
            }
            with suppress(TopicExists):  # another agent has just created it
                await self.catalog.create(security.audit_topic, partitions=1, overrides=retention)
        records = [NewRecord(value=event) for event in events]
        results = await self.records.publish(security.audit_topic, records, acks=Acks.WAL, timeout_s=AUDIT_TIMEOUT_S)
        for result in results:
            if isinstance(result, StreamhouseError):
                raise result

    # --- appending

    def append(
        self,
        name: TopicPartition,
        data: memoryview,
        transaction: ProduceTransaction | None = None,
        inspection: Inspection | None = None,
    ) -> Awaitable[PendingAppend]:
        """Check and admit one batch and assign its offsets; pass the result to `acknowledge`. Batches of transactions
        need the `transaction` of their request. `inspection` is the result of `inspect_ahead`. The log takes over the
        buffer: offset and epoch are written into it, and the caller must not change it.
        """
        _refuse_internal(name.topic, "written to")
        return self._append_service.append(name, data, transaction, inspection)

    async def inspect_ahead(self, batches: Sequence[tuple[TopicPartition, Buffer]]) -> list[Inspection | None]:
        """Decompress the small compressed batches of a request together; None for batches that are decompressed at
        their append."""
        return await self._append_service.inspect_ahead(batches)

    async def verify_ahead(
        self, transaction: ProduceTransaction, batches: Mapping[TopicPartition, Buffer]
    ) -> ProduceTransaction:
        """Verify once for all batches of a request that their transaction is open."""
        return await self._append_service.verify_ahead(transaction, batches)

    async def acknowledge(self, pending: PendingAppend) -> None:
        """Return once the batch is durable and this agent still holds the partition's lease, or has flushed the batch
        before it gave the lease away; raises `AppendFailed`, which clients retry."""
        await pending.wait_durable()
        if not self._may_acknowledge(pending):
            raise AppendFailed(f"lease ended before the append was acknowledged; partition={pending.log.name}")

    def acknowledge_now(self, pending: PendingAppend) -> bool:
        """Whether the batch is acknowledged without waiting; if not, `acknowledge` waits, or says why it isn't."""
        if not pending.is_durable or not self._may_acknowledge(pending):
            return False
        pending.log.advance_high_watermark(pending.end)
        return True

    def _may_acknowledge(self, pending: PendingAppend) -> bool:
        return pending.is_flushed or self._session_manager.may_acknowledge(pending.log)

    async def allocate_producer_id(self) -> int:
        """A new producer id; allocated from the metadata store in blocks of a thousand."""
        return await self._producer_ids.take()

    # --- reading

    async def fetch(
        self, fetches: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[FetchResult]:
        await self._open_partitions.open_many([item.name for item in fetches])
        results = await self._fetcher.fetch(fetches, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)
        for item in results:
            if item.records:
                self.traffic.fetched(item.name.topic, size_bytes=item.size_bytes)
        return results

    async def earliest(self, name: TopicPartition) -> OffsetResult:
        return self.offsets.earliest(await self._open_partitions.open_log(name))

    async def latest(self, name: TopicPartition, *, committed: bool = False) -> OffsetResult:
        opened = await self._open_partitions.open_log(name)
        self._current().require_valid(name)  # a leader whose session has expired doesn't know the end any more
        return self.offsets.latest(opened, committed=committed)

    async def at_time(self, name: TopicPartition, timestamp_ms: int, *, committed: bool = False) -> OffsetResult | None:
        opened = await self._open_partitions.open_log(name)
        return await self.offsets.at_time(opened, timestamp_ms, committed=committed)

    async def at_max_timestamp(self, name: TopicPartition) -> OffsetResult | None:
        return await self.offsets.at_max_timestamp(await self._open_partitions.open_log(name))

    async def epoch_end(self, name: TopicPartition, epoch: int) -> OffsetResult | None:
        return await self.offsets.epoch_end(await self._open_partitions.open_log(name), epoch)


def _refuse_internal(topic: str, done: str) -> None:
    """Raise for the internal topic whose partitions are the shards of groups."""
    if topic == OFFSETS_TOPIC:
        raise InvalidTopicName(f"an internal topic can't be {done} by clients; name={topic}")
