"""Flushing: everything that a topic has goes into segments now, because somebody is about to work on segments.

Data path   none: HTTP -> **flushing** -> each leader's flusher, here and at other agents
Owns        which agents are asked, how long they may take
Leaves      flushing itself to `broker.flush`, asking others to the door `holders`

Maintenance plans: every run of a topic, for jobs that rewrite them outside the agents.

Data path   none: HTTP -> **plans** -> rows of the metadata store -> job -> object store, then `replacements`
Owns        what a rewriting job has to know beside where runs stand: how far partitions were compacted
Leaves      pages and limits to `reading.plans`, the topic's settings and JSON to the wire

Upkeep: what an agent does for jobs that rewrite a topic outside of it.

Data path   none: HTTP -> **upkeep** -> everything flushed, what there is, what takes its place
Owns        the three of them, in one place
Leaves      the work to `flushing`, `plans` and `replacements`
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamhouse.broker.catalog.topic_catalog import Catalogue
from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.context import Ground
from streamhouse.broker.dependencies import Doors
from streamhouse.broker.fetch.read_plans import PartitionPlan, Place, ReadPlans
from streamhouse.broker.maintenance.run_replacement import Replacements
from streamhouse.broker.maintenance.run_rewriter import Forgetting
from streamhouse.broker.session.agent_session import Tenure
from streamhouse.errors import Unavailable
from streamhouse.model.cluster import Session
from streamhouse.model.names import TopicPartition
from streamhouse.model.topic import Topic


class Flushing:
    def __init__(self, doors: Doors, *, catalogue: Catalogue, cluster: Cluster, tenancy: Callable[[], Tenure]) -> None:
        self._doors = doors
        self._catalogue = catalogue
        self._cluster = cluster
        self._tenancy = tenancy

    def __repr__(self) -> str:
        return f"<Flushing patience_s={self._doors.settings.records.patience_s}>"

    async def flush(self, name: str, *, everywhere: bool = True) -> None:
        """Return once segments hold all that was acknowledged before, by this agent or by any.

        Raises `Unavailable` where that takes too long. What an agent that is gone left in its log isn't waited for.
        """
        topic = await self._catalogue.find(name)
        patience_s = self._doors.settings.records.patience_s
        try:
            async with asyncio.timeout(patience_s):
                others = await self._others(topic) if everywhere else []
                asked = [self._doors.holders.flush(other.http, name, timeout_s=patience_s) for other in others]
                await asyncio.gather(self._here(topic), *asked)
        except TimeoutError:
            raise Unavailable(f"the topic is not flushed yet; topic={name} after_s={patience_s:g}") from None

    async def _others(self, topic: Topic) -> list[Session]:
        """Who else leads something of it."""
        holders = {state.holder for state in await self._doors.metadata.partitions([topic.topic_id])}
        return [session for session in self._cluster.others() if session.session_id in holders]

    async def _here(self, topic: Topic) -> None:
        tenure = self._tenancy()
        ours = [item for item in tenure.logs() if item.partition.topic_id == topic.topic_id]
        waiting = asyncio.gather(*(item.wait_flushed(item.high_watermark) for item in ours))
        tenure.flusher.hurry()
        await waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionUpkeep:
    """A partition's runs, and up to where it was compacted."""

    plan: PartitionPlan
    cleaned_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePlan:
    """`now_ms`: the time by the agreed clock."""

    topic: Topic
    now_ms: int
    partitions: Sequence[PartitionUpkeep]
    next: Place | None


class MaintenancePlans:
    def __init__(self, doors: Doors, *, catalogue: Catalogue, plans: ReadPlans) -> None:
        self._doors = doors
        self._metadata = doors.metadata
        self._catalogue = catalogue
        self._plans = plans

    def __repr__(self) -> str:
        return f"<MaintenancePlans {self._plans!r}>"

    async def plan(self, name: str, *, begin: Place | None = None) -> MaintenancePlan:
        """The runs of all partitions, as many as one answer may name; no leader is asked."""
        topic = await self._catalogue.find(name)
        names = [TopicPartition(name, number) for number in range(topic.partitions)]
        cleaned = await self._metadata.cleaned([topic.topic_id])
        found = await self._plans.plan_flushed(names, begin=begin)
        partitions = [
            PartitionUpkeep(plan=plan, cleaned_to=cleaned.get(plan.partition, 0)) for plan in found.partitions
        ]
        now_ms = await self._doors.agreed_now_ms()
        return MaintenancePlan(topic=topic, now_ms=now_ms, partitions=partitions, next=found.next)


class Upkeep:
    def __init__(self, ground: Ground, *, plans: ReadPlans, forgetting: Forgetting) -> None:
        doors, catalogue, tenancy = ground.doors, ground.catalogue, ground.succession.current
        self.flushing = Flushing(doors, catalogue=catalogue, cluster=ground.cluster, tenancy=tenancy)
        self.plans = MaintenancePlans(doors, catalogue=catalogue, plans=plans)
        self.replacements = Replacements(
            doors,
            catalogue=catalogue,
            session=lambda: tenancy().session.session_id,
            reader=ground.reader,
            forgetting=forgetting,
        )

    def __repr__(self) -> str:
        return f"<Upkeep {self.plans!r}>"
