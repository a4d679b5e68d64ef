"""Serialization: Python values to record bytes and back, with or without a schema.

Writes and reads the magic byte and the schema id before a payload, and caches schemas.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from streamhouse.client.types import Headers, NewSchema, Record, Schema, SchemaRef
from streamhouse.errors import InvalidRecordValue, Rejected, UnknownSchema
from streamhouse.format.schema_id import PREFIX_BYTES, prefix_of, schema_id_of
from streamhouse.schemas import parse_schema
from streamhouse.schemas.base import ParsedSchema

MAX_CACHED: Final = 1_000

AnyHeaders: TypeAlias = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]
AnySchema: TypeAlias = str | SchemaRef | NewSchema
"""A subject, of which the latest version is used; a version of one; or a text that is registered first."""


class Write(Protocol):
    """Encodes keys or values; call `open` first."""

    async def open(self) -> None: ...
    def __call__(self, value: Any, /) -> bytes: ...


class _PlainValue:
    async def open(self) -> None:
        return None

    def __call__(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return _utf8(value)
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        try:
            return msgspec.json.encode(value)
        except (TypeError, ValueError) as error:
            raise Rejected(
                f"the value is neither bytes, text nor JSON; type={type(value).__name__} why={error};"
                " give one of these, or a schema: client.producer(topic, schema=...)"
            ) from None


class _PlainKey:
    async def open(self) -> None:
        return None

    def __call__(self, key: Any) -> bytes:
        if isinstance(key, bytes):
            return key
        if isinstance(key, str):
            return _utf8(key)
        raise Rejected(f"a key is bytes or text; type={type(key).__name__}; or give a schema: key_schema=...")


plain_value: Final[Write] = _PlainValue()
plain_key: Final[Write] = _PlainKey()


def header_pairs(headers: AnyHeaders) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, _utf8(value) if isinstance(value, str) else value) for name, value in pairs)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Rejected(f"the text contains a lone surrogate, which UTF-8 lacks; position={error.start}") from None


class Registry(Protocol):
    """The interface of `schemas` for serialization."""

    async def get(self, subject: str, version: int | None = None) -> Schema: ...
    async def register(self, subject: str, schema: NewSchema) -> Schema: ...
    async def by_id(self, schema_id: int) -> NewSchema: ...
    async def resolved(self, schema: NewSchema) -> dict[str, str]: ...


class SchemaWriter:
    """Encodes values with a schema and prefixes them with its id. `subject` is where a new text is registered."""

    def __init__(self, registry: Registry, schema: AnySchema, *, subject: str) -> None:
        self._registry, self._schema, self._subject = registry, schema, subject
        self._encode: Callable[[Any], bytes] | None = None
        self._prefix = b""

    async def open(self) -> None:
        registered = await self._registered()
        new = NewSchema(text=registered.text, type=registered.type, references=registered.references)
        parsed = parse_schema(registered.type, registered.text, await self._registry.resolved(new))
        self._encode, self._prefix = self._encoder(parsed), prefix_of(registered.id)

    def _encoder(self, parsed: ParsedSchema) -> Callable[[Any], bytes]:
        message = None if isinstance(self._schema, str) else self._schema.message
        if message is None:
            return parsed.encode
        if parsed.type != "PROTOBUF":
            raise Rejected(f"only Protobuf has messages to choose from; message={message} type={parsed.type}")
        encode: Callable[..., bytes] = parsed.encode  # only Protobuf's takes a message
        return partial(encode, message=message)

    async def _registered(self) -> Schema:
        if isinstance(self._schema, NewSchema):
            return await self._registry.register(self._subject, self._schema)
        if isinstance(self._schema, SchemaRef):
            return await self._registry.get(self._schema.subject, self._schema.version)
        return await self._registry.get(self._schema)

    def __call__(self, value: Any) -> bytes:
        assert self._encode is not None, "call open first"
        return self._prefix + self._encode(value)


class SchemaReader:
    """Decodes keys and values by the schema ids in front of them; the latest `MAX_CACHED` schemas are kept.

    `lenient` keeps bytes without a known schema as they are.
    """

    def __init__(self, registry: Registry, *, values: bool = True, keys: bool = False, lenient: bool = False) -> None:
        self._registry = registry
        self._values, self._keys, self._lenient = values, keys, lenient
        self._known: OrderedDict[int, ParsedSchema | None] = OrderedDict()

    async def read(self, records: Iterable[Record]) -> list[Record]:
        records = list(records)
        for schema_id in sorted({schema_id for record in records for schema_id in self._ids(record)}):
            await self._load_schema(schema_id)
        read = [self._read(record) for record in records]
        while len(self._known) > MAX_CACHED:
            self._known.popitem(last=False)
        return read

    def _ids(self, record: Record) -> list[int]:
        parts = [*([record.value] if self._values else []), *([record.key] if self._keys else [])]
        ids = [schema_id_of(part) for part in parts if part is not None]
        return [schema_id for schema_id in ids if schema_id is not None]

    async def _load_schema(self, schema_id: int) -> None:
        if schema_id in self._known:
            self._known.move_to_end(schema_id)
            return
        try:
            schema = await self._registry.by_id(schema_id)
        except UnknownSchema:
            if not self._lenient:
                raise
            self._known[schema_id] = None
            return
        self._known[schema_id] = parse_schema(schema.type, schema.text, await self._registry.resolved(schema))

    def _read(self, record: Record) -> Record:
        try:
            key = self._decoded(record.key) if self._keys else record.key
            value = self._decoded(record.value) if self._values else record.value
        except InvalidRecordValue as error:
            record_name = f"{record.topic}-{record.partition}@{record.offset}"
            raise InvalidRecordValue(f"{error.reason}; record={record_name}", path=error.path) from None
        return record._replace(key=key, value=value)

    def _decoded(self, data: bytes | None) -> Any:
        if data is None:
            return None
        schema_id = schema_id_of(data)
        parsed = None if schema_id is None else self._known[schema_id]
        if parsed is None:
            if self._lenient:
                return data
            raise InvalidRecordValue("it does not begin with the id of a schema; read it without decode=True")
        try:
            return parsed.decode(memoryview(data)[PREFIX_BYTES:])
        except InvalidRecordValue:
            if self._lenient:
                return data
            raise
