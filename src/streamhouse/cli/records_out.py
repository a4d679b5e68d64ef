"""Records out: a record as a line for a person, a pipe or a program.

Owns        the four shapes of a line: JSON, columns for a terminal, raw bytes, raw bytes with what was asked for;
            values that a schema has read are JSON in each
Leaves      which records to `consume`
"""

import base64
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import typer

from streamhouse.cli.doors import Doors
from streamhouse.cli.words import shown, when
from streamhouse.client.serde import SchemaReader
from streamhouse.client.types import Record

OFFSET_WIDTH: Final = 8
KEY_WIDTH: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a line shows beside the value."""

    keys: bool = False
    headers: bool = False
    offsets: bool = False


Render = Callable[[Record], bytes]


def as_json(record: Record) -> bytes:
    told: dict[str, object] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        **_text_or_base64("key", record.key),
        **_text_or_base64("value", record.value),
        "headers": [{"key": key, **_text_or_base64("value", value)} for key, value in record.headers],
    }
    return json.dumps(told, ensure_ascii=False).encode() + b"\n"


def _text_or_base64(name: str, data: Any) -> dict[str, Any]:
    """Bytes as text where they are some; what a schema has read as it is."""
    if not isinstance(data, bytes):
        return {name: data}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def raw(parts: Parts) -> Render:
    """The value's own bytes and a newline, after what was asked for, with tabs between."""

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
    """A value's bytes, or what a schema has read as a line of JSON."""
    return value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()


def columns(parts: Parts, *, coloured: bool) -> Render:
    """Aligned columns for a terminal; nothing in a record can steer it."""

    def paint(text: str, color: str | None = None, *, dim: bool = False) -> str:
        return typer.style(text, fg=color, dim=dim or None) if coloured else text

    def value(data: Any) -> str:
        return paint("null", "magenta") if data is None else shown(_raw(data))

    def render(record: Record) -> bytes:
        cells: list[str] = []
        if parts.offsets:
            cells.append(paint(f"{record.partition:>3}:{record.offset:<{OFFSET_WIDTH}}", "cyan"))
            cells.append(paint(when(record.timestamp_ms), dim=True))
        if parts.keys:
            key = "-" if record.key is None else shown(record.key)
            cells.append(paint(key.ljust(KEY_WIDTH), "yellow"))
        if parts.headers and record.headers:
            cells.append(paint(" ".join(f"{shown(k.encode())}={shown(v)}" for k, v in record.headers), "blue"))
        cells.append(value(record.value))
        return "  ".join(cells).encode("utf-8", "replace") + b"\n"

    return render


def write_out(records: Iterable[Record], render: Render) -> None:
    text = b"".join(map(render, records))
    if text:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


@asynccontextmanager
async def schema_reader(doors: Doors, http: str, schema: str | None) -> AsyncIterator[SchemaReader | None]:
    """What reads values by the schemas that they name, where that was asked for."""
    if schema is None:
        yield None
        return
    async with doors.http(http) as asked:
        yield SchemaReader(doors.schemas(asked), lenient=True)
