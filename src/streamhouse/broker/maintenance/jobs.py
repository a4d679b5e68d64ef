"""MaintenanceJobs: what an agent does for jobs that rewrite a topic outside the agents.

`TopicFlush` flushes a topic at all its leaders. `MaintenancePlans` lists every run of a topic with how far its
partitions were compacted. Replacing runs is in `run_replacement`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.context import BrokerContext
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.fetch.read_plans import PartitionPlan, ReadPlans, RunCursor
from streamhouse.broker.maintenance.run_replacement import RunReplacement
from streamhouse.broker.maintenance.run_rewriter import AbortedCleanup
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.errors import Unavailable
from streamhouse.model.cluster import Session
from streamhouse.model.names import TopicPartition
from streamhouse.model.topic import Topic


class TopicFlush:
    def __init__(
        self,
        dependencies: Dependencies,
        *,
        catalog: TopicCatalog,
        cluster: Cluster,
        current_session: Callable[[], AgentSession],
    ) -> None:
        self._dependencies = dependencies
        self._catalog = catalog
        self._cluster = cluster
        self._current_session = current_session

    def __repr__(self) -> str:
        return f"<TopicFlush timeout_s={self._dependencies.settings.records.patience_s}>"

    async def flush(self, name: str, *, everywhere: bool = True) -> None:
        """Return once segments hold all that was acknowledged before, by this agent or by any.

        Raises `Unavailable` after `records.patience_s`. Does not wait for the recovery of a dead agent's log.
        """
        topic = await self._catalog.find(name)
        timeout_s = self._dependencies.settings.records.patience_s
        try:
            async with asyncio.timeout(timeout_s):
                others = await self._others(topic) if everywhere else []
                remote = [self._dependencies.freezes.flush(other.http, name, timeout_s=timeout_s) for other in others]
                await asyncio.gather(self._here(topic), *remote)
        except TimeoutError:
            raise Unavailable(f"the topic is not flushed yet; topic={name} after_s={timeout_s:g}") from None

    async def _others(self, topic: Topic) -> list[Session]:
        """The other agents that lead partitions of the topic."""
        holders = {state.holder for state in await self._dependencies.metadata.partitions([topic.topic_id])}
        return [session for session in self._cluster.others() if session.session_id in holders]

    async def _here(self, topic: Topic) -> None:
        agent_session = self._current_session()
        ours = [item for item in agent_session.logs if item.partition.topic_id == topic.topic_id]
        waiting = asyncio.gather(*(item.wait_flushed(item.high_watermark) for item in ours))
        agent_session.flusher.flush_now()
        await waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMaintenance:
    """A partition's runs, and up to where it was compacted."""

    plan: PartitionPlan
    cleaned_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePlan:
    """`now_ms`: the time by the agreed clock."""

    topic: Topic
    now_ms: int
    partitions: Sequence[PartitionMaintenance]
    next: RunCursor | None


class MaintenancePlans:
    def __init__(self, dependencies: Dependencies, *, catalog: TopicCatalog, plans: ReadPlans) -> None:
        self._dependencies = dependencies
        self._metadata = dependencies.metadata
        self._catalog = catalog
        self._plans = plans

    def __repr__(self) -> str:
        return f"<MaintenancePlans {self._plans!r}>"

    async def plan(self, name: str, *, begin: RunCursor | None = None) -> MaintenancePlan:
        """The runs of all partitions, up to the limit of one response; no leader is queried."""
        topic = await self._catalog.find(name)
        names = [TopicPartition(name, number) for number in range(topic.partitions)]
        cleaned = await self._metadata.cleaned([topic.topic_id])
        listed = await self._plans.plan_flushed(names, begin=begin)
        partitions = [
            PartitionMaintenance(plan=plan, cleaned_to=cleaned.get(plan.partition, 0)) for plan in listed.partitions
        ]
        now_ms = await self._dependencies.agreed_now_ms()
        return MaintenancePlan(topic=topic, now_ms=now_ms, partitions=partitions, next=listed.next)


class MaintenanceJobs:
    def __init__(self, context: BrokerContext, *, plans: ReadPlans, aborted_cleanup: AbortedCleanup) -> None:
        dependencies, catalog, current_session = context.dependencies, context.catalog, context.session_manager.current
        self.flushing = TopicFlush(
            dependencies, catalog=catalog, cluster=context.cluster, current_session=current_session
        )
        self.plans = MaintenancePlans(dependencies, catalog=catalog, plans=plans)
        self.replacements = RunReplacement(
            dependencies,
            catalog=catalog,
            session=lambda: current_session().session.session_id,
            reader=context.reader,
            aborted_cleanup=aborted_cleanup,
        )

    def __repr__(self) -> str:
        return f"<MaintenanceJobs {self.plans!r}>"
