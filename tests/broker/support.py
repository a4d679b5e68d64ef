"""Support for tests of the broker: stores in memory with faults, and a clock that the test advances.

Worker threads are calls (`run_inline`), so that what a test sees is the same each time.
"""

import asyncio
import inspect
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from streamhouse.broker.broker import Broker
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.partition.log import PendingAppend
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.broker.wal.base import WalRequestStats
from streamhouse.broker.wal.disk_recovery import DiskWalFactory
from streamhouse.config import (
    FlushSettings,
    MetadataSettings,
    Settings,
    WalSettings,
)
from streamhouse.config.fields import Address
from streamhouse.errors import Unavailable
from streamhouse.format.batch import Buffer
from streamhouse.format.object_keys import CLUSTER_KEY, GENERATIONS_PREFIX, TOPICS_PREFIX
from streamhouse.format.records import Record, build_batch, read_records
from streamhouse.format.wal_file import WalEntry
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.metadata.sqlite.store import SqliteMetadataStore
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from tests.contracts.clocks import seeded_ids
from tests.simulation.files import SimFiles

WAL_ROOT = Path("/data/wal")
NOW_MS = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 0)
MANY_BYTES = 1 << 30


class StepClock:
    """Time stands still until a test moves it; sleepers wake in the order of their times."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self.jumped_ms = 0

    def monotonic(self) -> float:
        return 1000.0 + self._elapsed

    def now_ms(self) -> int:
        return NOW_MS + self.jumped_ms + round(self._elapsed * 1000)

    async def sleep(self, seconds: float) -> None:
        waking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._elapsed + seconds, waking))
        await waking

    def skip(self, seconds: float) -> None:
        """Advance the time without waking sleepers, as if the process was stopped; they wake at the next `advance`."""
        self._elapsed += seconds

    async def advance(self, seconds: float) -> None:
        until = self._elapsed + seconds
        await settle()
        while True:
            self._sleepers = [(at, waking) for at, waking in self._sleepers if not waking.done()]
            due = [(at, waking) for at, waking in self._sleepers if at <= until]
            if not due:
                break
            at, waking = min(due, key=lambda sleeper: sleeper[0])
            self._elapsed = max(self._elapsed, at)
            waking.set_result(None)
            await settle()
        self._elapsed = max(self._elapsed, until)
        await settle()


IDLE_TURNS = 10
"""After so many turns in which nothing else was ready, nothing will be: what is written to a socket arrives sooner."""


async def settle() -> None:
    """Let everything run that can run without time; threads get a moment, too."""
    loop = asyncio.get_running_loop()
    idle = 0
    for _ in range(100):
        await asyncio.sleep(0)
        idle = 0 if loop._ready else idle + 1  # type: ignore[attr-defined]
        if idle == IDLE_TURNS:
            break


class Faulty:
    """A store with faults. All other calls go to the inner store."""

    def __init__(self, inner: object) -> None:
        self._inner = inner
        self._refused: Counter[str] = Counter()
        self._lost: Counter[str] = Counter()
        self._held: dict[str, asyncio.Event] = {}
        self._held_answers: dict[str, asyncio.Event] = {}
        self._cut: Literal["refuse", "swallow"] | None = None
        self._swallowed: list[asyncio.Future[None]] = []
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def refuse(self, call: str, times: int = 1) -> None:
        """The next calls do nothing and fail."""
        self._refused[call] = times

    def lose_answer(self, call: str, times: int = 1) -> None:
        """The next calls happen, and fail."""
        self._lost[call] = times

    def hold(self, call: str) -> asyncio.Event:
        """Calls wait, before anything happens, until the event is set."""
        self._held[call] = asyncio.Event()
        return self._held[call]

    def hold_answer(self, call: str) -> asyncio.Event:
        """Calls are executed, and return when the event is set."""
        self._held_answers[call] = asyncio.Event()
        return self._held_answers[call]

    def cut(self, how: Literal["refuse", "swallow"]) -> None:
        """From now on no call gets there: each fails at once, or none is ever answered."""
        self._cut = how

    def heal(self) -> None:
        self._cut = None
        for call in self._swallowed:
            if not call.done():
                call.set_exception(Unavailable("timed out"))
        self._swallowed.clear()
        self._refused.clear()
        self._lost.clear()

    def count(self, call: str) -> int:
        return sum(name == call for name, _ in self.calls)

    def arguments(self, call: str) -> list[tuple[Any, ...]]:
        return [arguments for name, arguments in self.calls if name == call]

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if name == "list":
            return self._list
        if not inspect.iscoroutinefunction(inner):
            return inner

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self._before(name, args)
            response = await inner(*args, **kwargs)
            if (resume := self._held_answers.get(name)) is not None:
                await resume.wait()
            if self._lost[name] > 0:
                self._lost[name] -= 1
                raise Unavailable(f"the answer got lost; call={name}")
            return response

        return call

    async def _before(self, name: str, args: tuple[Any, ...]) -> None:
        if not _is_about_identity(args):  # a few requests of each start, which tests of everything else don't count
            self.calls.append((name, args))
        if (resume := self._held.get(name)) is not None:
            await resume.wait()
        if self._cut == "refuse":
            raise Unavailable(f"nobody answers; call={name}")
        if self._cut == "swallow":
            self._swallowed.append(asyncio.get_running_loop().create_future())
            await self._swallowed[-1]
        if self._refused[name] > 0:
            self._refused[name] -= 1
            raise Unavailable(f"refused; call={name}")

    async def _list(self, prefix: str) -> AsyncIterator[Any]:
        await self._before("list", (prefix,))
        async for item in cast(ObjectStore, self._inner).list(prefix):
            yield item
        if self._lost["list"] > 0:
            self._lost["list"] -= 1
            raise Unavailable("the listing broke off")


def _is_about_identity(args: tuple[Any, ...]) -> bool:
    return (
        bool(args) and isinstance(args[0], str) and args[0].startswith((CLUSTER_KEY, GENERATIONS_PREFIX, TOPICS_PREFIX))
    )


class ManualWal:
    """A `Wal` whose groups, one per append, are committed or failed by the test."""

    def __init__(self) -> None:
        self.entries: list[WalEntry] = []
        self.commits: list[asyncio.Future[None]] = []
        self.truncated: list[Mapping[PartitionId, int]] = []
        self.failed: Exception | None = None
        self.size_bytes = 0
        self.pending_bytes = 0
        self.first_retained = 0
        self.needed_objects = 0
        self.durable_below = 0
        self.costs = WalRequestStats()

    def append(self, entries: Sequence[WalEntry]) -> asyncio.Future[None]:
        self.entries.extend(entries)
        self.commits.append(asyncio.get_running_loop().create_future())
        return self.commits[-1]

    async def commit(self, number: int) -> None:
        self.commits[number].set_result(None)
        await settle()

    async def fail(self, number: int, error: Exception) -> None:
        self.commits[number].set_exception(error)
        await settle()

    async def truncate(self, flushed: Mapping[PartitionId, int]) -> None:
        self.truncated.append(flushed)

    async def delete_below(self, sequence: int) -> None:
        return

    async def wait_failed(self) -> Exception:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def aclose(self, *, remove: bool) -> None:
        return


class World:
    """Stores, time and a disk, and one agent's broker after the other on them."""

    def __init__(self, **sections: Any) -> None:
        self.clock = StepClock()
        self.ids = seeded_ids()
        self.settings = Settings(
            wal=sections.pop("wal", WalSettings(fsync="always")),
            flush=sections.pop("flush", FlushSettings(block_bytes=256)),
            # Time stands still: a broker that can't start says so at once.
            metadata=sections.pop("metadata", MetadataSettings(start_wait_s=0)),
            **sections,
        )
        self.files = SimFiles(random.Random(1))
        self.bucket = MemoryObjectStore(self.clock)
        self.sqlite = SqliteMetadataStore(":memory:", clock=self.clock)
        self.objects = Faulty(self.bucket)
        self.metadata = Faulty(self.sqlite)
        self._running: list[asyncio.Task[None]] = []

    def dependencies(self, **changes: Any) -> Dependencies:
        given: dict[str, Any] = {
            "settings": self.settings,
            "objects": cast(ObjectStore, self.objects),
            "metadata": cast(MetadataStore, self.metadata),
            "wal_factory": DiskWalFactory(
                WAL_ROOT, self.settings.wal, files=self.files, clock=self.clock, ids=self.ids
            ),
            "clock": self.clock,
            "ids": self.ids,
            "kafka": Address("127.0.0.1", 9092),
            "http": Address("127.0.0.1", 8080),
            "single_agent": True,
        }
        return Dependencies(**{**given, **changes})

    async def start(self) -> Broker:
        broker = Broker(self.dependencies())
        await broker.start()
        return broker

    async def start_with(self, *names: TopicPartition, **overrides: str) -> Broker:
        """A broker with these topics, one partition each."""
        broker = await self.start()
        for name in names or (ORDERS,):
            await broker.create_topic(name.topic, partitions=1, overrides=overrides)
        return broker

    def run(self, broker: Broker) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(broker.run())
        self._running.append(task)
        return task

    async def until_done(self, task: "asyncio.Task[None]", *, within_s: float = 300.0) -> None:
        """Let time pass until the task has ended."""
        deadline = self.clock.monotonic() + within_s
        while not task.done():
            assert self.clock.monotonic() < deadline, f"not done after {within_s} s: {task!r}"
            await self.clock.advance(0.25)
        task.result()

    async def stop(self, broker: Broker, task: "asyncio.Task[None]", *, within_s: float = 300.0) -> None:
        broker.stop()
        await self.until_done(task, within_s=within_s)

    def kill(self) -> None:
        """The agent's process dies; what it wrote to its disk is there."""
        for task in self._running:
            task.cancel()
        self.files = self.files.kill()

    def wal_sessions(self) -> list[str]:
        return self.files.list(WAL_ROOT)

    async def object_keys(self) -> list[str]:
        return [meta.key async for meta in self.bucket.list("segments/")]

    async def aclose(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.sqlite.aclose()


def current(broker: Broker) -> AgentSession:
    assert broker.agent_session is not None
    return broker.agent_session


def batch(
    *values: bytes,
    key: bytes | None = b"k",
    timestamp_ms: int = NOW_MS,
    timestamps_ms: Sequence[int] | None = None,
    **settings: Any,
) -> memoryview:
    """A batch as a client sends it, in a buffer of its own."""
    times = timestamps_ms or [timestamp_ms] * len(values)
    records = [Record(key=key, value=value, timestamp_ms=at) for value, at in zip(values, times, strict=True)]
    return memoryview(build_batch(records, **settings))


def idempotent(*values: bytes, sequence: int, producer: int = 7, epoch: int = 0, **settings: Any) -> memoryview:
    return batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **settings)


