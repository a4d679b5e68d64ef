"""What tests of maintenance share: tasks in this process, a topic in many small pieces, who reads it as Kafka does."""

import asyncio
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndTimestamp

from streamhouse.spark.agents.run_replacements import MaintenancePlan, merge_pages
from tests.support.agent import LiveAgent

QUICK = ("--set", "flush.age_s=0.005", "--set", "flush.check_s=0.01", "--set", "compaction.merge_runs=0")
"""Every record is soon in an object of its own, and stays there."""
HASTY = (
    *QUICK,
    *("--set", "retention.grace_s=1", "--set", "retention.check_s=0.2"),
    *("--set", "retention.orphan_age_s=4", "--set", "retention.sweep_s=0.2"),
)
"""And what nobody names is soon gone."""


class HereTasks:
    """Tasks as calls; `before` is called with the number of each."""

    def __init__(self, before: Callable[[int], None] = lambda number: None) -> None:
        self.started = 0
        self._before = before

    def run(self, task: Callable[[bytes], bytes], items: Iterable[bytes]) -> Iterator[bytes]:
        for item in items:
            self._before(self.started)
            self.started += 1
            yield task(item)


class NoTasks:
    """For jobs that must find nothing to do."""

    def run(self, task: Callable[[bytes], bytes], items: Iterable[bytes]) -> Iterator[bytes]:
        raise AssertionError(f"there is nothing to do, but {len(list(items))} tasks")


def ask(agent: LiveAgent, path: str, body: object | None = None, *, method: str = "POST") -> Any:
    data = None if body is None else msgspec.json.encode(body)
    request = urllib.request.Request(f"http://{agent.http}{path}", data=data, method=method)
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as response:
        content = response.read()
    return msgspec.json.decode(content) if content else None


def create(agent: LiveAgent, topic: str, *, partitions: int = 1, retention_ms: int = -1) -> None:
    settings = {"retention.ms": str(retention_ms)}
    ask(agent, "/v1/topics", {"name": topic, "partitions": partitions, "settings": settings})


def publish(agent: LiveAgent, topic: str, values: Iterable[object], *, partitions: int = 1) -> None:
    """A record of each value for every partition; they are in one object of the store when this returns."""
    records = [
        {"key": f"k{value}", "value": f"{partition}-{value}", "partition": partition}
        for value in values
        for partition in range(partitions)
    ]
    ask(agent, f"/v1/topics/{topic}/records", {"records": records, "acks": "stored"})


def trickle(agent: LiveAgent, topic: str, flushes: int, *, partitions: int = 1, start: int = 0) -> None:
    for number in range(start, start + flushes):
        publish(agent, topic, [number], partitions=partitions)


def plan(agent: LiveAgent, topic: str) -> MaintenancePlan:
    pages: list[MaintenancePlan] = []
    while not pages or pages[-1].next is not None:
        cursor = pages[-1].next if pages else None
        response = ask(agent, "/v1/maintenance/plan", {"topic": topic, "cursor": cursor})
        pages.append(msgspec.convert(response, MaintenancePlan))
    return msgspec.structs.replace(pages[-1], partitions=merge_pages(pages))


def run_count(agent: LiveAgent, topic: str) -> int:
    return sum(len(each.runs) for each in plan(agent, topic).partitions)


def objects_of(agent: LiveAgent, topic: str) -> set[str]:
    return {run.key for each in plan(agent, topic).partitions for run in each.runs}


Seen = tuple[int, int, int, bytes | None, bytes | None]


async def consumed(agent: LiveAgent, topic: str, count: int) -> list[Seen]:
    """Everything, as a Kafka client gets it: partition, offset, time, key, value."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=agent.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        results: list[Seen] = []
        async with asyncio.timeout(60):
            while len(results) < count:
                record = await consumer.getone()
                results.append((record.partition, record.offset, record.timestamp, record.key, record.value))
        return sorted(results)
    finally:
        await consumer.stop()


async def at_time(agent: LiveAgent, topic: str, times: dict[int, int]) -> dict[int, OffsetAndTimestamp | None]:
    consumer = AIOKafkaConsumer(bootstrap_servers=agent.bootstrap)
    await consumer.start()
    try:
        result = await consumer.offsets_for_times({TopicPartition(topic, each): at for each, at in times.items()})
        return {place.partition: at for place, at in result.items()}
    finally:
        await consumer.stop()


async def idempotent_producer(agent: LiveAgent) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(bootstrap_servers=agent.bootstrap, enable_idempotence=True)
    await producer.start()
    return producer
