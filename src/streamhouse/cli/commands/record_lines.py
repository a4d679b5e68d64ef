"""Lines and records: input lines become records to produce, records become output lines."""

import asyncio
import base64
import io
import json
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import typer

from streamhouse.cli.dependencies import Dependencies
from streamhouse.cli.output import escape_bytes, format_time
from streamhouse.client.serde import SchemaReader
from streamhouse.client.types import Headers, Record
from streamhouse.model.record import NewRecord

CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How a line becomes a record: key and value separators, and fields that all records share."""

    key: bytes | None = None
    key_separator: bytes | None = None
    null: bytes | None = None
    headers: Headers = ()
    partition: int | None = None

    def record(self, line: bytes) -> NewRecord:
        """Raises `ValueError` for a line without its separator."""
        key, value = self.key, line
        if self.key_separator is not None:
            key, separator, value = line.partition(self.key_separator)
            if not separator:
                raise ValueError(f"no key separator {self.key_separator.decode(errors='backslashreplace')!r} in it")
        return NewRecord(
            key=None if key is not None and key == self.null else key,
            value=None if value == self.null else value,
            headers=self.headers,
            partition=self.partition,
        )


class LineSplitter:
    """Splits chunks into lines. Only a newline ends a line: carriage returns and all other bytes belong to it."""

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
        """Return the last line if it has no newline."""
        last = b"".join(self._begun)
        self._begun = []
        return [last] if last else []


async def chunks(stream: BinaryIO) -> AsyncIterator[bytes]:
    """Yield bytes as soon as they can be read, until the end."""
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
    """Wait until a read would not block; False for files that don't support waiting, such as /dev/null."""
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


OFFSET_WIDTH: Final = 8
KEY_WIDTH: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordParts:
    """The fields that are printed besides the value."""

    keys: bool = False
    headers: bool = False
    offsets: bool = False


Render = Callable[[Record], bytes]


def as_json(record: Record) -> bytes:
    fields: dict[str, object] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_text_or_base64("key", record.key),
        **_text_or_base64("value", record.value),
        "headers": [{"key": key, **_text_or_base64("value", value)} for key, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _text_or_base64(name: str, data: Any) -> dict[str, Any]:
    """Bytes as text if they are UTF-8, else as base64; decoded values unchanged."""
    if not isinstance(data, bytes):
        return {name: data}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def raw(parts: RecordParts) -> Render:
    """Render the requested parts and the bytes of the value, separated by tabs, and a newline."""

    def render(record: Record) -> bytes:
        columns: list[bytes] = []
        if parts.offsets:
            columns += [b"%d" % record.partition, b"%d" % record.offset, b"%d" % record.timestamp_ms]
        if parts.headers:
            columns.append(b",".join(b"%s=%s" % (key.encode(), value or b"") for key, value in record.headers))
        if parts.keys:
            columns.append(b"null" if record.key is None else record.key)
        columns.append(_raw(record.value))
        return b"\t".join(columns) + b"\n"

    return render


def _raw(value: Any) -> bytes:
    """Return the bytes of a value, or a decoded value as one line of JSON."""
    return value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()


def columns(parts: RecordParts, *, coloured: bool) -> Render:
    """Render aligned columns for a terminal; control characters are escaped."""

    def paint(text: str, color: str | None = None, *, dim: bool = False) -> str:
        return typer.style(text, fg=color, dim=dim or None) if coloured else text

    def value(data: Any) -> str:
        return paint("null", "magenta") if data is None else escape_bytes(_raw(data))

    def render(record: Record) -> bytes:
        cells: list[str] = []
        if parts.offsets:
            cells.append(paint(f"{record.partition:>3}:{record.offset:<{OFFSET_WIDTH}}", "cyan"))
            cells.append(paint(format_time(record.timestamp_ms), dim=True))
        if parts.keys:
            key = "-" if record.key is None else escape_bytes(record.key)
            cells.append(paint(key.ljust(KEY_WIDTH), "yellow"))
        if parts.headers and record.headers:
            cells.append(
                paint(" ".join(f"{escape_bytes(k.encode())}={escape_bytes(v)}" for k, v in record.headers), "blue")
            )
        cells.append(value(record.value))
        return "  ".join(cells).encode("utf-8", "replace") + b"\n"

    return render


def write_out(records: Iterable[Record], render: Render) -> None:
    text = b"".join(map(render, records))
    if text:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


@asynccontextmanager
async def schema_reader(deps: Dependencies, http: str, schema: str | None) -> AsyncIterator[SchemaReader | None]:
    """Open a reader that decodes values with their schemas; None without a schema option."""
    if schema is None:
        yield None
        return
    async with deps.http(http) as client:
        yield SchemaReader(deps.schemas(client), lenient=True)
