"""Ground: what the promises of a broker stand on, in one value, each part upon those before it.

Owns        what there is of it, and how its parts are put together
Leaves      what each part does to its own module, the promises to those that stand on it
"""

from collections.abc import Callable
from dataclasses import dataclass

from streamhouse.broker.catalog.topic_catalog import Catalogue
from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.dependencies import Doors
from streamhouse.broker.partition.backpressure import MemoryBudget, Traffic
from streamhouse.broker.partition.batch_decoder import Decoder
from streamhouse.broker.produce.checks import Refusals
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.session.session_manager import Leading, Succession


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The world; what is counted; what fits into memory; where batches are opened; what is stored; which topics there
    are; who is there; which batches were refused for now; under which session this agent acts; which partitions it
    leads."""

    doors: Doors
    traffic: Traffic
    budget: MemoryBudget
    decoder: Decoder
    reader: SegmentReader
    catalogue: Catalogue
    cluster: Cluster
    refusals: Refusals
    succession: Succession
    leading: Leading


def lay_ground(doors: Doors, *, obey: Callable[[], None]) -> Ground:
    """`obey` is called when other settings hold."""
    budget = MemoryBudget(doors.settings.buffer, clock=doors.clock)
    decoder = Decoder(doors.settings.decoder, producers=doors.settings.producers, clock=doors.clock)
    reader = SegmentReader(doors.settings.fetch, objects=doors.objects, metadata=doors.metadata, clock=doors.clock)
    catalogue, cluster = Catalogue(doors, obey=obey), Cluster(doors)
    reader.damage.name_of = catalogue.name_of
    refusals = Refusals(limit=doors.settings.producers.max_per_partition)
    succession = Succession(
        doors, catalogue=catalogue, cluster=cluster, reader=reader, budget=budget, refusals=refusals
    )
    leading = Leading(doors, catalogue=catalogue, cluster=cluster, tenancy=succession.current)
    return Ground(
        doors=doors,
        traffic=Traffic(),
        budget=budget,
        decoder=decoder,
        reader=reader,
        catalogue=catalogue,
        cluster=cluster,
        refusals=refusals,
        succession=succession,
        leading=leading,
    )
