"""Request cost: what does one Produce request cost the event loop, and the agent, without sockets and clients?

    .venv/bin/python -m benchmarks.request_cost                    # about a minute
    PYTHONPATH=../base/src .venv/bin/python -m benchmarks.request_cost     # the same of another checkout

Data path   frames -> a `Connection` on a transport that goes nowhere -> broker, log, flushes -> **request cost**
Owns        feeding a connection from memory; the least of many repetitions
Leaves      frames to `throughput` and `requests`, as is what sockets and clients make of it

CPU of the loop's thread, and of the process: the least of many repetitions, so that the figures stay within a tenth
where others use the machine, and small changes of the hot path can be told apart. Receiving is a copy here, sending
nothing, and segments go to a store that forgets them.
"""

import asyncio
import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Load
from benchmarks.requests import one_record
from benchmarks.throughput import shot
from streamhouse.agent import SWITCH_INTERVAL_S
from streamhouse.allocator import keep_memory
from streamhouse.clock import SystemClock
from streamhouse.config import FlushSettings, Settings, WalSettings
from streamhouse.stores.objects.base import Buffers
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.wire.kafka.connection import Connection
from tests.wire.kafka.talk import Served, a_broker, a_server, create_topic

LOADS: Final = tuple(
    Load(record_bytes=1000, partitions=partitions, codec=codec) for codec in ("none", "lz4") for partitions in (1, 16)
)
REPETITIONS: Final = 25
LARGE, SMALL = 20, 200
"""Requests in one repetition."""
RECEIVED_BYTES: Final = 256 * 1024
"""Of one call: what a socket has at a time."""


class ForgetfulStore(MemoryObjectStore):
    """Takes everything and keeps nothing."""

    async def put_new(self, key: str, body: Buffers) -> None:
        pass


class NowhereTransport(asyncio.Transport):
    """Counts what is written, and says when something was."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = asyncio.Event()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def write(self, data: object) -> None:
        self.answered.set()

    def writelines(self, list_of_data: object) -> None:
        self.answered.set()


class Feed:
    """One connection, and its requests one after the other."""

    def __init__(self, served: Served) -> None:
        server = served.server
        self._connection = Connection(server._state, server._listeners[0], is_admitted=True)
        self._transport = NowhereTransport()
        self._connection.connection_made(self._transport)

    async def ask(self, request: bytes) -> None:
        self._transport.answered.clear()
        view = memoryview(request)
        while view:
            space = self._connection.get_buffer(-1)
            piece = view[: min(len(space), RECEIVED_BYTES)]
            space[: len(piece)] = piece
            self._connection.buffer_updated(len(piece))
            view = view[len(piece) :]
        await self._transport.answered.wait()

    def close(self) -> None:
        self._connection.connection_lost(None)


async def costs(served: Served, request: bytes, count: int) -> tuple[float, float]:
    """CPU microseconds of the loop's thread and of the process for one request."""
    feed = Feed(served)
    loop_s: list[float] = []
    process_s: list[float] = []
    for _ in range(2 * count):
        await feed.ask(request)
    gc.collect()
    for _ in range(REPETITIONS):
        began, process_began = time.thread_time(), time.process_time()
        for _ in range(count):
            await feed.ask(request)
        loop_s.append(time.thread_time() - began)
        process_s.append(time.process_time() - process_began)
    feed.close()
    return min(loop_s) / count * 1e6, min(process_s) / count * 1e6


async def run(folder: Path, table: Table) -> None:
    settings = Settings(wal=WalSettings(fsync="never"), flush=FlushSettings(check_s=0.02))
    async with (
        a_broker(folder, settings, objects=ForgetfulStore(SystemClock())) as broker,
        a_server(broker, settings) as served,
    ):
        client = await served.client()
        for number, load in enumerate((None, *LOADS)):
            topic, partitions = f"topic-{number}", 1 if load is None else load.partitions
            await create_topic(client, topic, partitions=partitions)
            prepared = one_record(topic, acks=-1) if load is None else shot(load, topic)
            count = SMALL if load is None else LARGE
            loop_us, process_us = await costs(served, prepared.request, count)
            table.add_row("one record" if load is None else str(load), f"{loop_us:.0f}", f"{process_us:.0f}")


def main() -> None:
    table = Table("produce", "loop CPU µs", "process CPU µs")
    keep_memory(one_arena=True)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(run(Path(folder), table))
    Console().print(table)


if __name__ == "__main__":
    main()
