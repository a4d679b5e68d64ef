"""Formats of keys and values: bytes as JSON, text or base64, and values with a schema of the registry.

Owns        converting values to bytes and back, the fallback if bytes don't fit a format, which part of a record is
            encoded with which schema
Leaves      schemas to `broker.schemas`, encoding in a process of its own to `schema_encoding`

JSON is stored as it was written, without the spaces between its parts: numbers and the order of keys stay.
"""

from base64 import b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, Raw, UnsetType

from streamhouse.errors import InvalidRecordValue, RegistryRefusal
from streamhouse.format.schema_id import PREFIX_BYTES, prefix_of, schema_id_of
from streamhouse.model.record import Header, StoredRecord
from streamhouse.model.schema import SubjectVersion
from streamhouse.schemas.base import ParsedSchema
from streamhouse.wire.http.errors import FieldError, Unprocessable
from streamhouse.wire.http.records.schema_encoder_process import error_text
from streamhouse.wire.http.records.schema_encoding import Deadline, SchemaEncoding
from streamhouse.wire.http.records.types import Format, HeaderShape, ReadFormat, RecordView

NULL: Final = b"null"
QUOTE: Final = ord('"')
_COMPACT: Final = -1


def bytes_of(raw: Raw, form: Format) -> bytes | None:
    """The bytes of a key or value; raises `ValueError` if it doesn't fit the format. JSON is compact already: the body
    is."""
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


def field_error(path: str, error: Exception) -> FieldError:
    reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return FieldError(path=path, reason=reason[:300])


def reject(field_errors: Sequence[FieldError]) -> Unprocessable:
    first = field_errors[0]
    return Unprocessable(f"records can't be read; path={first.path} why={first.reason}", field_errors=field_errors)


# --- reading


def format_value(data: bytes | None, form: Format) -> tuple[object, Format | UnsetType]:
    """Bytes in the requested format, or else as text or base64, together with the name of that format."""
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
    value, value_mark = format_value(payload, value_format)
    key, key_mark = (None, UNSET) if data is None else format_value(data, key_format)
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
"""Errors of `bytes_of` and `headers_of`; msgspec's are `ValueError`s."""


class Registry(Protocol):
    """The part of `broker.schemas` that is used here."""

    async def schema(self, schema_id: int) -> ParsedSchema:
        """Raises `UnknownSchema`."""
        ...

    async def newest_id(self, subject: str) -> int:
        """The id of a subject's newest version; raises `UnknownSubject`."""
        ...

    async def versions_of(self, schema_id: int, *, with_deleted: bool) -> Sequence[SubjectVersion]:
        """The subjects that have a schema, with versions; raises `UnknownSchema`."""
        ...


class Writer(NamedTuple):
    """Encodes values with one schema. `encoded` has the results of expensive values, which were encoded in advance."""

    schema_id: int
    schema: ParsedSchema
    encoded: Mapping[bytes, bytes | str] = MappingProxyType({})

    def bytes_of(self, raw: Raw) -> bytes | None:
        """Raises `ValueError` with the path inside the value if it doesn't fit the schema."""
        text = bytes(raw)
        if not text or text == NULL:
            return None
        if (known := self.encoded.get(text)) is not None:
            if isinstance(known, str):
                raise ValueError(known)
            return prefix_of(self.schema_id) + known
        try:
            payload = self.schema.encode(msgspec.json.decode(text))
        except InvalidRecordValue as error:
            raise ValueError(error_text(error)) from None
        return prefix_of(self.schema_id) + payload


class Reader:
    """Decodes records whose keys or values may contain schema ids; looks each schema up once. Raises `Retriable` errors
    only."""

    def __init__(self, registry: Registry, *, key: bool, value: bool, key_format: Format, value_format: Format) -> None:
        self._registry = registry
        self._key, self._value = key, value
        self._key_format, self._value_format = key_format, value_format
        self._known: dict[int, ParsedSchema | None] = {}

    async def learn(self, records: Sequence[StoredRecord]) -> None:
        """Look up the schemas of these records."""
        for record in records:
            for has_schema, data in ((self._key, record.key), (self._value, record.value)):
                if has_schema and (schema_id := schema_id_of(data)) is not None and schema_id not in self._known:
                    self._known[schema_id] = await self._find(schema_id)

    def view_of(self, partition: int, record: StoredRecord) -> RecordView:
        """The record, decoded with the schemas that `learn` looked up; key or value that can't be decoded is shown as
        JSON, text or base64."""
        view = view_of(partition, record, key_format=self._key_format, value_format=self._value_format)
        if self._key and (decoded := self._decoded(record.key)) is not None:
            view.key, view.key_schema_id = decoded
            view.key_format = UNSET
        if self._value and (decoded := self._decoded(record.value)) is not None:
            view.value, view.value_schema_id = decoded
            view.value_format = UNSET
        return view

    def _decoded(self, data: bytes | None) -> tuple[object, int] | None:
        schema_id = schema_id_of(data)
        if data is None or schema_id is None or (schema := self._known.get(schema_id)) is None:
            return None
        try:
            return schema.decode(memoryview(data)[PREFIX_BYTES:]), schema_id
        except InvalidRecordValue:
            return None

    async def _find(self, schema_id: int) -> ParsedSchema | None:
        try:
            return await self._registry.schema(schema_id)
        except RegistryRefusal:
            return None


SCHEMA: Final = "schema"


class Viewer:
    def __init__(
        self,
        registry: Registry,
        encoding: SchemaEncoding,
        *,
        key_format: ReadFormat,
        value_format: ReadFormat,
    ) -> None:
        self._key_format = _plain(key_format, "text")
        self._value_format = _plain(value_format, "json")
        self._registry = registry
        self._encoding = encoding
        self._key_schema, self._value_schema = key_format == SCHEMA, value_format == SCHEMA

    async def views(self, partition: int, records: Sequence[StoredRecord]) -> list[RecordView]:
        if self._key_schema or self._value_schema:
            reader = self._reader()
            await reader.learn(records)
            return await self._encoding.run(lambda deadline: _views(reader, partition, records, deadline))
        return [
            view_of(partition, record, key_format=self._key_format, value_format=self._value_format)
            for record in records
        ]

    def _reader(self) -> Reader:
        """A new reader for each part of a stream: streams are long-lived, and unknown schema ids may be registered
        later."""
        return Reader(
            self._registry,
            key=self._key_schema,
            value=self._value_schema,
            key_format=self._key_format,
            value_format=self._value_format,
        )


def _views(reader: Reader, partition: int, records: Sequence[StoredRecord], deadline: Deadline) -> list[RecordView]:
    views: list[RecordView] = []
    for record in records:
        deadline.check()
        views.append(reader.view_of(partition, record))
    return views


def _plain(form: ReadFormat, instead: Format) -> Format:
    """The format of a key or value without a known schema."""
    return instead if form == SCHEMA else form
