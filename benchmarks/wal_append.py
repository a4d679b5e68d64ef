"""How fast is the disk WAL? Appends and megabytes per second, and the latency of an append, for the three policies.

    .venv/bin/python benchmarks/wal_append.py [--dir DIR] [--seconds S]

idle     one appender that waits for each append before the next: the latency an unloaded agent adds
loaded   many appenders, each waiting for its own append: how group commit shares writes and syncs
"""

import argparse
import asyncio
import random
import shutil
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from streamhouse.broker.wal.disk_wal import DiskWal, open_disk_wal
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import WalSettings
from streamhouse.format.batch import Buffer
from streamhouse.format.wal_file import WalEntry
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId
from streamhouse.stores.local_files import AppendFile, LocalFiles

PARTITIONS = [PartitionId(TopicId(uuid.UUID(int=1)), number) for number in range(16)]
POLICIES = ("never", "interval", "always")
LOADS = (("idle", 1, 200), ("idle", 1, 16_384), ("loaded", 1000, 200), ("loaded", 256, 16_384), ("loaded", 32, 1 << 20))


class CountedFile:
    def __init__(self, inner: AppendFile, counted: "CountedFiles") -> None:
        self._inner = inner
        self._counted = counted
        self.sync, self.close = inner.sync, inner.close

    def write(self, buffers: Sequence[Buffer], trailer: Buffer = b"") -> None:
        self._counted.writes += 1
        self._inner.write(buffers, trailer)


class CountedFiles(LocalFiles):
    writes = 0

    def create(self, path: Path) -> AppendFile:
        return CountedFile(super().create(path), self)

    def write_over(self, path: Path) -> AppendFile:
        return CountedFile(super().write_over(path), self)


@dataclass
class Result:
    latencies: list[float]
    seconds: float
    cpu_seconds: float
    writes: int


async def appender(wal: DiskWal, number: int, batch: bytes, until: float, latencies: list[float]) -> None:
    partition = PARTITIONS[number % len(PARTITIONS)]
    offset = 0
    while (start := time.perf_counter()) < until:
        await asyncio.shield(wal.append((WalEntry(partition, Epoch(1), offset, offset + 1, batch),)))
        latencies.append(time.perf_counter() - start)
        offset += 1


async def truncator(wal: DiskWal) -> None:
    """Everything counts as flushed after a second, so that the disk does not fill."""
    while True:
        await asyncio.sleep(1)
        await wal.truncate(dict.fromkeys(PARTITIONS, 2**62))


async def measure(root: Path, policy: str, appenders: int, batch_bytes: int, seconds: float) -> Result:
    files = CountedFiles()
    settings = WalSettings(fsync=policy)  # type: ignore[arg-type]
    session = SessionId(f"bench-{random.randrange(1 << 60)}")
    wal = await open_disk_wal(root, session, settings, files=files, clock=SystemClock(), ids=Ids())
    truncating = asyncio.create_task(truncator(wal))
    batch, latencies = random.randbytes(batch_bytes), list[float]()
    started, cpu = time.perf_counter(), time.process_time()
    until = started + seconds
    await asyncio.gather(*(appender(wal, number, batch, until, latencies) for number in range(appenders)))
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    truncating.cancel()
    await wal.aclose(remove=True)
    return Result(latencies, took, cpu, files.writes)


def show(policy: str, load: str, appenders: int, batch_bytes: int, result: Result) -> None:
    ordered = sorted(result.latencies)
    appends = len(ordered)
    p50, p99 = ordered[appends // 2] * 1000, ordered[min(appends - 1, appends * 99 // 100)] * 1000
    megabytes = appends * batch_bytes / 1e6
    print(
        f"{policy:9} {load:7} {appenders:6} {batch_bytes:9} {appends / result.seconds:11,.0f} "
        f"{megabytes / result.seconds:9,.1f} {p50:9.3f} {p99:9.3f} {appends / result.writes:12.1f} "
        f"{result.cpu_seconds / appends * 1e6:10.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="where to write; default: the system's temporary directory")
    parser.add_argument("--seconds", type=float, default=2.0, help="time per line")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="wal-bench-", dir=options.dir))
    print("policy    load    append batch_bytes   appends/s      MB/s    p50_ms    p99_ms appends/write cpu_us/app")
    try:
        for policy in POLICIES:
            for load, appenders, batch_bytes in LOADS:
                result = uvloop.run(measure(root, policy, appenders, batch_bytes, options.seconds))
                show(policy, load, appenders, batch_bytes, result)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
