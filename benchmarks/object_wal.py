"""What does the object WAL cost? The wait from append to ack, requests, and CPU per megabyte.

    .venv/bin/python -m benchmarks.object_wal [--seconds S] [--memory-only]

memory   the product's store in memory: what the log itself costs
slow     the same, with PUTs that take 20 ms, as those of a cloud
s3       SeaweedFS on loopback, with the wrappers that every bucket has

idle     one appender that waits for each append before the next: the latency an unloaded agent adds
steady   many appenders who append once every 100 ms: what windows make of them
loaded   many appenders, each waiting for its own append
"""

import argparse
import asyncio
import random
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from prometheus_client import CollectorRegistry

from streamhouse.broker.wal.base import WalRequestStats
from streamhouse.broker.wal.object_wal import ObjectWal
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import WalSettings
from streamhouse.format.wal_file import WalEntry
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId
from streamhouse.stores.objects.base import Buffers, ObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.stores.objects.open import open_object_store
from tests.support.s3 import RealS3

PARTITIONS = [PartitionId(TopicId(uuid.UUID(int=1)), number) for number in range(1000)]
# name, appenders, bytes of a batch, seconds between the appends of one appender
LOADS = (
    ("idle", 1, 1_000, 0.0),
    ("steady", 1000, 1_000, 0.1),
    ("loaded", 1000, 1_000, 0.0),
    ("loaded", 256, 16_384, 0.0),
    ("loaded", 32, 1 << 20, 0.0),
)


class SlowStore(MemoryObjectStore):
    async def put_new(self, key: str, body: Buffers) -> None:
        await asyncio.sleep(0.02)
        await super().put_new(key, body)


@dataclass
class Result:
    latencies: list[float]
    seconds: float
    cpu_seconds: float
    costs: WalRequestStats


async def appender(
    wal: ObjectWal, number: int, batch: bytes, pause_s: float, until: float, latencies: list[float]
) -> None:
    partition = PARTITIONS[number % len(PARTITIONS)]
    await asyncio.sleep(pause_s * random.random())
    offset = 0
    while (start := time.perf_counter()) < until:
        await asyncio.shield(wal.append((WalEntry(partition, Epoch(1), offset, offset + 1, batch),)))
        latencies.append(time.perf_counter() - start)
        offset += 1
        if pause_s:
            await asyncio.sleep(pause_s)


async def truncator(wal: ObjectWal) -> None:
    """Everything counts as flushed, and the mark as stored, after half a second."""
    while True:
        await asyncio.sleep(0.5)
        await wal.truncate(dict.fromkeys(PARTITIONS, 2**62))
        await wal.delete_below(wal.first_retained)


async def measure(store: ObjectStore, appenders: int, batch_bytes: int, pause_s: float, seconds: float) -> Result:
    session = SessionId(f"s-{random.getrandbits(128):032x}")
    wal = ObjectWal(store, session, WalSettings(kind="object"), clock=SystemClock(), ids=Ids())
    truncating = asyncio.create_task(truncator(wal))
    batch, latencies = random.randbytes(batch_bytes), list[float]()
    started, cpu = time.perf_counter(), time.process_time()
    until = started + seconds
    await asyncio.gather(*(appender(wal, number, batch, pause_s, until, latencies) for number in range(appenders)))
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    costs = wal.costs
    truncating.cancel()
    await wal.aclose(remove=True)
    return Result(latencies, took, cpu, costs)


def show(store: str, load: str, appenders: int, batch_bytes: int, result: Result) -> None:
    ordered = sorted(result.latencies)
    appends, costs = len(ordered), result.costs
    p50, p99 = ordered[appends // 2] * 1000, ordered[min(appends - 1, appends * 99 // 100)] * 1000
    megabytes = costs.batch_bytes / 1e6
    print(
        f"{store:7} {load:7} {appenders:6} {batch_bytes:9} {appends / result.seconds:11,.0f} "
        f"{megabytes / result.seconds:9,.1f} {p50:9.3f} {p99:9.3f} {costs.puts / result.seconds:8.1f} "
        f"{costs.puts / megabytes * 1000:9,.0f} {result.cpu_seconds / megabytes * 1000:10.2f} "
        f"{result.cpu_seconds / appends * 1e6:10.1f}"
    )


async def measure_all(name: str, store: ObjectStore, seconds: float) -> None:
    for load, appenders, batch_bytes, pause_s in LOADS:
        show(name, load, appenders, batch_bytes, await measure(store, appenders, batch_bytes, pause_s, seconds))
    await store.aclose()


@contextmanager
def s3() -> Iterator[ObjectStore]:
    with tempfile.TemporaryDirectory(prefix="object-wal-") as folder, RealS3(Path(folder)) as server:
        server.create_bucket("bench")
        yield open_object_store(
            "s3://bench/wal",
            clock=SystemClock(),
            ids=Ids(),
            registry=CollectorRegistry(),
            environ=server.environment,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="time per line")
    parser.add_argument("--memory-only", action="store_true", help="without a server")
    options = parser.parse_args()
    print(
        "store   load    append batch_bytes   appends/s      MB/s    p50_ms    p99_ms   puts/s   puts/GB  cpu_ms/MB "
        "cpu_us/app"
    )
    uvloop.run(measure_all("memory", MemoryObjectStore(SystemClock()), options.seconds))
    uvloop.run(measure_all("slow", SlowStore(SystemClock()), options.seconds))
    if not options.memory_only:
        with s3() as store:
            uvloop.run(measure_all("s3", store, options.seconds))


if __name__ == "__main__":
    main()
