"""Does anything grow slow with a million runs? SQLite and PostgreSQL, each with a thousand runs and with a million.

    .venv/bin/python -m benchmarks.million_segments [--runs N] [--calls N] [--engine sqlite] [--write-readme]

The metadata store alone, asked what agents ask it: one caller that waits for each answer. A topic has all runs in one
partition, another one spreads as many over 1,000. Expiry is the agents' own retention pass, once with half of the runs
too old and once with a limit of size; meanwhile the session's heartbeat is timed, because a lease lives by it.
"""

import argparse
import asyncio
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import uvloop
from rich.console import Console

from benchmarks import readme, results
from benchmarks.results import Run as Numbers
from benchmarks.results import Sample
from benchmarks.script import Frame, add_flags, load_at_the_end, show
from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.cluster.store_identity import StoreIdentity
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.fetch.read_plans import OffsetRange, ReadPlans, RunCursor
from streamhouse.broker.maintenance.retention import RetentionManager
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import Settings
from streamhouse.config.fields import Address
from streamhouse.model.cluster import PartitionState
from streamhouse.model.fetch import OffsetResult
from streamhouse.model.names import PartitionId, SessionId, TopicId, TopicPartition
from streamhouse.model.segment import Run, SegmentCommit, SegmentObject
from streamhouse.model.topic import Topic, TopicConfig, parse_topic_config
from streamhouse.stores.metadata.base import MetadataStore, NewSession
from streamhouse.stores.metadata.open import open_metadata_store
from streamhouse.stores.objects.memory import MemoryObjectStore
from tests.support.postgres import RealPostgres, find_binaries

