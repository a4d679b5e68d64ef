"""Maintenance plans: every run of a topic, for jobs that rewrite them outside the agents.

Data path   none: HTTP -> **plans** -> rows of the metadata store -> job -> object store, then `replacements`
Owns        what a rewriting job has to know beside where runs stand: how far partitions were compacted
Leaves      pages and limits to `reading.plans`, the topic's settings and JSON to the wire
"""

from collections.abc import Sequence
from dataclasses import dataclass

from streamhouse.broker.catalogue import Catalogue
from streamhouse.broker.doors import Doors
from streamhouse.broker.reading.plans import PartitionPlan, Place, ReadPlans
from streamhouse.model.names import TopicPartition
from streamhouse.model.topic import Topic


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
