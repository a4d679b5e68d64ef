"""What does the Python client cost? Records a second through `Client` and `SyncClient`, beside aiokafka by itself.

    .venv/bin/python -m benchmarks.python_client [--seconds N] [--repeats N] [--json]

produce   records of 100 B without keys to 3 partitions, `acks=all`, idempotent, handed over as fast as they are taken;
          until all are acknowledged
send      one record after the other, each waited for: how long a lone record takes (median)
consume   most of what was produced, record by record, connecting included
group     the same as a member of a group, committing what is done

One agent in a process of its own on loopback, client and agent on the same machine; clients take turns, best of the
repeats; the CPU is the client's alone. aiokafka is given the same batch size, and a linger of 5 ms: without one it
sends a record a request.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from streamhouse import Client, SyncClient
from tests.support.agent import LiveAgent

VALUE = b"x" * 100
PARTITIONS = 3
SENDS = 200
CODECS = ("none", "lz4", "zstd")


class Rates(NamedTuple):
    per_s: float
    per_cpu_s: float


class Rate:
    """Records and the time they took: on the wall, and of this process's CPUs."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.perf_counter(), time.process_time()
        self.records = 0

    def goes_on(self, seconds: float) -> bool:
        return bool(self.records % 1000) or time.perf_counter() - self._began < seconds

    def rates(self) -> Rates:
        """Per second, and per CPU second, which a crowded machine spoils less."""
        passed_s, cpu_s = time.perf_counter() - self._began, time.process_time() - self._cpu_began
        return Rates(self.records / passed_s, self.records / cpu_s)


async def client_produce(agent: LiveAgent, topic: str, codec: Any, seconds: float) -> Rates:
    async with Client(agent.http) as client, client.producer(topic, compression=codec) as producer:
        await producer.send(VALUE)
        rate = Rate()
        while rate.goes_on(seconds):
            await producer.enqueue(VALUE)
            rate.records += 1
        await producer.flush()
        return rate.rates()


def sync_produce(agent: LiveAgent, topic: str, codec: Any, seconds: float) -> Rates:
    with SyncClient(agent.http) as client, client.producer(topic, compression=codec) as producer:
        producer.send(VALUE)
        rate = Rate()
        while rate.goes_on(seconds):
            producer.enqueue(VALUE)
            rate.records += 1
        producer.flush()
        return rate.rates()


async def aiokafka_produce(agent: LiveAgent, topic: str, codec: str, seconds: float) -> Rates:
    async with AIOKafkaProducer(
        bootstrap_servers=agent.bootstrap,
        enable_idempotence=True,
        max_batch_size=512 * 1024,
        linger_ms=5,
        compression_type=None if codec == "none" else codec,
    ) as producer:
        await producer.send_and_wait(topic, VALUE)
        rate = Rate()
        while rate.goes_on(seconds):
            await producer.send(topic, VALUE)
            rate.records += 1
        await producer.flush()
        return rate.rates()


async def client_send(agent: LiveAgent, topic: str) -> float:
    async with Client(agent.http) as client, client.producer(topic) as producer:
        return await median_ms(lambda: producer.send(VALUE))


async def aiokafka_send(agent: LiveAgent, topic: str) -> float:
    async with AIOKafkaProducer(bootstrap_servers=agent.bootstrap, enable_idempotence=True) as producer:
        return await median_ms(lambda: producer.send_and_wait(topic, VALUE))


async def median_ms(send: Callable[[], Awaitable[object]]) -> float:
    taken = []
    for _ in range(SENDS):
        began = time.perf_counter()
        await send()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1000


async def client_consume(agent: LiveAgent, topic: str, number: int) -> Rates:
    rate = Rate()
    async with Client(agent.http) as client:
        async for _ in client.consume(topic, limit=number):
            rate.records += 1
        return rate.rates()


def sync_consume(agent: LiveAgent, topic: str, number: int) -> Rates:
    rate = Rate()
    with SyncClient(agent.http) as client:
        for _ in client.consume(topic, limit=number):
            rate.records += 1
        return rate.rates()


async def client_group(agent: LiveAgent, topic: str, number: int) -> Rates:
    rate = Rate()
    async with Client(agent.http) as client, client.consumer(topic, group=f"g-{time.time_ns()}") as consumer:
        async for _ in consumer:
            rate.records += 1
            if rate.records == number:
                break
        return rate.rates()


async def aiokafka_consume(agent: LiveAgent, topic: str, number: int, group: str | None = None) -> Rates:
    rate = Rate()
    async with AIOKafkaConsumer(
        topic,
        bootstrap_servers=agent.bootstrap,
        auto_offset_reset="earliest",
        group_id=group,
        max_partition_fetch_bytes=4 * 1024 * 1024,
    ) as consumer:
        async for _ in consumer:
            rate.records += 1
            if rate.records == number:
                break
        return rate.rates()


def measured(agent: LiveAgent, seconds: float) -> dict[str, Rates]:
    """One round of everything that is a rate."""
    found: dict[str, Rates] = {}
    for codec in CODECS:
        found[f"produce {codec} aiokafka"] = asyncio.run(aiokafka_produce(agent, "bench", codec, seconds))
        found[f"produce {codec} Client"] = asyncio.run(client_produce(agent, "bench", codec, seconds))
        found[f"produce {codec} SyncClient"] = sync_produce(agent, "bench", codec, seconds)
    number = int(sum(rate.per_s for rate in found.values()) * seconds * 0.8)
    found["consume aiokafka"] = asyncio.run(aiokafka_consume(agent, "bench", number))
    found["consume Client"] = asyncio.run(client_consume(agent, "bench", number))
    found["consume SyncClient"] = sync_consume(agent, "bench", number)
    found["group aiokafka"] = asyncio.run(aiokafka_consume(agent, "bench", number, f"a-{time.time_ns()}"))
    found["group Client"] = asyncio.run(client_group(agent, "bench", number))
    return found


def waits(agent: LiveAgent) -> dict[str, float]:
    """How long a lone record takes, in milliseconds."""
    return {
        "send aiokafka": asyncio.run(aiokafka_send(agent, "single")),
        "send Client": asyncio.run(client_send(agent, "single")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LiveAgent(Path(folder) / "data") as agent:
        with SyncClient(agent.http) as client:
            client.topics.create("bench", partitions=PARTITIONS)
            client.topics.create("single")
        rounds = [measured(agent, args.seconds) for _ in range(args.repeats)]
        waited = [waits(agent) for _ in range(args.repeats)]
    rates = {name: Rates(*map(max, *(each[name] for each in (*rounds, *rounds)))) for name in rounds[0]}
    sends = {name: min(each[name] for each in waited) for name in waited[0]}
    if args.json:
        print(json.dumps({name: rate._asdict() for name, rate in rates.items()} | sends, indent=2))
        return
    for name, rate in rates.items():
        print(f"{name:<28} {rate.per_s:>12,.0f} records/s {rate.per_cpu_s:>12,.0f} records/CPU s")
    for name, wait_ms in sends.items():
        print(f"{name:<28} {wait_ms:>12,.2f} ms")


if __name__ == "__main__":
    main()
