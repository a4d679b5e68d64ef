"""What does an object store cost? PUT and GET of a folder and of a real S3 server, beside each other.

    .venv/bin/python -m benchmarks.object_store [--seconds N] [--url s3://bucket/prefix] [--json]

put        `put_new` of one object after the other, as the agent opens its store; `8 at once` is eight callers
get        `get_range` of whole objects of that size, in the same ways
overhead   the S3 store against a server that does nothing, on the same loopback: what our side costs

Without `--url` the S3 server is SeaweedFS on loopback, which shares the machine with its client: believe the ratio of
sizes and the latency, not the throughput. With `--url` it is the bucket that the environment leads to.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store
from tests.support.fake_s3 import FakeS3
from tests.support.s3 import RealS3

SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16, "1 MiB": 1 << 20, "4 MiB": 4 << 20, "64 MiB": 64 << 20}
PIECE_BYTES = 1 << 20
BUCKET = "benchmark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    store: str
    operation: str
    size: str
    callers: int
    calls: int
    p50_ms: float
    p99_ms: float
    mb_s: float


async def timed(call: Callable[[int], Awaitable[object]], *, callers: int, seconds: float) -> tuple[list[float], float]:
    """Every call's time, and how long all of them took together; at least three calls for each caller."""
    numbers, taken = count(), list[float]()
    began = time.perf_counter()

    async def caller() -> None:
        done = 0
        while done < 3 or time.perf_counter() - began < seconds:
            start = time.perf_counter()
            await call(next(numbers))
            taken.append(time.perf_counter() - start)
            done += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(caller())
    return taken, time.perf_counter() - began


def body_of(size_bytes: int) -> list[bytes]:
    """As a segment is put: in pieces of a block each."""
    noise = os.urandom(min(size_bytes, PIECE_BYTES))
    return [noise] * max(1, size_bytes // PIECE_BYTES)


async def measure(name: str, store: ObjectStore, *, seconds: float, sizes: Mapping[str, int]) -> list[Figures]:
    figures = []
    for size, size_bytes in sizes.items():
        body = body_of(size_bytes)
        await store.put_new(f"{size_bytes}/warm", body)
        for callers in (1, 8) if size_bytes <= 4 << 20 else (1,):

            async def put(number: int, place: str = f"{size_bytes}/{callers}", body: list[bytes] = body) -> None:
                await store.put_new(f"{place}/{number:06d}", body)

            async def get(_: int, key: str = f"{size_bytes}/warm", end: int = size_bytes) -> None:
                assert len(await store.get_range(key, 0, end)) == end

            for operation, call in (("put", put), ("get", get)):
                taken, all_s = await timed(call, callers=callers, seconds=seconds)
                figures.append(
                    Figures(
                        store=name,
                        operation=operation,
                        size=size,
                        callers=callers,
                        calls=len(taken),
                        p50_ms=1000 * statistics.median(taken),
                        p99_ms=1000 * sorted(taken)[int(len(taken) * 0.99)],
                        mb_s=len(taken) * size_bytes / all_s / 1e6,
                    )
                )
    return figures


def opened(url: str, environ: Mapping[str, str] | None = None) -> ObjectStore:
    return open_object_store(url, clock=SystemClock(), ids=Ids(), registry=CollectorRegistry(), environ=environ)


async def run(options: argparse.Namespace, folder: Path) -> list[Figures]:
    figures = []
    with ExitStack() as stack:
        stores = {"folder": opened(f"file://{folder / 'objects'}")}
        if options.url:
            stores["s3"] = opened(f"{options.url.rstrip('/')}/{Ids().token()}")
        else:
            server = await asyncio.to_thread(stack.enter_context, RealS3(folder / "s3"))
            await asyncio.to_thread(server.create_bucket, BUCKET)
            stores["s3"] = opened(f"s3://{BUCKET}/objects", server.environment)
        for name, store in stores.items():
            figures += await measure(name, store, seconds=options.seconds, sizes=SIZES)
            await store.aclose()
    async with FakeS3() as fake:
        small = {"1 KiB": SIZES["1 KiB"]}
        figures += await measure(
            "overhead", opened("s3://fake/objects", fake.environment), seconds=options.seconds, sizes=small
        )
    return figures


def show(figures: list[Figures]) -> None:
    print(f"{'store':<10}{'':<6}{'size':>8}{'callers':>9}{'calls':>8}{'p50 ms':>10}{'p99 ms':>10}{'MB/s':>9}")
    for f in figures:
        print(
            f"{f.store:<10}{f.operation:<6}{f.size:>8}{f.callers:>9}{f.calls:>8}"
            f"{f.p50_ms:>10.2f}{f.p99_ms:>10.2f}{f.mb_s:>9.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each line (default: %(default)s)")
    parser.add_argument("--url", help="a bucket to measure instead of a local server")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamhouse-bench-") as folder:
        figures = asyncio.run(run(options, Path(folder)))
    if options.json:
        print(json.dumps([asdict(f) for f in figures]))
    else:
        show(figures)


if __name__ == "__main__":
    main()
