"""Measure: what a question put to a broker looks like, and the words its answers are given in.

Data path   `peer` -> **measure** -> `runner` -> `results`
Owns        the catalog of metrics with their units and directions, and the sizes of a run
Leaves      asking to the modules that implement `Measure`; repeating and alternating to `runner`
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from benchmarks.batches import Codec
from benchmarks.peer import Peer
from benchmarks.raw_client import BrokerRefused, Connection, create_topic, delete_topic, topic_is_served

TOPIC_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number's unit, which way is better, and whether tables show it."""

    unit: str
    better: Literal["higher", "lower"]
    shown: bool = True


METRICS: Final[dict[str, Metric]] = {
    "records": Metric(unit="records/s", better="higher"),
    "bytes": Metric(unit="MB/s", better="higher"),
    "cpu": Metric(unit="CPU s/GB", better="lower"),
    "requests": Metric(unit="requests/s", better="higher"),
    "cpu per request": Metric(unit="CPU µs", better="lower"),
    "p50": Metric(unit="ms", better="lower"),
    "p99": Metric(unit="ms", better="lower"),
    "p99.9": Metric(unit="ms", better="lower"),
    "client busy": Metric(unit="cores", better="lower", shown=False),
    "start-up": Metric(unit="s", better="lower"),
    "memory": Metric(unit="MB", better="lower"),
    # of clusters
    "ended": Metric(unit="s", better="lower"),
    "least": Metric(unit="ms", better="lower"),
    "median": Metric(unit="ms", better="lower"),
    "longest": Metric(unit="ms", better="lower"),
    "samples": Metric(unit="partitions", better="higher"),
    "failed": Metric(unit="failed records", better="lower"),
    "sent again": Metric(unit="requests sent again", better="lower"),
    "settled": Metric(unit="s", better="lower"),
    "store cpu": Metric(unit="S3 server CPU s/GB", better="lower"),
    "metadata cpu": Metric(unit="PostgreSQL CPU s/GB", better="lower"),
    "agent busy": Metric(unit="cores of an agent", better="lower"),
    "put": Metric(unit="PUT/min", better="lower"),
    "get": Metric(unit="GET/min", better="lower"),
    "other": Metric(unit="other/min", better="lower"),
    "per GB": Metric(unit="requests/GB", better="lower"),
    "transactions": Metric(unit="transactions/s", better="lower"),
    "cpu share": Metric(unit="agents' cores", better="lower"),
    "cpu of the broker": Metric(unit="CPU s", better="lower"),
    # of producers with transactions
    "commits": Metric(unit="commits/s", better="higher"),
    "of idempotent": Metric(unit="of the idempotent rate", better="higher"),
    # of Spark
    "events": Metric(unit="events/s", better="higher"),
    "events per core": Metric(unit="events/s per core", better="higher"),
    "busy": Metric(unit="cores busy", better="lower"),
    "spark cpu": Metric(unit="CPU s/M records", better="lower"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One number of one run."""

    scenario: str
    metric: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A latency distribution: values in milliseconds at evenly spaced shares of the samples, ascending."""

    scenario: str
    quantiles_ms: list[float]


Answer = Reading | Curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A kind of traffic: how large, over how many partitions, compressed how."""

    record_bytes: int
    partitions: int
    codec: Codec

    def __str__(self) -> str:
        size = f"{self.record_bytes} B" if self.record_bytes < 1000 else f"{self.record_bytes // 1000} KB"
        return f"{size}, {self.partitions} partition{'s' * (self.partitions > 1)}, {self.codec}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The sizes of a run. Each part ends at its bytes or at its time, whichever comes first."""

    repetitions: int
    broker_for_each_measure: bool
    loads: tuple[Load, ...]
    load_bytes: int
    load_max_s: float
    warm_up_s: float
    short_warm_up_s: float
    latency_s: float
    client_loads: tuple[Load, ...]
    client_s: float
    idle_connections: int
    settle_max_s: float
    cost_bytes: int
    cost_max_s: float
    patience_s: float
    partition_counts: tuple[int, ...]
    cold_bytes: int
    group_members: int


ALL_LOADS: Final = tuple(
    Load(record_bytes=size, partitions=partitions, codec=codec)
    for size in (100, 1000)
    for partitions in (1, 16)
    for codec in ("none", "lz4")
)
FULL: Final = Plan(
    repetitions=3,
    broker_for_each_measure=True,
    loads=ALL_LOADS,
    load_bytes=400_000_000,
    load_max_s=3.0,
    warm_up_s=8.0,
    short_warm_up_s=4.0,
    latency_s=5.0,
    client_loads=(ALL_LOADS[0], ALL_LOADS[6]),
    client_s=2.0,
    idle_connections=1000,
    settle_max_s=2.0,
    cost_bytes=1_500_000_000,
    cost_max_s=7.0,
    patience_s=60.0,
    partition_counts=(1, 16, 288, 1000, 10_000),
    cold_bytes=1_500_000_000,
    group_members=100,
)
QUICK: Final = Plan(
    repetitions=1,
    broker_for_each_measure=False,
    loads=(ALL_LOADS[0], ALL_LOADS[3], ALL_LOADS[4]),
    load_bytes=200_000_000,
    load_max_s=1.5,
    warm_up_s=2.0,
    short_warm_up_s=1.5,
    latency_s=2.5,
    client_loads=(ALL_LOADS[0],),
    client_s=1.5,
    idle_connections=1000,
    settle_max_s=1.0,
    cost_bytes=400_000_000,
    cost_max_s=4.0,
    patience_s=5.0,
    partition_counts=(1, 100),
    cold_bytes=300_000_000,
    group_members=20,
)


class Measure(Protocol):
    """A question, asked of a broker that was started for it alone."""

    name: str
    question: str

    def ask(self, peer: Peer, plan: Plan) -> Iterator[Answer]: ...


@contextmanager
def topic(peer: Peer, name: str, partitions: int) -> Iterator[str]:
    """A topic that is served when the block begins and deleted when it ends."""
    serve(peer, name, partitions)
    yield name
    with peer.connect() as connection:
        delete_topic(connection, name)


def serve(peer: Peer, name: str, partitions: int) -> None:
    """Create a topic and wait until it is served."""
    with peer.connect() as connection:
        create_topic(connection, name, partitions)
        _wait_until_served(connection, name, partitions)


def _wait_until_served(connection: Connection, name: str, partitions: int) -> None:
    deadline = time.perf_counter() + TOPIC_TIMEOUT_S
    while not topic_is_served(connection, name, partitions):
        if time.perf_counter() > deadline:
            raise BrokerRefused(f"topic not served in {TOPIC_TIMEOUT_S:.0f} s; topic={name}")
        time.sleep(0.01)
