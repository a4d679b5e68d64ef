"""What tests of compaction share: executors in this process, logs and what Kafka's rules leave of them, who reads."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from streamhouse.clock import SystemClock
from streamhouse.spark.agents.run_replacements import MaintenanceClient, MaintenancePlan
from streamhouse.spark.datasource.split_planner import InputSplit
from streamhouse.spark.datasource.split_reader import ReadTask
from streamhouse.spark.maintenance.compaction_job import CompactionResult, compact
from streamhouse.spark.maintenance.compaction_scan import Edges, markers_to_keep
from streamhouse.spark.maintenance.retained_offsets import OffsetGroup, RetainedOffsets, ScanKeys
from streamhouse.spark.maintenance.segment_rewrite import IoStats
from tests.spark.maintenance.support import QUICK, ask, plan
from tests.support.agent import LiveAgent

STILL = (*QUICK, "--set", "compaction.interval_s=1h")
"""Agents leave compaction to jobs."""
DAY_MS = 86_400_000


class Bootstrapped(Protocol):
    """Whoever serves Kafka clients."""

    @property
    def bootstrap(self) -> str: ...


class Seen(NamedTuple):
    """A record as readers get it; JSON's texts without their quotes."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None


class Later(SystemClock):
    """A clock that is ahead."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms


@contextmanager
def agents_ahead(ahead_ms: int) -> Iterator[None]:
    """The agents' clocks say that it is so much later."""

    async def told_later(self: MaintenanceClient, topic: str) -> MaintenancePlan:
        result = await original(self, topic)
        return msgspec.structs.replace(result, now_ms=(result.now_ms or 0) + ahead_ms)

    original = MaintenanceClient.plan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaintenanceClient, "plan", told_later)
        yield


def compact_later(agent: LiveAgent, topic: str, ahead_ms: int, **settings: Any) -> CompactionResult:
    """So much later, by every clock."""
    with agents_ahead(ahead_ms):
        return compact(topic, agents=agent.http, executors=HereExecutors(), clock=Later(ahead_ms), **settings)


@dataclass
class HereSurvivors:
    latest: dict[int, list[int]]
    before: Callable[[OffsetGroup], None]

    def rewrite(self, expected: OffsetGroup, act: Callable[[bytes], bytes]) -> bytes:
        self.before(expected)
        offsets = [each for each in self.latest.get(expected.partition, ()) if expected.start <= each < expected.end]
        return act(np.array(offsets, np.int64).tobytes())


class HereExecutors:
    """The tasks of Spark as calls, one after the other; `before` is called before each that rewrites."""

    at_once = 1

    def __init__(self, before: Callable[[OffsetGroup], None] = lambda bounds: None) -> None:
        self._before = before
        self.rewritten: list[OffsetGroup] = []

    def find(
        self,
        splits: Sequence[InputSplit],
        bounds: Sequence[OffsetGroup],
        *,
        task: ReadTask,
        records: int,
        on_read: Callable[[int], None],
    ) -> tuple[RetainedOffsets, IoStats]:
        assert list(bounds) == sorted(bounds)
        edges: Edges = []
        read = ScanKeys(splits=splits, task=task, add_costs=lambda gets, read_bytes: None, add_edges=edges.extend)
        numbers = pa.RecordBatch.from_arrays([pa.array(range(len(splits)), pa.int64())], names=["id"])
        latest: dict[tuple[int, int, int], int] = {}
        for batch in read([numbers]):
            for partition, high, low, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                latest[partition, high, low] = max(offset, latest.get((partition, high, low), -1))
        results: dict[int, list[int]] = markers_to_keep(edges)
        for (partition, _, _), offset in sorted(latest.items(), key=lambda item: item[1]):
            results.setdefault(partition, []).append(offset)

        results = {partition: sorted(set(offsets)) for partition, offsets in results.items()}

        def note(expected: OffsetGroup) -> None:
            self.rewritten.append(expected)
            self._before(expected)

        return HereSurvivors(results, note), IoStats()

    def cancel(self) -> None: ...


class NoExecutors:
    """For passes that must find nothing to do."""

    at_once = 1

    def find(
        self,
        splits: Sequence[InputSplit],
        bounds: Sequence[OffsetGroup],
        *,
        task: ReadTask,
        records: int,
        on_read: Callable[[int], None],
    ) -> tuple[RetainedOffsets, IoStats]:
        raise AssertionError(f"there is nothing to do, but {len(bounds)} groups")

    def cancel(self) -> None: ...


def create(agent: LiveAgent, topic: str, *, partitions: int = 1, **settings: str) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    ask(agent, "/v1/topics", {"name": topic, "partitions": partitions, "settings": named})


def put(
    agent: LiveAgent,
    topic: str,
    *pairs: tuple[str | None, str | None],
    partition: int = 0,
    timestamp_ms: int | None = None,
) -> None:
    """Records in a run of their own."""
    records = [
        {"key": key, "value": value, "partition": partition, "timestamp_ms": timestamp_ms} for key, value in pairs
    ]
    ask(agent, f"/v1/topics/{topic}/records", {"records": records, "acks": "stored"})


def produce(
    agent: LiveAgent, topic: str, pairs: Iterable[tuple[bytes, bytes | None]], *, partitions: int
) -> dict[bytes, tuple[int, bytes | None]]:
    """Send updates as fast as may be; the latest of each key and its partition, whose order is that of the keys'
    hashes."""
    producer = Producer(
        {
            "bootstrap.servers": agent.bootstrap,
            "linger.ms": 20,
            "batch.size": 262144,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 200_000,
        }
    )
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    for key, value in pairs:
        partition = sum(key) % partitions
        while True:
            try:
                producer.produce(topic, value, key, partition=partition)
                break
            except BufferError:
                producer.poll(0.05)
        latest[key] = (partition, value)
    assert producer.flush(60) == 0
    return latest


def read_all(agent: Bootstrapped, topic: str, *, partitions: int = 1, isolation: str = "read_committed") -> list[Seen]:
    """Everything from zero to where the log ends, as a Kafka client gets it."""
    consumer = Consumer(
        {
            "bootstrap.servers": agent.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 10,
        }
    )
    results: list[Seen] = []
    try:
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])
        ended: set[int | None] = set()
        while len(ended) < partitions:
            message = consumer.poll(30)
            assert message is not None, "nothing comes"
            if (error := message.error()) is None:
                place, key, value = (message.partition(), message.offset()), message.key(), message.value()
                assert key is not None
                results.append(Seen(place[0] or 0, place[1] or 0, key, value and value.strip(b'"')))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
    finally:
        consumer.close()
    return results


def left_by_kafka(log: Iterable[Seen]) -> list[Seen]:
    """The model: the latest of each key, where it was."""
    latest: dict[tuple[int, bytes], Seen] = {}
    for each in sorted(log):
        latest[each.partition, each.key] = each
    return sorted(latest.values())


def final(records: Iterable[Seen]) -> dict[bytes, bytes]:
    """What a reader knows in the end: each key's value, without those that were deleted."""
    known: dict[bytes, bytes | None] = {each.key: each.value for each in sorted(records)}
    return {key: value for key, value in known.items() if value is not None}


def cleaned(agent: LiveAgent, topic: str) -> dict[int, int]:
    return {each.partition: each.cleaned_to for each in plan(agent, topic).partitions}
