"""BrokerContext: the parts that the broker's services share, built once and in order."""

from collections.abc import Callable
from dataclasses import dataclass

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.backpressure import MemoryBudget, TrafficCounters
from streamhouse.broker.partition.batch_decoder import BatchDecoder
from streamhouse.broker.partition.sequence_gaps import SequenceGapGuard
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.session.session_manager import OpenPartitions, SessionManager


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerContext:
    """Parts that the broker's services share: dependencies, counters, memory budget, batch decoder, stores of segments,
    topics, cluster, sequence gaps, the current session and the open partitions."""

    dependencies: Dependencies
    traffic: TrafficCounters
    budget: MemoryBudget
    decoder: BatchDecoder
    reader: SegmentReader
    catalog: TopicCatalog
    cluster: Cluster
    gap_guard: SequenceGapGuard
    session_manager: SessionManager
    open_partitions: OpenPartitions


def build_context(dependencies: Dependencies, *, on_settings_changed: Callable[[], None]) -> BrokerContext:
    """`on_settings_changed` is called when the effective settings have changed."""
    budget = MemoryBudget(dependencies.settings.buffer, clock=dependencies.clock)
    decoder = BatchDecoder(
        dependencies.settings.decoder, producers=dependencies.settings.producers, clock=dependencies.clock
    )
    reader = SegmentReader(
        dependencies.settings.fetch,
        objects=dependencies.objects,
        metadata=dependencies.metadata,
        clock=dependencies.clock,
        encrypts=dependencies.data_keys is not None,
    )
    catalog, cluster = TopicCatalog(dependencies, on_settings_changed=on_settings_changed), Cluster(dependencies)
    reader.damage.name_of = catalog.name_of
    gap_guard = SequenceGapGuard(limit=dependencies.settings.producers.max_per_partition)
    session_manager = SessionManager(
        dependencies, catalog=catalog, cluster=cluster, reader=reader, budget=budget, gap_guard=gap_guard
    )
    open_partitions = OpenPartitions(
        dependencies, catalog=catalog, cluster=cluster, current_session=session_manager.current
    )
    return BrokerContext(
        dependencies=dependencies,
        traffic=TrafficCounters(max_topics=dependencies.settings.agent.max_metric_topics),
        budget=budget,
        decoder=decoder,
        reader=reader,
        catalog=catalog,
        cluster=cluster,
        gap_guard=gap_guard,
        session_manager=session_manager,
        open_partitions=open_partitions,
    )
