"""Sockets: streams of bytes between a client and a real protocol of asyncio, in virtual time.

Owns        order and delay of bytes, where streams are torn into pieces and cut, slow readers, buffers that must not
            change after they were handed over
Leaves      what bytes mean to `wire_client` and to the product's `Connection`

A stream keeps its order and nothing else: a frame arrives in pieces, several arrive at once, an answer waits in the
transport while its client reads nothing. A cut takes what is on its way, from any byte on, in one direction or both;
the two ends hear of it at different times. Everything of the server's end runs in the agent's process, and ends with
it.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

from .loop import PROCESS, Process, SimLoop

HOP_S: Final = 0.0005
TORN: Final = 0.3
"""Share of the writes whose bytes arrive in pieces."""
HIGH_WATER: Final = 64 * 1024
Buffer = bytes | bytearray | memoryview


class ListeningSocket:
    """What a listener knows of its socket: the address."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._address


class SimServer:
    """What `create_server` returns; it makes a protocol for each client, in the process that listens."""

    def __init__(self, loop: SimLoop, factory: Callable[[], asyncio.BaseProtocol], port: int) -> None:
        process = PROCESS.get()
        assert process is not None
        self.loop, self.factory, self.port = loop, factory, port
        self.process: Process = process
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


class Stream:
    """One direction: bytes are written at one end and arrive at the other, in order, sooner or later."""

    def __init__(
        self, loop: SimLoop, chance: random.Random, arrive: Callable[[bytes], None], context: Callable[[], Context]
    ) -> None:
        self._loop, self._chance = loop, chance
        self._arrive_at_end = arrive
        self._context = context
        self._going: deque[bytes | Callable[[], None]] = deque()
        self._last_at = 0.0

    def write(self, data: bytes) -> None:
        cuts = [0, len(data)]
        if len(data) > 1 and self._chance.random() < TORN:
            cuts[1:1] = sorted(self._chance.randrange(1, len(data)) for _ in range(self._chance.choice((1, 1, 3))))
        for start, end in pairwise(cuts):
            if start < end:
                self._schedule(data[start:end])

    def end(self, act: Callable[[], None]) -> None:
        """Call this at the other end when everything before it has arrived."""
        self._schedule(act)

    def drop(self) -> None:
        """What is on its way never arrives."""
        self._going = deque(b"" for _ in self._going)

    def _schedule(self, what: bytes | Callable[[], None]) -> None:
        self._last_at = max(self._last_at, self._loop.time() + self._chance.expovariate(1 / HOP_S)) + 1e-6
        self._going.append(what)
        self._loop.call_at(self._last_at, self._arrive, context=self._context())

    def _arrive(self) -> None:
        what = self._going.popleft()
        if callable(what):
            what()
        elif what:
            self._arrive_at_end(what)


class ServerTransport(asyncio.Transport):
    """The server's end. `receive` gets what arrives at the client's end, `lost` is called when the connection is."""

    def __init__(
        self,
        server: SimServer,
        chance: random.Random,
        receive: Callable[[bytes], None],
        lost: Callable[[], None],
        changed: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._loop, self._process, self._chance = server.loop, server.process, chance
        self._changed = changed
        self._to_client = Stream(self._loop, chance, receive, Context)
        self._tell_client = lost
        self._protocol: Any = None
        self._factory = server.factory
        self._port = server.port
        self._inbox = bytearray()
        self._is_reading = True
        self._is_closing = False
        self._is_over = False
        self._unsent: deque[tuple[Buffer, int]] = deque()
        self._unsent_bytes = 0
        self._high, self._low = HIGH_WATER, HIGH_WATER // 4
        self._is_full = False
        self._is_flushing = False
        self.reads_from = 0.0
        """When the client reads again; until then nothing leaves the transport."""

    # --- from the client

    def connect(self) -> None:
        self._protocol = self._factory()
        self._protocol.connection_made(self)

    def arrived(self, data: bytes) -> None:
        self._inbox += data
        self._pump()

    def _pump(self) -> None:
        while self._inbox and self._is_reading and not self._is_over and not self._is_closing:
            space = self._protocol.get_buffer(-1)
            size = min(len(space), len(self._inbox))
            space[:size] = self._inbox[:size]
            del self._inbox[:size]
            self._protocol.buffer_updated(size)

    def client_gone(self, error: Exception | None) -> None:
        """The client closed the connection, or it was cut."""
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if not self._is_over:
            self._is_over = self._is_closing = True
            self._unsent.clear()
            self._unsent_bytes = 0
            self._loop.call_soon(self._protocol.connection_lost, error, context=self._process.context.copy())

    # --- what asyncio asks of a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        result: Mapping[str, Any] = {"peername": ("127.0.0.1", 40_000), "sockname": ("127.0.0.1", self._port)}
        return result.get(name, default)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._loop.call_soon(self._pump, context=self._process.context.copy())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def write(self, data: Buffer) -> None:
        if self._is_closing or self._is_over:
            return
        self._unsent.append((data, crc32(data)))
        self._unsent_bytes += len(data)
        if self._unsent_bytes > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()
        self._flush_soon()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        """What was written goes out first."""
        if not self._is_closing:
            self._is_closing = True
            self._flush_soon()

    def abort(self) -> None:
        if not self._is_over:
            self._to_client.end(self._tell_client)
            self._end(None)

    # --- to the client

    def _flush_soon(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            at = max(self.reads_from, self._loop.time())
            self._loop.call_at(at, self._flush, context=self._process.context.copy())

    def _flush(self) -> None:
        self._is_flushing = False
        if self._is_over:
            return
        if self.reads_from > self._loop.time():
            self._flush_soon()
            return
        while self._unsent:
            data, sum_before = self._unsent.popleft()
            self._unsent_bytes -= len(data)
            if crc32(data) != sum_before:
                self._changed("bytes changed after they were handed to the transport")
            self._to_client.write(bytes(data))
        if self._is_full and self._unsent_bytes <= self._low:
            self._is_full = False
            self._protocol.resume_writing()
        if self._is_closing and not self._unsent:
            self._to_client.end(self._tell_client)
            self._end(None)

    def cut(self) -> None:
        """What is on its way to the client never arrives."""
        self._to_client.drop()

    def process_gone(self) -> None:
        """What has left the process still arrives, then the client hears of it."""
        self._is_over = True
        self._to_client.end(self._tell_client)
