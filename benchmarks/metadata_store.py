"""What does a metadata call cost? SQLite and PostgreSQL beside each other, in milliseconds (median, 99th percentile).

    .venv/bin/python -m benchmarks.metadata_store [--calls N] [--postgres DSN] [--fsync]

One caller that waits for each answer. Without a DSN, PostgreSQL is a server of its own on loopback; with `--fsync` both
engines sync their commits to the disk, as they do in production, and without it PostgreSQL doesn't.
"""

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import uvloop

from streamhouse.clock import SystemClock
from streamhouse.config.fields import Address
from streamhouse.model.cluster import PartitionState
from streamhouse.model.names import PartitionId, SessionId, TopicId
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.base import MetadataStore, NewSession
from streamhouse.stores.metadata.open import open_metadata_store
from tests.support.postgres import RealPostgres, find_binaries

PARTITIONS = 1000
TOPIC = TopicId(uuid.UUID(int=1))
SESSION = SessionId("s-" + "a" * 32)
TTL_MS = 600_000


def commit_of(number: int, states: list[PartitionState], ends: dict[PartitionId, int]) -> SegmentCommit:
    """One object with a run of each of these partitions, behind what they have."""
    key = f"segments/{number:020}"
    runs = []
    for state in states:
        base = ends[state.partition]
        ends[state.partition] = base + 10
        runs.append(
            Run(
                partition=state.partition,
                base=base,
                end=base + 10,
                stored_base=base,
                epoch=state.epoch,
                object_key=key,
                position=0,
                length=1000,
                index_position=1000,
                index_length=64,
                records=10,
                max_timestamp_ms=number,
            )
        )
    return SegmentCommit(segment=SegmentObject(key=key, size_bytes=64_000, created_at_ms=0), runs=tuple(runs))


async def measure(calls: int, call: Callable[[int], Awaitable[object]]) -> str:
    await call(-1)  # plans and connections are made once
    taken = []
    for number in range(calls):
        began = time.perf_counter()
        await call(number)
        taken.append((time.perf_counter() - began) * 1000)
    taken.sort()
    return f"{statistics.median(taken):8.2f} {taken[int(len(taken) * 0.99)]:8.2f}"


async def run(url: str, calls: int) -> dict[str, str]:
    store = await open_metadata_store(url, clock=SystemClock())
    await store.create_topic(Topic(topic_id=TOPIC, name="t", partitions=PARTITIONS, overrides={}, created_at_ms=0))
    address = Address(host="127.0.0.1", port=1)
    await store.open_session(NewSession(session_id=SESSION, kafka=address, http=address, ttl_ms=TTL_MS))
    states = list(await store.acquire(SESSION, [PartitionId(TOPIC, number) for number in range(PARTITIONS)]))
    results = {"heartbeat of 1,000 leases": await measure(calls, lambda _: store.renew_session(SESSION, TTL_MS))}
    ends = {state.partition: 0 for state in states}
    for count in (1, 100, 1000):
        results[f"commit of {count:,} partitions"] = await commits(
            store, calls // (1 + count // 100), states[:count], ends
        )
    results["runs of a partition"] = await measure(
        calls, lambda _: store.runs(states[0].partition, from_offset=0, limit=100)
    )
    results["release and acquire of 1,000"] = await measure(5, lambda _: transfer(store, states))
    await store.aclose()
    return results


async def commits(store: MetadataStore, calls: int, states: list[PartitionState], ends: dict[PartitionId, int]) -> str:
    async def call(number: int) -> None:
        await store.commit_segments(SESSION, [commit_of(len(states) * 10**9 + number + 1, states, ends)])

    return await measure(max(10, calls), call)


async def transfer(store: MetadataStore, states: list[PartitionState]) -> None:
    partitions = [state.partition for state in states]
    await store.release(SESSION, partitions)
    await store.acquire(SESSION, partitions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--postgres", metavar="DSN", help="an empty database, which is filled")
    parser.add_argument("--fsync", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sqlite = uvloop.run(run(f"sqlite://{folder}/metadata.db", given.calls))
        dsn = given.postgres
        if dsn is None:
            binaries = find_binaries()
            assert binaries is not None, "no PostgreSQL here; give --postgres DSN"
            options = {"fsync": "on", "full_page_writes": "on"} if given.fsync else {}
            dsn = stack.enter_context(RealPostgres(binaries, options)).dsn()
        postgres = uvloop.run(run(dsn, given.calls))
    print(f"{'':32}{'SQLite':>17}{'PostgreSQL':>18}")
    for name, cost in sqlite.items():
        print(f"{name:32}{cost} {postgres[name]}")


if __name__ == "__main__":
    main()