FOLDER: Final = results.FOLDER / "segments"
FEW: Final = 1000
SPREAD: Final = 1000
STEP: Final = 1000
RECORDS: Final = 10
RUN_BYTES: Final = 1000
EVERY_MS: Final = 1000
SESSION: Final = SessionId("s-" + "a" * 32)
TTL_MS: Final = 24 * 3_600_000
NARROW: Final = Topic(topic_id=TopicId(uuid.UUID(int=1)), name="narrow", partitions=1, overrides={}, created_at_ms=0)
WIDE: Final = replace(NARROW, topic_id=TopicId(uuid.UUID(int=2)), name="wide", partitions=SPREAD)
ADDRESS: Final = Address(host="127.0.0.1", port=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A topic that was filled: its partitions, and how many runs each has."""

    topic: Topic
    states: Sequence[PartitionState]
    runs: int

    @property
    def first(self) -> PartitionId:
        return self.states[0].partition

    @property
    def end(self) -> int:
        return self.runs * RECORDS


class AlwaysHere:
    """A cluster of this agent alone."""

    def leads(self, state: PartitionState) -> bool:
        return True

    def does(self, chore: str) -> bool:
        return True


class AllSettled:
    """Nothing is of a transaction: no snapshot has to be read, and there are none."""

    async def ends(self, states: Iterable[PartitionState]) -> Mapping[PartitionId, int]:
        return {state.partition: state.flushed_end for state in states}


class OneTopic:
    """A catalog that knows what it was told."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    async def find(self, name: str) -> Topic:
        return self._topic


def run_of(state: PartitionState, number: int, key: str) -> Run:
    return Run(
        partition=state.partition,
        base=number * RECORDS,
        end=(number + 1) * RECORDS,
        stored_base=number * RECORDS,
        epoch=state.epoch,
        object_key=key,
        position=0,
        length=RUN_BYTES,
        index_position=RUN_BYTES,
        index_length=64,
        records=RECORDS,
        max_timestamp_ms=number * EVERY_MS,
    )


def commit_of(states: Sequence[PartitionState], number: int) -> SegmentCommit:
    """One object with a run of each of these partitions: their `number`th."""
    key = f"segments/{states[0].partition.topic_id.int}/{number:020}"
    size = len(states) * RUN_BYTES
    return SegmentCommit(
        segment=SegmentObject(key=key, size_bytes=size, created_at_ms=0),
        runs=tuple(run_of(state, number, key) for state in states),
    )


async def fill(store: MetadataStore, topic: Topic, runs: int) -> Log:
    """As agents would: a partition alone has an object for each run, many partitions share theirs."""
    await store.create_topic(topic)
    states = await store.acquire(SESSION, [PartitionId(topic.topic_id, number) for number in range(topic.partitions)])
    each = max(1, runs // topic.partitions)
    together = max(1, STEP // topic.partitions)
    for first in range(0, each, together):
        last = min(each, first + together)
        await store.commit_segments(SESSION, [commit_of(states, number) for number in range(first, last)])
    return Log(topic=topic, states=states, runs=each)


class Times:
    """What calls took, by the name of the log and of the call."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.samples: list[Sample] = []

    async def calls(self, log: Log, name: str, count: int, call: Callable[[int], Awaitable[object]]) -> None:
        await call(0)  # plans and connections are made once
        taken = [await _timed(call(number)) for number in range(1, count + 1)]
        taken.sort()
        self.add(log, name, "median", taken[len(taken) // 2])
        self.add(log, name, "p99", taken[int(len(taken) * 0.99)])

    def add(self, log: Log, name: str, metric: str, value_ms: float) -> None:
        measure = "runs in one partition" if log.topic is NARROW else f"runs in {SPREAD:,} partitions"
        self.samples.append(
            Sample(measure=measure, scenario=name, metric=metric, peer=self._peer, repetition=0, value=value_ms)
        )


async def _timed(call: Awaitable[object]) -> float:
    began = time.perf_counter()
    await call
    return (time.perf_counter() - began) * 1000


# --- questions


async def lookups(store: MetadataStore, log: Log, times: Times, calls: int) -> None:
    places = [(number * 7919) % log.runs for number in range(calls + 1)]
    await times.calls(
        log,
        "fetch: runs at an offset",
        calls,
        lambda n: store.runs(log.first, from_offset=places[n] * RECORDS + 1, limit=64),
    )
    await times.calls(
        log,
        "offset of a time",
        calls,
        lambda n: store.run_at_time(log.first, timestamp_ms=places[n] * EVERY_MS, from_offset=0),
    )
    await times.calls(log, "offset of the largest time", calls, lambda _: store.latest_run(log.first, from_offset=0))
    await times.calls(log, "end of an epoch", calls, lambda _: store.epoch_end(log.first, log.states[0].epoch))


async def listings(store: MetadataStore, log: Log, times: Times, calls: int) -> None:
    ids = [log.topic.topic_id]

    async def partitions(_: int) -> None:
        await store.partitions(ids)
        await store.sizes(ids)

    await times.calls(log, "partitions list", calls, partitions)
    await times.calls(log, "segments list, 1,000", calls, lambda _: store.runs(log.first, from_offset=0, limit=1000))


async def plans(dependencies: Dependencies, log: Log, times: Times, calls: int) -> None:
    async def latest(_: TopicPartition) -> OffsetResult:
        return OffsetResult(log.end)

    catalog, settled = cast(Any, OneTopic(log.topic)), cast(Any, AllSettled())
    planner = ReadPlans(dependencies, catalog=catalog, stable_flushed=settled, stable_end=latest)
    spans = [OffsetRange(TopicPartition(log.topic.name, number)) for number in range(log.topic.partitions)]
    pages: list[RunCursor | None] = [None]

    async def page(_: int) -> None:
        plan = await planner.plan(spans, begin=pages[-1])
        pages.append(plan.next)

    await times.calls(log, "read plan, a page", calls, page)


async def changes(store: MetadataStore, log: Log, times: Times, calls: int) -> Log:
    """Leases and commits; returns the log as it is then."""
    partitions = [state.partition for state in log.states]

    async def reopen(_: int) -> None:
        await store.release(SESSION, partitions[:1])
        await store.acquire(SESSION, partitions[:1])
        await store.last_runs(partitions[:1])

    await times.calls(log, "open a partition", calls, reopen)
    states = await store.acquire(SESSION, partitions)

    async def commit(number: int) -> None:
        await store.commit_segments(SESSION, [commit_of(states, log.runs + number)])

    await times.calls(log, f"commit of {len(states):,}", calls, commit)
    return replace(log, states=states, runs=log.runs + calls + 1)


# --- expiry


async def expiry(dependencies: Dependencies, log: Log, times: Times, name: str, **limits: int) -> None:
    """One retention pass, and the longest heartbeat meanwhile."""
    names = {"retention_ms": "retention.ms", "retention_bytes": "retention.bytes"}
    asked = {names[name]: str(limit) for name, limit in limits.items()}
    config = parse_topic_config({"retention.ms": "-1", **asked})
    collector = RetentionManager(
        dependencies,
        configs=_answer({log.topic.topic_id: config}),
        on_log_starts_changed=lambda starts: None,
        cluster=cast(Cluster, AlwaysHere()),
        identity=StoreIdentity(dependencies),
    )
    passing = asyncio.ensure_future(_timed(collector.apply()))
    longest = 0.0
    while not passing.done():
        longest = max(longest, await _timed(dependencies.metadata.renew_session(SESSION, TTL_MS)))
        await asyncio.sleep(0.002)
    times.add(log, name, "longest", await passing)
    times.add(log, f"{name}: a heartbeat meanwhile", "longest", longest)


def _answer(configs: Mapping[TopicId, TopicConfig]) -> Callable[[], Awaitable[Mapping[TopicId, TopicConfig]]]:
    async def respond() -> Mapping[TopicId, TopicConfig]:
        return configs

    return respond


class FixedClock(SystemClock):
    """Wall time by hand, so that runs are as old as they say."""

    def __init__(self, at_ms: int) -> None:
        self._at_ms = at_ms

    def now_ms(self) -> int:
        return self._at_ms


def doors_on(store: MetadataStore, at_ms: int) -> Dependencies:
    return Dependencies(
        settings=Settings(),
        objects=MemoryObjectStore(clock=SystemClock()),
        metadata=store,
        wal_factory=cast(Any, None),
        clock=FixedClock(at_ms),
        ids=Ids(),
        kafka=ADDRESS,
        http=ADDRESS,
        single_agent=True,
    )


# --- a run


async def measure(url: str, peer: str, runs: int, calls: int, console: Console) -> list[Sample]:
    store = await open_metadata_store(url, clock=SystemClock())
    await store.open_session(NewSession(session_id=SESSION, kafka=ADDRESS, http=ADDRESS, ttl_ms=TTL_MS))
    times = Times(peer)
    for topic in (NARROW, WIDE):
        began = time.perf_counter()
        log = await fill(store, topic, max(runs, topic.partitions))
        console.print(f"[dim]{peer}: {topic.name} filled in {time.perf_counter() - began:.0f} s[/]", highlight=False)
        now_ms = log.runs * EVERY_MS
        dependencies = doors_on(store, now_ms)
        await lookups(store, log, times, calls)
        await listings(store, log, times, calls)
        await plans(dependencies, log, times, calls)
        log = await changes(store, log, times, calls if topic is NARROW else max(5, calls // 10))
        await expiry(dependencies, log, times, "retention, nothing due", retention_ms=now_ms * 2)
        await expiry(dependencies, log, times, "retention, half too old", retention_ms=now_ms // 2)
        await expiry(dependencies, log, times, "retention, half too much", retention_bytes=log.runs * RUN_BYTES // 4)
        await lookups_after(store, log, times, calls)
        times.add(log, "topic deleted", "longest", await _timed(store.delete_topic(topic.topic_id)))
    await store.aclose()
    return times.samples


async def lookups_after(store: MetadataStore, log: Log, times: Times, calls: int) -> None:
    """Rows that are gone may still be in the way."""
    [state] = [each for each in await store.partitions([log.topic.topic_id]) if each.partition == log.first]
    await times.calls(
        log,
        "fetch at the log start, after expiry",
        calls,
        lambda _: store.runs(log.first, from_offset=state.log_start, limit=64),
    )


def engines(asked: argparse.Namespace, stack: ExitStack) -> Iterator[tuple[str, Callable[[], str]]]:
    if asked.engine in (None, "sqlite"):
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield "SQLite", lambda: f"sqlite://{folder}/{uuid.uuid4()}.db"
    if asked.engine in (None, "postgres"):
        binaries = find_binaries()
        assert binaries is not None, "no PostgreSQL here; give --engine sqlite"
        yield "PostgreSQL", lambda: stack.enter_context(RealPostgres(binaries)).dsn()


def words(runs: int) -> str:
    return {1000: "10³", 1_000_000: "10⁶"}.get(runs, f"{runs:,}")


def run(asked: argparse.Namespace, console: Console) -> Numbers:
    frame, samples = Frame(), list[Sample]()
    with ExitStack() as stack:
        for engine, url in engines(asked, stack):
            for runs in (FEW, asked.runs):
                samples += uvloop.run(measure(url(), f"{engine} {words(runs)}", runs, asked.calls, console))
    plan = "full" if asked.runs >= 1_000_000 else "small"
    return frame.run(samples, plan=plan, notes=[load_at_the_end("about 1"), "PostgreSQL without fsync"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1_000_000, help="in place of a million")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--engine", choices=["sqlite", "postgres"], help="only this one")
    add_flags(parser)
    asked, console = parser.parse_args(), Console(width=200)
    show(asked, lambda: run(asked, console), folder=FOLDER, marks=readme.SEGMENTS, console=console)


if __name__ == "__main__":
    main()
