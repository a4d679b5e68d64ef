"""Metrics of the broker, read from its state when they are scraped.

Owns        the names of the broker's metrics
Leaves      counting to the modules that do the work; serving the page to `wire.http`

Nothing here runs on the hot path: a scrape reads attributes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.backpressure import TopicTraffic
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.segments.block_cache import CacheCounters
from streamhouse.broker.wal.base import WalRequestStats
from streamhouse.model.group_lag import GroupLag

OTHER_TOPICS: Final = "(others)"
"""The label of topics beyond the limit; no topic can have this name."""
PIPELINE_GAUGES: Final = {
    "lag_records": "Records that a pipeline's topics hold beyond it.",
    "processed_rate": "Rows that a pipeline processes in a second.",
    "batch_ms": "How long a pipeline's last micro-batch took.",
    "state_rows": "Rows of state that a pipeline keeps.",
    "late_rows": "Rows that came later than a pipeline's watermark allows, and were left out.",
    "restarts": "How often a pipeline was started again.",
}


class BrokerMetrics(Collector):
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def collect(self) -> Iterable[Metric]:
        yield from self._traffic()
        yield from self._memory()
        yield from _tasks()
        yield from self._caches()
        yield from self._disk()
        yield from self._partitions()
        yield from self._topics()
        yield from group_lag_metrics(self._broker.group_lag.lags, limit=self._broker.settings.groups.max_lag_partitions)

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
        yield from self._damaged_logs()
        yield from self._returns()
        yield from self._forwarding()
        collector = self._broker.retention
        yield _counter("deleted_objects", "Objects deleted by retention.", collector.deleted_objects)
        yield _counter("deleted_orphans", "Objects deleted that no row named.", collector.deleted_orphans)
        yield from self._integrity()
        yield from self._compaction()
        yield from self._placing()
        yield from self._transactions()
        yield from self._pipelines()

    def _pipelines(self) -> Iterable[Metric]:
        """Metrics of pipelines whose supervisors send heartbeats to this agent."""
        phase = GaugeMetricFamily("streamhouse_pipeline_phase", "What a pipeline does.", labels=["pipeline", "phase"])
        statuses = self._broker.supervisors.statuses()
        for name, status in statuses.items():
            phase.add_metric([name, status.phase], 1)
        yield phase
        for field, about in PIPELINE_GAUGES.items():
            gauge = GaugeMetricFamily(f"streamhouse_pipeline_{field}", about, labels=["pipeline"])
            for name, status in statuses.items():
                if (value := getattr(status, field)) is not None:
                    gauge.add_metric([name], value)
            yield gauge

    def _placing(self) -> Iterable[Metric]:
        commits, holds = self._broker.commits, self._broker.freezes
        yield _counter("placing_commits", "Commits of segments that others wrote, placed.", commits.committed)
        yield _counter("placing_replays", "Repeated commits, answered with their first result.", commits.replayed)
        yield _counter("placing_refusals", "Commits that can never happen.", commits.refused)
        yield _counter("placing_retries", "Commits that the client has to retry.", commits.unanswered)
        yield _counter("placing_holds", "Times that partitions were held for a commit.", holds.begun)
        yield _counter("placing_held_seconds", "How long partitions were held for commits.", holds.held_s)
        yield _counter("placing_expired_holds", "Expired holds; their logs take appends again.", holds.expired)
        yield GaugeMetricFamily("streamhouse_placing_holding", "Holds that there are now.", len(holds))

    def _transactions(self) -> Iterable[Metric]:
        transactions = self._broker.transactions
        endings, watch = transactions.endings, transactions.watch
        ended = CounterMetricFamily(
            "streamhouse_transactions_ended", "Transactions whose last marker this agent saw.", labels=["outcome"]
        )
        ended.add_metric(["committed"], endings.committed)
        ended.add_metric(["aborted"], endings.aborted)
        yield ended
        yield _counter("transactions_expired", "Transactions that took longer than their timeouts.", watch.expired)
        yield _counter(
            "transactions_stray", "Transactions whose markers were lost, ended by leaders.", transactions.hanging.ended
        )
        yield _counter("transactions_forgotten", "Transactional ids that were silent for long.", watch.forgotten)
        yield _counter(
            "transaction_markers", "Ends of transactions written into partitions.", transactions.marker_writer.written
        )
        yield _counter("transaction_end_retries", "Further tries to end a transaction everywhere.", endings.retries)
        under_way = "Transactions that are decided, and whose markers this agent is writing."
        yield GaugeMetricFamily("streamhouse_transactions_ending", under_way, len(endings))
        agent_session = self._broker.agent_session
        opened = sum(item.open_transactions for item in agent_session.logs) if agent_session is not None else 0
        yield GaugeMetricFamily(
            "streamhouse_transactions_open", "Open transactions in the partitions that this agent leads.", opened
        )

    def _damaged_logs(self) -> Iterable[Metric]:
        recovered = self._broker.recovered + self._broker.dead_session_recovery.recovered
        logs = "Write-ahead logs of dead sessions in which something was lost; they are kept."
        yield _counter("damaged_logs", logs, recovered.damaged_logs)
        places = "Places of write-ahead logs that may have held acknowledged records, and could not be read."
        yield _counter("wal_losses", places, recovered.losses)

    def _returns(self) -> Iterable[Metric]:
        returns, rescued = self._broker.wal_reappend, self._broker.dead_session_recovery.recovered
        yield _counter("abandoned_sessions", "Dead sessions whose disk was not waited for.", rescued.abandoned_sessions)
        yield _counter("returned_records", "Records of this disk appended again, as new ones.", returns.records)
        yield _counter("returned_skipped_records", "Those of deleted topics, left out.", returns.skipped_records)
        waiting = "Logs on this disk that are not wholly appended again."
        yield GaugeMetricFamily("streamhouse_returns_waiting", waiting, returns.waiting)

    def _forwarding(self) -> Iterable[Metric]:
        delivery, buffered_acks = self._broker.records.delivery, self._broker.records.buffered_acks
        yield _counter("forwarded_batches", "Batches published here that other agents stored.", delivery.forwarded)
        yield _counter("forward_retries", "Further tries to reach a partition's leader.", delivery.retries)
        yield _counter(
            "buffered_lost_records", "Records that failed after acks=buffered was answered.", buffered_acks.lost_records
        )

    def _integrity(self) -> Iterable[Metric]:
        check, damage = self._broker.object_check, self._broker.reader.damage
        yield _counter("object_checks", "Objects looked at, whether they are in the store and whole.", check.checked)
        missing = "Objects that rows name and the store doesn't have, as this agent's checks found."
        yield GaugeMetricFamily("streamhouse_objects_missing", missing, check.missing)
        short = "Objects that are shorter than they were written, as this agent's checks found."
        yield GaugeMetricFamily("streamhouse_objects_short", short, check.short)
        refused = CounterMetricFamily(
            "streamhouse_refused_reads", "Reads refused because their range is missing or damaged.", labels=["why"]
        )
        refused.add_metric(["missing"], damage.refused_missing)
        refused.add_metric(["damaged"], damage.refused_damaged)
        yield refused
        unreadable = "Ranges that readers found missing or damaged here, and that were not readable since."
        yield GaugeMetricFamily("streamhouse_unreadable_ranges", unreadable, len(damage))

    def _compaction(self) -> Iterable[Metric]:
        compactor = self._broker.compactor
        cleaner, merger, rewriter = compactor.cleaner, compactor.merger, compactor.rewriter
        yield _counter("compacted_partitions", "Passes of key compaction over a partition.", cleaner.passes)
        yield _counter("compacted_records", "Records dropped by key compaction.", cleaner.dropped_records)
        yield _counter("merged_runs", "Small runs that became part of a larger one.", merger.merged_runs)
        jobs = self._broker.maintenance.replacements
        yield _counter("job_replacements", "Objects of jobs that took the place of runs.", jobs.replaced)
        yield _counter("job_conflicts", "Objects of jobs that came too late.", jobs.came_late)
        yield _counter("rewrite_read_bytes", "Bytes read by compaction and merging.", rewriter.read_bytes)
        yield _counter("rewrite_written_bytes", "Bytes written by compaction and merging.", rewriter.written_bytes)

    def _memory(self) -> Iterable[Metric]:
        budget = self._broker.budget
        yield GaugeMetricFamily("streamhouse_buffer_bytes", "Records not yet in a segment.", budget.used_bytes)
        yield GaugeMetricFamily("streamhouse_buffer_pressure", "Share of the memory budget in use.", budget.pressure)
        decoder = self._broker.decoder.budget
        about = "Memory for large batches that are being decompressed."
        yield GaugeMetricFamily("streamhouse_decoder_bytes", about, decoder.used_bytes)
        yield GaugeMetricFamily("streamhouse_decoder_waiting", "Requests that wait for such memory.", decoder.waiting)
        yield _counter(
            "refused_decodes", "Requests refused because batches could not be decompressed in time.", decoder.refused
        )
        agent_session = self._broker.agent_session
        if agent_session is not None:
            yield GaugeMetricFamily(
                "streamhouse_wal_bytes", "Bytes in the write-ahead log.", agent_session.wal.size_bytes
            )
            yield from _wal_costs(agent_session.wal.costs)
            yield _counter("flushed_segments", "Segments published.", agent_session.flusher.flushed_segments)
            yield _counter("flush_failures", "Tries of a flush that failed.", agent_session.flusher.failures)

    def _caches(self) -> Iterable[Metric]:
        caches = self._counted()
        yield _by_cache(CounterMetricFamily, "hits", "Lookups that were answered.", caches, lambda each: each.hits)
        yield _by_cache(CounterMetricFamily, "misses", "Lookups that weren't.", caches, lambda each: each.misses)
        yield _by_cache(
            CounterMetricFamily, "evictions", "Entries that made room for others.", caches, lambda each: each.evictions
        )
        yield _by_cache(GaugeMetricFamily, "entries", "Entries held.", caches, len)
        used = {name: each for name, each in caches.items() if each.hits + each.misses}
        yield _by_cache(GaugeMetricFamily, "hit_rate", "Share of lookups answered, since the start.", used, _hit_rate)
        size = GaugeMetricFamily("streamhouse_cache_bytes", "Bytes of blocks held.", labels=["cache"])
        reader = self._broker.reader
        size.add_metric(["blocks"], reader.blocks.weight)
        size.add_metric(["key_filters"], reader.key_filter_cache.weight)
        if reader.disk is not None:
            size.add_metric(["blocks_on_disk"], reader.disk.weight)
        yield size
        yield GaugeMetricFamily("streamhouse_cold_reads_waiting", "Reads that wait for their turn.", reader.waiting)

    def _counted(self) -> dict[str, CacheCounters]:
        reader = self._broker.reader
        library = self._broker.schemas.library
        caches: dict[str, CacheCounters] = {"blocks": reader.blocks}
        if reader.disk is not None:
            caches["blocks_on_disk"] = reader.disk
        return {
            **caches,
            "indexes": reader.indexes,
            "key_filters": reader.key_filter_cache,
            "runs": reader.runs,
            "topics": self._broker.catalog,
            "schemas": library.schemas,
            "schema_subjects": library.members,
        }

    def _disk(self) -> Iterable[Metric]:
        disk = self._broker.reader.disk
        if disk is None:
            return
        yield GaugeMetricFamily("streamhouse_disk_cache_on", "0 when trouble turned it off.", int(disk.is_on))
        yield _counter("disk_cache_errors", "Errors of the disk under the cache.", disk.errors)
        yield _counter("disk_cache_damaged", "Files that didn't match their checksums.", disk.damaged)
        yield _counter("disk_cache_dropped", "Blocks not kept: too large, or too many waiting.", disk.dropped)

    def _partitions(self) -> Iterable[Metric]:
        agent_session = self._broker.agent_session
        opened = len(list(agent_session.logs)) if agent_session is not None else 0
        yield GaugeMetricFamily("streamhouse_open_partitions", "Partitions that this agent leads.", opened)
        ready = 0 if self._broker.not_ready() else 1
        yield GaugeMetricFamily("streamhouse_ready", "1 when the agent should get traffic.", ready)

    def _topics(self) -> Iterable[Metric]:
        """By topic: of at most `agent.max_metric_topics`, the others together."""
        traffic = self._broker.traffic
        traffic.keep(self._broker.catalog.knows)
        by_topic = {**traffic.by_topic, OTHER_TOPICS: traffic.others}
        yield _by_topic("appended_records", "Records placed into logs.", by_topic, lambda each: each.appended_records)
        yield _by_topic(
            "appended_bytes", "Bytes of batches placed into logs.", by_topic, lambda each: each.appended_bytes
        )
        yield _by_topic(
            "fetched_bytes", "Bytes of batches handed to readers.", by_topic, lambda each: each.fetched_bytes
        )
        yield from open_log_metrics(self._open_logs(), limit=self._broker.settings.agent.max_metric_topics)

    def _open_logs(self) -> Iterable[PartitionLog]:
        agent_session = self._broker.agent_session
        return agent_session.logs if agent_session is not None else ()


def open_log_metrics(logs: Iterable[PartitionLog], *, limit: int) -> Iterable[Metric]:
    """Metrics of this agent's open partitions: their number, and the offsets that they retain, by topic."""
    partitions, retained = Counter[str](), Counter[str]()
    for log in logs:
        topic = log.name.topic
        if topic not in partitions and len(partitions) - (OTHER_TOPICS in partitions) >= limit:
            topic = OTHER_TOPICS
        partitions[topic] += 1
        retained[topic] += log.high_watermark - log.log_start
    for name, about, values in (
        ("partitions", "Partitions of a topic that this agent leads.", partitions),
        ("retained_offsets", "Offsets from the log start to the high watermark, in those partitions.", retained),
    ):
        gauge = GaugeMetricFamily(f"streamhouse_topic_{name}", about, labels=["topic"])
        for topic, value in values.items():
            gauge.add_metric([topic], value)
        yield gauge


