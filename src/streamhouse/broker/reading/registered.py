"""Registered: which runs of topics have rows, page by page, for people and programs that look at them.

Data path   HTTP -> **registered** -> rows of the metadata store
Owns        the order of a listing (topic, partition, offset), where the next page begins
Leaves      names and topics to the catalogue, the share that each partition gets of a page to `plans`, JSON to the wire
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from streamhouse.broker.doors import Doors
from streamhouse.broker.reading.plans import NO_LIMIT, Place, first_runs
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.segment import Run
from streamhouse.model.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """Runs with the names of their partitions; `next` is None when nothing is left."""

    runs: Sequence[tuple[TopicPartition, Run]]
    next: Place | None


class Registered:
    def __init__(self, doors: Doors) -> None:
        self._metadata = doors.metadata
        self._settings = doors.settings.plans

    def __repr__(self) -> str:
        return f"<Registered max_runs={self._settings.max_runs}>"

    async def page(self, topics: Sequence[Topic], *, limit: int, begin: Place | None = None) -> RunPage:
        """Up to `limit` runs by topic, partition and offset; `begin` is where the page before this one stopped.

        A page may have fewer, or none, and still a next one: it looks at so many partitions only.
        """
        places = _places(sorted(topics, key=lambda topic: topic.name), begin)
        looked_at = dict(islice(places, self._settings.max_partitions))
        wanted = {partition: range(place.offset, NO_LIMIT) for partition, place in looked_at.items()}
        limit = min(limit, self._settings.max_runs)
        found = await first_runs(self._metadata, wanted, limit=limit)
        runs = [(looked_at[partition].name, run) for partition, each in found.items() for run in each]
        if len(runs) < limit:
            return RunPage(runs=runs, next=next((place for _, place in places), None))
        last, run = runs[-1]
        return RunPage(runs=runs, next=Place(last, run.end))


def _places(topics: Sequence[Topic], begin: Place | None) -> Iterator[tuple[PartitionId, Place]]:
    """Where each partition is read from, in order; the one that `begin` names may be gone by now."""
    start = Place(TopicPartition("", 0), 0) if begin is None else begin
    for topic in topics:
        if topic.name < start.name.topic:
            continue
        first = start.name.partition if topic.name == start.name.topic else 0
        for number in range(first, topic.partitions):
            name = TopicPartition(topic.name, number)
            yield PartitionId(topic.topic_id, number), start if name == start.name else Place(name, 0)
