"""RecordTraces: the spans of records whose producer sent a `traceparent`, from the append to the last fetch.

Data path   append, flush and fetch report the offsets that they have processed
Owns        which recent records are traced, and their spans
Leaves      sampling and export to `tracing`, finding the header in a batch to `format.trace_headers`

An agent follows the newest `tracing.max_records`; after a failover the next leader knows none of them.
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.tracing import Span, SpanContext, SpanKind, Tracer, current_context, parse_traceparent

TRACED_PER_BATCH: Final = 16
"""Traced records of one batch that get spans of their own."""
SPANS_PER_FETCH: Final = 32
PROCESSED_KEPT: Final = 10_000
"""Partitions of pipelines of which it is known how far they were read."""

_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class _Followed(NamedTuple):
    """A traced record: the context of its append's span, and when that began."""

    context: SpanContext
    appended_ns: int


class _Partition:
    """Traced records of a partition, by ascending offset."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.records: list[_Followed] = []

    def between(self, start: int, end: int) -> Iterator[tuple[int, _Followed]]:
        for at in range(bisect_left(self.offsets, start), bisect_left(self.offsets, end)):
            yield self.offsets[at], self.records[at]


class RecordTraces:
    def __init__(self, tracer: Tracer, registry: CollectorRegistry) -> None:
        self.tracer = tracer
        self._followed: dict[PartitionId, _Partition] = {}
        self._order: deque[PartitionId] = deque()
        self._processed: dict[tuple[str, PartitionId], int] = {}
        registry.register(_SpanCounts(tracer))
        self._seconds = Histogram(
            "streamhouse_traced_record_seconds",
            "time from the append of a traced record until it was durable, stored in a segment, or fetched",
            ["stage"],
            registry=registry,
            buckets=_BUCKETS_S,
        )

    def __repr__(self) -> str:
        return f"<RecordTraces followed={len(self._order)} {self.tracer!r}>"

    def appended(
        self,
        name: TopicPartition,
        partition: PartitionId,
        base_offset: int,
        traceparents: Sequence[tuple[int, str]],
        commit: "asyncio.Future[None]",
        *,
        start_ns: int,
    ) -> None:
        """Begin the spans of a batch's traced records; they end when the write-ahead log holds the batch. Without any,
        the request that published the batch has one for all of it."""
        parents = [(delta, parent) for delta, text in traceparents if (parent := parse_traceparent(text)) is not None]
        if not parents and (request := current_context()) is not None:
            parents = [(0, request)]
        for delta, parent in parents:
            offset = base_offset + delta
            span = self.tracer.begin(
                f"append {name.topic}",
                parent,
                kind=SpanKind.SERVER,
                attributes=_attributes(name, offset),
                start_ns=start_ns,
            )
            if span is None:
                continue
            self._follow(partition, offset, span)
            wal = self.tracer.begin("write-ahead log", span.context)
            commit.add_done_callback(partial(self._committed, span, wal))

    def _committed(self, span: Span, wal: Span | None, commit: "asyncio.Future[None]") -> None:
        error = "" if not commit.cancelled() and commit.exception() is None else "AppendFailed"
        self.tracer.end(wal, error=error)
        self.tracer.end(span, error=error)
        self._observe("wal", _Followed(span.context, span.start_ns))

    def flushed(self, name: TopicPartition, partition: PartitionId, start: int, end: int, *, start_ns: int) -> None:
        """The records of [start, end) are in a registered segment; the flush began at `start_ns`."""
        for offset, record in self._between(partition, start, end):
            span = self.tracer.begin(
                f"flush {name.topic}", record.context, attributes=_attributes(name, offset), start_ns=start_ns
            )
            self.tracer.end(span)
            self._observe("flush", record)

    def fetched(self, name: TopicPartition, partition: PartitionId, start: int, end: int, *, start_ns: int) -> None:
        """The records of [start, end) were read for a client."""
        for count, (offset, record) in enumerate(self._between(partition, start, end)):
            if count == SPANS_PER_FETCH:
                return
            reader = current_context()
            span = self.tracer.begin(
                f"fetch {name.topic}",
                record.context,
                kind=SpanKind.SERVER,
                attributes=_attributes(name, offset),
                links=() if reader is None else (reader,),
                start_ns=max(start_ns, record.appended_ns),
            )
            self.tracer.end(span)
            self._observe("fetch", record)

    def processed(
        self, pipeline: str, name: TopicPartition, partition: PartitionId, start: int, end: int, *, batch_ms: int
    ) -> None:
        """A pipeline has read the records of [start, end), which it may have said before."""
        key = (pipeline, partition)
        start = max(start, self._processed.get(key, 0))
        if start >= end or partition not in self._followed:
            return
        if key not in self._processed and len(self._processed) >= PROCESSED_KEPT:
            del self._processed[next(iter(self._processed))]
        self._processed[key] = end
        began_ns = self.tracer.now_ns() - batch_ms * 1_000_000
        for offset, record in self._between(partition, start, end):
            span = self.tracer.begin(
                f"pipeline {pipeline}",
                record.context,
                kind=SpanKind.CONSUMER,
                attributes=_attributes(name, offset),
                start_ns=max(began_ns, record.appended_ns),
            )
            self.tracer.end(span)
            self._observe("pipeline", record)

    def _between(self, partition: PartitionId, start: int, end: int) -> Iterator[tuple[int, _Followed]]:
        followed = self._followed.get(partition)
        return iter(()) if followed is None else followed.between(start, end)

    def _follow(self, partition: PartitionId, offset: int, span: Span) -> None:
        if len(self._order) >= self.tracer.settings.max_records:
            self._forget_oldest()
        followed = self._followed.setdefault(partition, _Partition())
        followed.offsets.append(offset)
        followed.records.append(_Followed(span.context, span.start_ns))
        self._order.append(partition)

    def _forget_oldest(self) -> None:
        partition = self._order.popleft()
        followed = self._followed[partition]
        del followed.offsets[0], followed.records[0]
        if not followed.offsets:
            del self._followed[partition]

    def _observe(self, stage: str, record: _Followed) -> None:
        seconds = max(0.0, (self.tracer.now_ns() - record.appended_ns) / 1e9)
        self._seconds.labels(stage).observe(seconds, exemplar={"trace_id": record.context.trace_id})


class _SpanCounts(Collector):
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def collect(self) -> Iterator[Metric]:
        for name, about, value in (
            ("exported", "Spans that the collector has taken.", self._tracer.exported),
            ("dropped", "Spans beyond the limits, and those of failed requests.", self._tracer.dropped),
        ):
            yield CounterMetricFamily(f"streamhouse_tracing_spans_{name}", about, value=value)

    def describe(self) -> Iterator[Metric]:
        return iter(())


def _attributes(name: TopicPartition, offset: int) -> dict[str, str | int]:
    """OpenTelemetry's names for messaging."""
    return {
        "messaging.system": "kafka",
        "messaging.destination.name": name.topic,
        "messaging.destination.partition.id": str(name.partition),
        "messaging.kafka.offset": offset,
    }
