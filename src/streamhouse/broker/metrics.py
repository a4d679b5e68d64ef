"""Metrics of the broker, read from its state when somebody asks.

Owns        the names of the broker's metrics
Leaves      counting to the modules that do the work; serving the page to `wire.http`

Nothing here runs on the hot path: a scrape reads attributes.
"""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .broker import Broker


class BrokerMetrics(Collector):
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        yield from self._traffic()
        yield from self._memory()
        yield from self._caches()
        yield from self._partitions()

    def describe(self) -> Iterable[Metric]:
        return []

    def _traffic(self) -> Iterable[Metric]:
        traffic = self._broker.traffic
        yield _counter("appended_batches", "Batches placed into logs.", traffic.appended_batches)
        yield _counter("appended_records", "Records placed into logs.", traffic.appended_records)
        yield _counter("appended_bytes", "Bytes of batches placed into logs.", traffic.appended_bytes)
        yield _counter("fetched_bytes", "Bytes of batches handed to readers.", traffic.fetched_bytes)
        yield _counter("refused_appends", "Appends refused because memory was full.", self._broker.budget.refused)
        yield _counter("recovered_records", "Records recovered from dead sessions.", self._broker.recovered.records)
        collector = self._broker.collector
        yield _counter("deleted_objects", "Objects deleted by retention.", collector.deleted_objects)
        yield _counter("deleted_orphans", "Objects deleted that no row named.", collector.deleted_orphans)

    def _memory(self) -> Iterable[Metric]:
        budget = self._broker.budget
        yield GaugeMetricFamily("streamhouse_buffer_bytes", "Records not yet in a segment.", budget.used_bytes)
        yield GaugeMetricFamily("streamhouse_buffer_pressure", "Share of the memory budget in use.", budget.pressure)
        tenure = self._broker.tenure
        if tenure is not None:
            yield GaugeMetricFamily("streamhouse_wal_bytes", "Bytes in the write-ahead log.", tenure.wal.size_bytes)
            yield _counter("flushed_segments", "Segments published.", tenure.flusher.flushed_segments)
            yield _counter("flush_failures", "Tries of a flush that failed.", tenure.flusher.failures)

    def _caches(self) -> Iterable[Metric]:
        hits = CounterMetricFamily("streamhouse_cache_hits", "Lookups answered from memory.", labels=["cache"])
        misses = CounterMetricFamily("streamhouse_cache_misses", "Lookups that had to read.", labels=["cache"])
        reader = self._broker.reader
        for name, cache in (("blocks", reader.blocks), ("indexes", reader.indexes)):
            hits.add_metric([name], cache.hits)
            misses.add_metric([name], cache.misses)
        yield hits
        yield misses
        yield GaugeMetricFamily("streamhouse_block_cache_bytes", "Blocks held in memory.", reader.blocks.weight)

    def _partitions(self) -> Iterable[Metric]:
        tenure = self._broker.tenure
        opened = len(list(tenure.logs())) if tenure is not None else 0
        yield GaugeMetricFamily("streamhouse_open_partitions", "Partitions that this agent leads.", opened)
        ready = 0 if self._broker.not_ready() else 1
        yield GaugeMetricFamily("streamhouse_ready", "1 when the agent should get traffic.", ready)


def _counter(name: str, about: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"streamhouse_{name}", about, value)