def _by_topic(
    name: str, about: str, topics: Mapping[str, TopicTraffic], value: Callable[[TopicTraffic], int]
) -> CounterMetricFamily:
    counter = CounterMetricFamily(f"streamhouse_topic_{name}", about, labels=["topic"])
    for topic, traffic in topics.items():
        counter.add_metric([topic], value(traffic))
    return counter


def _wal_costs(costs: WalRequestStats) -> Iterable[Metric]:
    """Counters for requests per second and per gigabyte of records; they restart with each session."""
    yield _counter("wal_objects", "Objects of the write-ahead log that became durable.", costs.windows)
    yield _counter("wal_puts", "PUTs of the write-ahead log, repeated ones included.", costs.puts)
    yield _counter("wal_put_retries", "PUTs of the write-ahead log that had to be repeated.", costs.retries)
    yield _counter("wal_deletes", "Objects of the write-ahead log that were deleted.", costs.deletes)
    yield _counter("wal_object_bytes", "Bytes of the write-ahead log's objects.", costs.object_bytes)
    yield _counter("wal_batch_bytes", "Bytes of the batches in them.", costs.batch_bytes)


def group_lag_metrics(lags: Iterable[GroupLag], *, limit: int) -> Iterable[Metric]:
    """The lag of the groups that this agent coordinates, under the names of kafka-lag-exporter; of at most `limit`
    partitions."""
    at, of = ["group", "topic", "partition"], ["group"]
    records = GaugeMetricFamily("kafka_consumergroup_group_lag", "Records that a group has not committed.", labels=at)
    seconds = GaugeMetricFamily(
        "kafka_consumergroup_group_lag_seconds", "Age of the first record that is not committed.", labels=at
    )
    total = GaugeMetricFamily("kafka_consumergroup_group_sum_lag", "Lag of a group in all its partitions.", labels=of)
    worst = GaugeMetricFamily(
        "kafka_consumergroup_group_max_lag_seconds", "The longest lag of a group in any of its partitions.", labels=of
    )
    health = GaugeMetricFamily("streamhouse_group_health", "What the lag of a group says.", labels=["group", "health"])
    left = limit
    for lag in lags:
        sample = lag.sample
        total.add_metric([lag.group_id], sample.records)
        health.add_metric([lag.group_id, lag.health], 1)
        if sample.lag_ms is not None:
            worst.add_metric([lag.group_id], sample.lag_ms / 1000)
        for each in lag.partitions[: max(left, 0)]:
            labels = [lag.group_id, each.name.topic, str(each.name.partition)]
            if each.lag is not None:
                records.add_metric(labels, each.lag)
            if each.lag_ms is not None:
                seconds.add_metric(labels, each.lag_ms / 1000)
        left -= len(lag.partitions)
    yield from (records, seconds, total, worst, health)


def _counter(name: str, about: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"streamhouse_{name}", about, value)


def _by_cache(
    family: type[CounterMetricFamily] | type[GaugeMetricFamily],
    name: str,
    about: str,
    caches: Mapping[str, CacheCounters],
    value: Callable[[CacheCounters], float],
) -> Metric:
    metric = family(f"streamhouse_cache_{name}", about, labels=["cache"])
    for cache, counted in caches.items():
        metric.add_metric([cache], value(counted))
    return metric


def _hit_rate(cache: CacheCounters) -> float:
    return cache.hits / (cache.hits + cache.misses)


def _tasks() -> Iterable[Metric]:
    """Tasks of the event loop that serves the scrape; a number that only grows is a leak."""
    try:
        count = len(asyncio.all_tasks())
    except RuntimeError:  # no event loop runs here
        return
    yield GaugeMetricFamily("streamhouse_tasks", "Tasks of the agent's event loop.", count)
