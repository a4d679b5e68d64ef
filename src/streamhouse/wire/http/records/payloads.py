"""Payloads: keys and values as bytes, and as JSON, text or base64.

Data path   shapes -> **payloads** -> NewRecord; StoredRecord -> **payloads** -> shapes
Owns        which bytes a value stands for, and how bytes are written where a format doesn't fit them
Leaves      schemas to `schemas`, JSON itself to msgspec

JSON is kept as it was written, only without the space between its parts: numbers and the order of keys stay.
"""

from base64 import b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from streamhouse.model.record import Header, StoredRecord
from streamhouse.wire.http.errors import Flaw, Unprocessable
from streamhouse.wire.http.records.shapes import Format, HeaderShape, RecordView

NULL: Final = b"null"
QUOTE: Final = ord('"')
_COMPACT: Final = -1


def bytes_of(raw: Raw, form: Format) -> bytes | None:
    """What a key or a value stands for; raises `ValueError` where it isn't of the format.

    The JSON was made compact with the body that it is part of.
    """
    text = bytes(raw)
    if not text or text == NULL:
        return None
    if form == "json":
        return text
    if form == "base64":
        return msgspec.json.decode(text, type=bytes)
    return msgspec.json.decode(text, type=str).encode() if text[0] == QUOTE else text


def headers_of(shapes: Sequence[HeaderShape]) -> tuple[Header, ...]:
    return tuple((shape.name, _header_value(shape)) for shape in shapes)


def _header_value(shape: HeaderShape) -> bytes | None:
    if shape.base64 is not UNSET:
        if shape.value is not UNSET:
            raise ValueError("a header has a value or base64, not both")
        return msgspec.convert(shape.base64, type=bytes)
    return None if shape.value is UNSET else shape.value.encode()


def flaw_of(path: str, error: Exception) -> Flaw:
    reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return Flaw(path=path, reason=reason[:300])


def refuse(flaws: Sequence[Flaw]) -> Unprocessable:
    first = flaws[0]
    return Unprocessable(f"records can't be read; path={first.path} why={first.reason}", flaws=flaws)


# --- the other way


def written(data: bytes | None, form: Format) -> tuple[object, Format | UnsetType]:
    """Bytes in the format that is wanted, or in the first of text and base64 that fits; then that one is named."""
    if data is None:
        return None, UNSET
    if form == "json":
        try:
            if data != NULL:  # null is for records without a value
                if not data.isascii():
                    data.decode()
                return Raw(msgspec.json.format(data, indent=_COMPACT)), UNSET
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    if form != "base64":
        try:
            return data.decode(), UNSET if form == "text" else "text"
        except UnicodeDecodeError:
            pass
    return b64encode(data).decode(), UNSET if form == "base64" else "base64"


def header_shapes(headers: Sequence[Header]) -> list[HeaderShape]:
    return [_header_shape(name, value) for name, value in headers]


def _header_shape(name: str, value: bytes | None) -> HeaderShape:
    if value is None:
        return HeaderShape(name=name)
    try:
        return HeaderShape(name=name, value=value.decode())
    except UnicodeDecodeError:
        return HeaderShape(name=name, base64=b64encode(value).decode())


def view_of(partition: int, record: StoredRecord, *, key_format: Format, value_format: Format) -> RecordView:
    offset, timestamp_ms, data, payload, headers = record
    value, value_mark = written(payload, value_format)
    key, key_mark = (None, UNSET) if data is None else written(data, key_format)
    return RecordView(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        headers=header_shapes(headers) if headers else [],
        key_format=key_mark,
        value_format=value_mark,
    )


BAD_VALUE: Final = (ValueError, Base64Error, RecursionError)
"""What `bytes_of` and `headers_of` raise; msgspec's errors are `ValueError`s."""
