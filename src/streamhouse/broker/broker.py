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

log = logging.getLogger(__name__)

AUDIT_TIMEOUT_S: Final = 10.0


class Broker:
    """Its parts are public by name: wires and jobs call them as they call the promises below."""

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

        # Writing: batches on their way to a log, segments that jobs wrote on their way into one.
        self.schemas = SchemaRegistry(dependencies)
        self._producer_ids = ProducerIdAllocator(dependencies.metadata)
        self.transactions = TransactionCoordinator(context, allocate=self._producer_ids.take)
        self._appending = AppendService(context, schema_check=self.schemas.check, verifier=self.transactions.verify)
        self.freezes = PartitionFreezes(context)
        self.commits = ExternalCommits(context, holds=self.freezes)

        # Reading: what this agent leads, and how far groups have read it.
        self._fetcher = Fetcher(context)
        self.offsets = ListOffsets(self.decoder, reader=self.reader, metadata=dependencies.metadata)
        self.groups = Groups(dependencies, catalog=self.catalog, current_session=self._current, cluster=self.cluster)

        # Both, whoever leads: for HTTP and gRPC; and what jobs read without us.
        self.records = RecordService(dependencies, self)
        self.run_listing = RunListing(dependencies)
        self.settled = StableFlushedOffset(dependencies, reader=self.reader)
        self.plans = ReadPlans(
            dependencies, catalog=self.catalog, settled=self.settled, stable_end=self.records.stable_end
        )

        # Among others: hearing of them, handing over to them, taking over from the dead.
        self._following = MetadataChangeListener(context, schemas=self.schemas)
        self.balancer = LeadershipBalancer(dependencies, cluster=self.cluster, groups=self.groups)
        self.dead_session_recovery = DeadSessionRecovery(dependencies, cluster=self.cluster)
        self._cut_off = StoreIsolation(dependencies, cluster=self.cluster)
        self.wal_reappend = WalReappend(
            dependencies,
            cluster=self.cluster,
            append=self.append,
            acknowledge=self.acknowledge,
            latest=self.records.latest,
        )

        # Upkeep of what is stored.
        forgetting = AbortedCleanup(dependencies, logs=lambda: self._current().logs())
        moved = self._session_manager.log_start_moved
        identity = context.session_manager.identity
        self.retention = RetentionManager(
            dependencies, configs=self.catalog.configs, moved=moved, cluster=self.cluster, identity=identity
        )
        self.object_check = ObjectCheck(context)
        self.compactor = Compactor(context, settled=self.settled, forgetting=forgetting)
        self.maintenance = MaintenanceJobs(context, plans=self.plans, forgetting=forgetting)

        # Asking and changing, for operators; definitions that Spark works with.
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

    # --- life

    async def start(self) -> None:
        """Begin the first session and recover what earlier ones left; raises when the stores don't let it for long."""
        await self.reader.open()
        try:
            await self.security.start()
            await self._session_manager.begin()
        except BaseException:
            self.security.close()
            await self.reader.aclose()
            raise

    async def run(self) -> None:
        """Serve until `stop`: keep the session, begin another when it ends, coordinate groups, collect."""
        try:
            async with asyncio.TaskGroup() as loops:
                groups = loops.create_task(self.groups.run(), name="groups")
                transactions = loops.create_task(self.transactions.run(), name="transactions")
                collector = loops.create_task(self._maintain(), name="collector")
                cluster = loops.create_task(self._following.run(), name="cluster")
                security = loops.create_task(self.security.run(self._publish_audit), name="security")
                await self._serve(self._current())
                while not self._stopping.is_set():
                    log.warning("session ended, opening another", extra={"why": str(self._current().end_reason)})
                    if await self._session_manager.reopen(stopping=self._stopping):
                        await self._serve(self._current())
                for task in (groups, transactions, collector, cluster, security):
                    task.cancel()
        finally:
            await self.records.aclose()
            self.decoder.close()
            self.security.close()
            await self.reader.aclose()

    async def _serve(self, agent_session: AgentSession) -> None:
        async with asyncio.TaskGroup() as loops:  # what none of them expected takes the agent down
            beside = [
                loops.create_task(self.balancer.run(agent_session), name="moves"),
                loops.create_task(
                    self.dead_session_recovery.run(self._session_manager.recovery(agent_session)), name="rescue"
                ),
                loops.create_task(self.wal_reappend.run(agent_session.session.session_id), name="returns"),
                loops.create_task(self.freezes.run(), name="holds"),
                loops.create_task(self._cut_off.run(agent_session), name="cut-off"),
                loops.create_task(self._leave(agent_session), name="leave"),
                loops.create_task(self._watch_identity(agent_session), name="identity"),
            ]
            await agent_session.run()
            for task in beside:
                task.cancel()
        self.groups.release("the session is over")
        if agent_session.left_behind is None:
            limit_s = self._settings.agent.close_timeout_s
            sealing = self._session_manager.identity.seal(agent_session.session.session_id)
            await within(limit_s, sealing, clock=self._dependencies.clock, what="the session's last generation")

    async def _watch_identity(self, agent_session: AgentSession) -> None:
        is_its_turn = partial(self.cluster.does, "identity")
        why = await self._session_manager.identity.watch(agent_session.session.session_id, is_its_turn=is_its_turn)
        log.error("the session ends: the stores don't belong together any more", extra={"why": str(why)})
        agent_session.lose(why)

    async def wait_stopping(self) -> None:
        """Return when the agent is told to stop; for whoever keeps clients waiting."""
        await self._stopping.wait()

    def stop(self) -> None:
        """Hand over to other agents, or refuse new appends and flush; `run` returns when that is done."""
        self._stopping.set()

    async def _leave(self, agent_session: AgentSession) -> None:
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
            loops.create_task(self.retention.run(), name="collection")
            loops.create_task(self.compactor.run(), name="compaction")
            loops.create_task(self.object_check.run(), name="object-check")

    def _current(self) -> AgentSession:
        return self._session_manager.current()

    @property
    def settings(self) -> Settings:
        """What the agent was started with, and what was changed since."""
        return self.catalog.dynamic.settings

    def _apply_settings(self) -> None:
        """Other settings hold: everything that keeps some, or what was made of them, gets them anew."""
        self.groups.configure(self.settings.groups)
        self._fetcher.configure(self.settings.fetch)
        if (agent_session := self.agent_session) is not None:
            agent_session.configure_all(self.catalog.known)

    # --- state, for health pages and metadata answers

    @property
    def node_id(self) -> NodeId:
        return self._current().session.node_id

    @property
    def agent_session(self) -> AgentSession | None:
        return self._session_manager.agent_session()

    @property
    def left_behind(self) -> UnfinishedShutdown | None:
        """What the last session could not finish before it ended; others, or the next start, recover it."""
        return agent_session.left_behind if (agent_session := self.agent_session) is not None else None

    @property
    def cluster_id(self) -> str:
        """What names this cluster to its clients, in the database and in the object store; known from `start` on."""
        return self._session_manager.identity.cluster_id

    @property
    def recovered(self) -> RecoveryStats:
        return self._session_manager.recovered

    def not_ready(self) -> str | None:
        """Why the agent should get no traffic now; None when it should."""
        if self._stopping.is_set():
            return "stopping"
        if (agent_session := self.agent_session) is None or agent_session.end_reason is not None:
            return "no session"
        if self._cut_off.is_cut_off:
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
        """The epoch under which this agent leads the partition; -1 while it doesn't."""
        opened = agent_session.find_log(name) if (agent_session := self.agent_session) is not None else None
        return opened.epoch if opened is not None else -1

    def agents(self) -> Sequence[Session]:
        """The agents that clients may talk to, by node id; this one among them."""
        return [self._current().session] if self._dependencies.single_agent else self.cluster.live()

    def departed(self) -> Sequence[Session]:
        """Agents that died a moment ago: clients that still know them should find them named."""
        return [] if self._dependencies.single_agent else self.cluster.departed.advertised(self.cluster.live())

    def redirected(self) -> Sequence[Session]:
        """Agents that departed, and for whose ids clients may be given the address of a living agent."""
        return [] if self._dependencies.single_agent else self.cluster.departed.redirected(self.cluster.live())

    def misdirected(self) -> Sequence[tuple[float, float]]:
        """Times, by the monotonic clock, in which connections may have been made to the wrong agent: the one whose id
        led here is back."""
        return [] if self._dependencies.single_agent else self.cluster.departed.misdirected()

    def departures(self) -> Sequence[float]:
        """When agents went, by the monotonic clock, for whose ids clients may wait."""
        return [] if self._dependencies.single_agent else self.cluster.departed.times()

    async def leaders(self, topics: Sequence[Topic]) -> Mapping[PartitionId, Leader]:
        """Who leads the partitions of these topics, or will when the first request comes."""
        return await self._open_partitions.leaders(topics)

    # --- topics

    async def topics(self) -> Sequence[Topic]:
        return await self.catalog.all()

    async def topic(self, name: str, *, create: bool = False) -> Topic:
        """The topic of this name; with `create`, and where settings allow, made when it isn't there."""
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
            await agent_session.drop_topic(topic)

    async def open_log(self, name: TopicPartition) -> PartitionLog:
        """The log of a partition that exists; opened under a lease when it isn't open yet."""
        return await self._open_partitions.open_log(name)

    async def open_many(self, names: Sequence[TopicPartition]) -> None:
        """Open together what a request is about to ask for one by one. What can't be opened says so when it is."""
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
        """Check, admit and place one batch; the answer's `durable()` says when it may be acknowledged.

        Batches of transactions need the `transaction` that they are sent in. `inspection` is what `inspect_ahead` found
        in these bytes.

        The buffer becomes the log's: it is written into (offset, epoch) and must not be touched by the caller again.
        """
        _refuse_internal(name.topic, "written to")
        return self._appending.append(name, data, transaction, inspection)

    async def inspect_ahead(self, batches: Sequence[tuple[TopicPartition, Buffer]]) -> list[Inspection | None]:
        """Open together the small compressed batches of a request; None for what is opened when it is appended."""
        return await self._appending.inspect_ahead(batches)

    async def verify_ahead(
        self, transaction: ProduceTransaction, batches: Mapping[TopicPartition, Buffer]
    ) -> ProduceTransaction:
        """Ask once whether a transaction is under way where the batches of a request may begin it."""
        return await self._appending.verify_ahead(transaction, batches)

    async def acknowledge(self, placed: PendingAppend) -> None:
        """Wait until the append is durable and may still be acknowledged under its lease."""
        await placed.durable()
        if not self._session_manager.may_acknowledge(placed.log):
            raise AppendFailed(f"lease ended before the append was acknowledged; partition={placed.log.name}")

    async def allocate_producer_id(self) -> int:
        """An id that nobody ever had; taken from the metadata store a thousand at a time."""
        return await self._producer_ids.take()

    # --- reading

    async def fetch(
        self, wanted: Sequence[PartitionFetch], *, max_bytes: int, min_bytes: int, max_wait_s: float
    ) -> list[FetchResult]:
        await self._open_partitions.open_many([item.name for item in wanted])
        found = await self._fetcher.fetch(wanted, max_bytes=max_bytes, min_bytes=min_bytes, max_wait_s=max_wait_s)
        self.traffic.fetched(size_bytes=sum(item.size_bytes for item in found))
        return found

    async def earliest(self, name: TopicPartition) -> OffsetResult:
        return self.offsets.earliest(await self._open_partitions.open_log(name))

    async def latest(self, name: TopicPartition, *, committed: bool = False) -> OffsetResult:
        opened = await self._open_partitions.open_log(name)
        self._current().require_valid(name)  # a leader whose time is over doesn't know the end any more
        return self.offsets.latest(opened, committed=committed)

    async def at_time(self, name: TopicPartition, timestamp_ms: int, *, committed: bool = False) -> OffsetResult | None:
        opened = await self._open_partitions.open_log(name)
        return await self.offsets.at_time(opened, timestamp_ms, committed=committed)

    async def at_max_timestamp(self, name: TopicPartition) -> OffsetResult | None:
        return await self.offsets.at_max_timestamp(await self._open_partitions.open_log(name))

    async def epoch_end(self, name: TopicPartition, epoch: int) -> OffsetResult | None:
        return await self.offsets.epoch_end(await self._open_partitions.open_log(name), epoch)


def _refuse_internal(topic: str, done: str) -> None:
    """Raise for the topic whose partitions are the shards of groups: it belongs to the agents."""
    if topic == OFFSETS_TOPIC:
        raise InvalidTopicName(f"an internal topic can't be {done} by clients; name={topic}")
