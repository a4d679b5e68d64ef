"""Records out: a record as a line for a person, a pipe or a program.

Owns        the four shapes of a line: JSON, columns for a terminal, raw bytes, raw bytes with what was asked for
Leaves      which records to `consume`
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import typer

from streamhouse.cli.words import shown, when
from streamhouse.client.nouns import Record

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


def _text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
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
        columns.append(b"null" if record.value is None else record.value)
        return b"\t".join(columns) + b"\n"

    return render


def columns(parts: Parts, *, coloured: bool) -> Render:
    """Aligned columns for a terminal; nothing in a record can steer it."""

    def paint(text: str, color: str | None = None, *, dim: bool = False) -> str:
        return typer.style(text, fg=color, dim=dim or None) if coloured else text

    def value(data: bytes | None) -> str:
        return paint("null", "magenta") if data is None else shown(data)

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
