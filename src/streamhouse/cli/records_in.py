"""Records in: lines of bytes become records to produce.

Owns        splitting input into lines, and lines into key and value
Leaves      opening input and sending records to `produce`
"""

import asyncio
import io
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from streamhouse.client.types import Headers
from streamhouse.model.record import NewRecord

CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a line becomes a record: what all records share, and how a line is told apart."""

    key: bytes | None = None
    key_separator: bytes | None = None
    null: bytes | None = None
    headers: Headers = ()
    partition: int | None = None

    def record(self, line: bytes) -> NewRecord:
        """Raises `ValueError` for a line without its separator."""
        key, value = self.key, line
        if self.key_separator is not None:
            key, found, value = line.partition(self.key_separator)
            if not found:
                raise ValueError(f"no key separator {self.key_separator.decode(errors='backslashreplace')!r} in it")
        return NewRecord(
            key=None if key is not None and key == self.null else key,
            value=None if value == self.null else value,
            headers=self.headers,
            partition=self.partition,
        )


class LineSplitter:
    """Chunks in, lines out. Only a newline ends a line: carriage returns and any other byte belong to it."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        first, *rest = chunk.split(b"\n")
        self._begun.append(first)
        if not rest:
            return []
        lines = [b"".join(self._begun), *rest[:-1]]
        self._begun = [rest[-1]]
        return lines

    def finish(self) -> list[bytes]:
        """The last line, when it didn't end with a newline."""
        last = b"".join(self._begun)
        self._begun = []
        return [last] if last else []


async def chunks(stream: BinaryIO) -> AsyncIterator[bytes]:
    """What is there, as soon as it is there, until the end."""
    try:
        fd = stream.fileno()
    except (OSError, io.UnsupportedOperation):
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
        return
    waits = not stat.S_ISREG(os.fstat(fd).st_mode)
    while chunk := await _read(fd, waits=waits):
        yield chunk


async def _read(fd: int, *, waits: bool) -> bytes:
    # A thread that is blocked in a terminal's read would survive Ctrl-C: wait for input on the loop instead.
    if waits and await _readable(fd):
        return os.read(fd, CHUNK_BYTES)
    return await asyncio.to_thread(os.read, fd, CHUNK_BYTES)


async def _readable(fd: int) -> bool:
    """Wait until a read would not block; False for what can't be waited for, such as /dev/null."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:
        return False
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
    return True
