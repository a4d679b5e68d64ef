"""Client metrics (KIP-714): which metrics clients are asked for, and what they pushed, added up over all clients.

Data path   GetTelemetrySubscriptions, PushTelemetry -> **client_metrics** -> /metrics
Owns        the subscription; when each client may ask and push; the sums, by metric and client software
Leaves      bytes to `otlp_metrics`, codes of Kafka for requests to the handlers

Nothing is kept by client, except when it pushed last, of the latest `MAX_CLIENTS`. A client that was forgotten pushes
like a new one, as after a move to another agent.
"""

import asyncio
import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias
from uuid import UUID

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from streamhouse.clock import Clock, Ids
from streamhouse.config import KafkaSettings
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.otlp_metrics import Point

MAX_CLIENTS: Final = 10_000
MAX_VALUE: Final = float(1 << 63)
EVERYTHING: Final = "*"
UNNAMED: Final = "unknown"
_LEGAL: Final = re.compile(r"[A-Za-z0-9_.\-]{1,200}")
_MAY_ASK_AGAIN: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})


@dataclass(slots=True)
class _Client:
    """When a client asked or pushed last, and what of the two, as Kafka's brokers remember it."""

    last_at: float = -inf
    has_asked: bool = False
    has_ended: bool = False
    last_error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Observations:
    """Values of one metric: how many, and their sum."""

    count: int
    total: float

    def __add__(self, other: "Observations") -> "Observations":
        return Observations(self.count + other.count, self.total + other.total)


PushedSums: TypeAlias = dict[tuple[str, bool], Observations]
"""By metric, and whether its points are increases."""


class ClientMetrics:
    def __init__(self, settings: KafkaSettings, clock: Clock, ids: Ids) -> None:
        self.new_id = ids.uuid
        self.interval_s = settings.client_metrics_interval_s
        prefixes = dict.fromkeys(filter(None, (each.strip() for each in settings.client_metrics.split(","))))
        self.prefixes = ("",) if EVERYTHING in prefixes else tuple(prefixes)
        """Prefixes of the metrics that clients push; one empty prefix means all."""
        self.subscription_id = zlib.crc32(repr((self.prefixes, self.interval_s)).encode()) >> 1
        self.reading = asyncio.Lock()
        """Held while a large push is read: one at a time, however many clients push."""
        self._limit = settings.client_metrics_series
        self._clock = clock
        self._clients: OrderedDict[UUID, _Client] = OrderedDict()
        self._increases: dict[tuple[str, str], Observations] = {}
        self._observed: dict[tuple[str, str], Observations] = {}
        self._pushes = 0
        self._dropped = 0

    def __repr__(self) -> str:
        return f"<ClientMetrics clients={len(self._clients)} series={self._series}>"

    @property
    def is_on(self) -> bool:
        return bool(self.prefixes)

    @property
    def _series(self) -> int:
        return len(self._increases) + len(self._observed)

    def ask(self, client_id: UUID) -> ErrorCode:
        """A client asks what to push; it may do so once in an interval, or after an error that only this repairs."""
        client, now = self._client(client_id), self._clock.monotonic()
        is_early = now < client.last_at + self.interval_s
        if is_early and client.last_error not in _MAY_ASK_AGAIN:
            return self._result(client, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        client.last_at, client.has_asked = now, True
        return self._result(client, ErrorCode.NONE)

    def admit(self, client_id: UUID, *, subscription_id: int, is_last: bool) -> ErrorCode:
        """A client pushes: once in an interval, at once after it asked, and once more when it ends."""
        client, now = self._client(client_id), self._clock.monotonic()
        if client.has_ended:
            return self._result(client, ErrorCode.INVALID_REQUEST)
        is_early = now < client.last_at + self.interval_s
        if is_early and not client.has_asked and not is_last:
            return self._result(client, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        client.last_at, client.has_asked, client.has_ended = now, False, is_last
        if subscription_id != self.subscription_id:
            return self._result(client, ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        return self._result(client, ErrorCode.NONE)

    def refused(self, client_id: UUID, code: ErrorCode) -> None:
        """Count a push that was rejected."""
        self._result(self._client(client_id), code)

    def summarize(self, points: Iterable[Point]) -> PushedSums:
        """The sums of a push, without what was not asked for and what can't be added. Changes nothing, so that a thread
        may do it."""
        sums: PushedSums = {}
        for metric, is_increase, value in points:
            if not abs(value) < MAX_VALUE or (is_increase and value < 0):  # also NaN
                continue
            known = sums.get((metric, is_increase))
            if known is not None:
                sums[metric, is_increase] = known + Observations(1, value)
            elif _LEGAL.fullmatch(metric) and metric.startswith(self.prefixes):
                sums[metric, is_increase] = Observations(1, value)
        return sums

    def add(self, sums: PushedSums, *, software: str) -> None:
        self._pushes += 1
        for (metric, is_increase), observed in sums.items():
            series, kept = (metric, software or UNNAMED), self._increases if is_increase else self._observed
            known = kept.get(series)
            if known is not None:
                kept[series] = known + observed
            elif self._series < self._limit:
                kept[series] = observed
            else:
                self._dropped += observed.count

    def collect(self) -> Iterator[Metric]:
        labels = ["metric", "software"]
        increases = CounterMetricFamily(
            "streamhouse_client_counter", "Increases of counters that clients pushed.", labels=labels
        )
        for series, each in self._increases.items():
            increases.add_metric(series, each.total)
        observed = SummaryMetricFamily(
            "streamhouse_client_gauge", "Values of gauges that clients pushed.", labels=labels
        )
        for series, each in self._observed.items():
            observed.add_metric(series, count_value=each.count, sum_value=each.total)
        yield from (increases, observed)
        yield CounterMetricFamily("streamhouse_client_pushes", "Pushes of clients that were taken.", self._pushes)
        yield CounterMetricFamily(
            "streamhouse_client_dropped_points", "Points beyond kafka.client_metrics_series.", self._dropped
        )
        yield GaugeMetricFamily("streamhouse_client_instances", "Clients that asked or pushed.", len(self._clients))

    def _client(self, client_id: UUID) -> _Client:
        client = self._clients.setdefault(client_id, _Client())
        self._clients.move_to_end(client_id)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
        return client

    def _result(self, client: _Client, code: ErrorCode) -> ErrorCode:
        client.last_error = code
        return code