async def produce(broker: Broker, data: memoryview, name: TopicPartition = ORDERS) -> PendingAppend:
    pending = await broker.append(name, data)
    await broker.acknowledge(pending)
    return pending


async def fetch(
    broker: Broker, offset: int, name: TopicPartition = ORDERS, *, max_bytes: int = MANY_BYTES, epoch: int = -1
) -> FetchResult:
    """One partition, without waiting."""
    request = PartitionFetch(name, offset, max_bytes, epoch)
    (result,) = await broker.fetch([request], max_bytes=max_bytes, min_bytes=0, max_wait_s=0)
    return result


async def values_of(broker: Broker, name: TopicPartition = ORDERS, *, offset: int = 0) -> dict[int, bytes | None]:
    """Everything from `offset` to the high watermark, by offset, as a consumer gets it."""
    result: dict[int, bytes | None] = {}
    while True:
        response = await fetch(broker, offset, name)
        if response.error is not None:
            raise response.error
        records = records_of(response.records)
        if not records:
            return result
        result.update({record.offset: record.value for record in records if record.offset >= offset})
        offset = records[-1].offset + 1


def records_of(buffers: Sequence[Buffer]) -> list[Record]:
    """The records of buffers that each hold consecutive batches."""
    results: list[Record] = []
    for buffer in buffers:
        rest = memoryview(buffer)
        while rest:
            size = int.from_bytes(rest[8:12]) + 12
            results.extend(read_records(rest[:size], limit_bytes=MANY_BYTES))
            rest = rest[size:]
    return results
