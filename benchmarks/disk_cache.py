"""What is the disk tier worth? Reading blocks from it, beside ranged GETs of a real S3 server.

    .venv/bin/python -m benchmarks.disk_cache [--seconds N] [--folder DIR] [--json]

hit     `DiskTier.get` of a block of 1 MiB that is on the disk: read, checked twice, decoded, in the tier's threads
get     `get_range` of the same bytes from SeaweedFS on loopback, checked and decoded in a thread
put     from `DiskTier.put` until the file is there
start   listing a folder of small files, as at the start of an agent

Both decode blocks as they lie in segments: LZ4 of records that shrink to about 0.4, and blocks stored raw. Files are in
the page cache of the system, as they mostly are after having been written; a disk that has to be touched adds its own
time. The S3 server shares the machine with its client and has no network in between: the real distance is larger.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from streamhouse.broker.segments.block_cache import Block
from streamhouse.broker.segments.disk_cache import DiskBlockCache, open_disk_cache
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import FetchSettings
from streamhouse.format.batch import assign_offset
from streamhouse.format.block import BlockEntry, decode_block
from streamhouse.format.records import Record, build_batch
from streamhouse.format.run_index import decode_run_index
from streamhouse.format.segment import RunInput, encode_segment
from streamhouse.model.names import Epoch, PartitionId, TopicId
from streamhouse.stores.objects.open import open_object_store
from tests.support.s3 import RealS3

BUCKET = "benchmark"
KEY = "segments/one"
BLOCKS = 64
BLOCK_BYTES = 1 << 20
SMALL_FILES = 20_000


def segment(*, shrinks: bool) -> tuple[bytes, list[BlockEntry]]:
    """An object of blocks of a mebibyte, and where they stand."""
    chance, batches, offset = random.Random(1), [], 0
    for _ in range(BLOCKS * 8):
        values = [_value(chance, shrinks=shrinks) for _ in range(128)]
        batch = memoryview(build_batch([Record(key=b"k", value=value, timestamp_ms=offset) for value in values]))
        assign_offset(batch, base_offset=offset, leader_epoch=1)
        batches.append(batch)
        offset += len(values)
    partition = PartitionId(TopicId(Ids().uuid()), 0)
    run = RunInput(partition=partition, epoch=Epoch(1), base=0, end=offset, batches=batches, producers=b"")
    encoded = encode_segment([run], block_bytes=BLOCK_BYTES)
    body, row = b"".join(encoded.body), encoded.layouts[0].run(KEY)
    index = decode_run_index(body[row.index_position : row.index_position + row.index_length], key=KEY)
    return body, list(index.blocks)


def _value(chance: random.Random, *, shrinks: bool) -> bytes:
    if not shrinks:
        return chance.randbytes(1000)
    return json.dumps([{"user": chance.randrange(10**9), "page": "/items", "n": n} for n in range(22)]).encode()


async def timed(call: Callable[[int], Awaitable[object]], *, callers: int, seconds: float) -> tuple[list[float], float]:
    taken, began = list[float](), time.perf_counter()

    async def caller(first: int) -> None:
        number = first
        while time.perf_counter() - began < seconds:
            start = time.perf_counter()
            await call(number)
            taken.append(time.perf_counter() - start)
            number += callers

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return taken, time.perf_counter() - began


async def compare(folder: Path, seconds: float) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    server = RealS3(folder / "s3")
    await asyncio.to_thread(server.start)
    try:
        await asyncio.to_thread(server.create_bucket, BUCKET)
        for kind in ("lz4", "raw"):
            lines += await _compare_kind(folder, server, kind, seconds)
    finally:
        await asyncio.to_thread(server.kill)
    return lines


async def _compare_kind(folder: Path, server: RealS3, kind: str, seconds: float) -> list[dict[str, object]]:
    body, entries = segment(shrinks=kind == "lz4")
    store = open_object_store(
        f"s3://{BUCKET}/{kind}",
        clock=SystemClock(),
        ids=Ids(),
        registry=CollectorRegistry(),
        environ=server.environment,
    )
    await store.put_new(KEY, [body])
    tier = await opened(folder / kind)
    began = time.perf_counter()
    for entry in entries:
        tier.put((KEY, entry.position), body[entry.position : entry.position + entry.stored_bytes])
    await tier.settled()
    put_s = time.perf_counter() - began
    assert len(tier) == len(entries)
    loop = asyncio.get_running_loop()

    async def hit(number: int) -> None:
        entry = entries[number % len(entries)]
        assert await tier.get((KEY, entry.position), partial(decode, entry=entry), whose=number % 4) is not None

    async def get(number: int) -> None:
        entry = entries[number % len(entries)]
        stored = await store.get_range(KEY, entry.position, entry.position + entry.stored_bytes)
        await loop.run_in_executor(None, decode, stored, entry)

    raw_mib = sum(entry.raw_bytes for entry in entries) / len(entries) / (1 << 20)
    lines: list[dict[str, object]] = [
        {"what": f"put {kind}", "callers": 1, "p50_ms": 1000 * put_s / len(entries) / raw_mib, "p99_ms": None}
    ]
    for name, call in (("hit", hit), ("get", get)):
        for callers in (1, 8):
            taken, all_s = await timed(call, callers=callers, seconds=seconds)
            lines.append(
                {
                    "what": f"{name} {kind}",
                    "callers": callers,
                    "p50_ms": 1000 * statistics.median(taken) / raw_mib,
                    "p99_ms": 1000 * sorted(taken)[int(len(taken) * 0.99)] / raw_mib,
                    "mib_s": len(taken) * raw_mib / all_s,
                }
            )
    await tier.aclose()
    await store.aclose()
    return lines


def decode(stored: bytes | bytearray | memoryview, entry: BlockEntry) -> Block:
    return Block(decode_block(stored, entry, key=KEY))


async def opened(folder: Path) -> DiskBlockCache:
    tier = open_disk_cache(FetchSettings(disk_cache_path=str(folder), disk_cache_waiting_writes=1000))
    assert tier is not None
    await tier.open()
    await tier.listed()
    return tier


async def start(folder: Path) -> list[dict[str, object]]:
    (folder / "blocks").mkdir(parents=True)
    for number in range(SMALL_FILES):
        (folder / "blocks" / f"{number:032x}.block").write_bytes(b"x")
    began = time.perf_counter()
    tier = await opened(folder)
    taken_ms = 1000 * (time.perf_counter() - began)
    assert len(tier) == SMALL_FILES
    await tier.aclose()
    return [{"what": f"start, {SMALL_FILES} files", "callers": 1, "p50_ms": taken_ms, "p99_ms": None}]


async def run(options: argparse.Namespace, folder: Path) -> list[dict[str, object]]:
    return [*await compare(folder, options.seconds), *await start(folder / "small")]


def show(lines: list[dict[str, object]]) -> None:
    print(f"{'per MiB of records':<22}{'callers':>8}{'p50 ms':>10}{'p99 ms':>10}{'MiB/s':>10}")
    for line in lines:
        figures = [line["p50_ms"], line["p99_ms"], line.get("mib_s")]
        shown = [f"{figure:>10.2f}" if isinstance(figure, float) else f"{'':>10}" for figure in figures]
        print(f"{line['what']:<22}{line['callers']:>8}{''.join(shown)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each line (default: %(default)s)")
    parser.add_argument("--folder", help="where to put the files (default: the system's place for temporary ones)")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamhouse-bench-", dir=options.folder) as folder:
        lines = asyncio.run(run(options, Path(folder)))
    if options.json:
        print(json.dumps(lines))
    else:
        show(lines)


if __name__ == "__main__":
    main()
