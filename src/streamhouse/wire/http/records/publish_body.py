"""Publish bodies: options and records of a request become `NewRecord`s.

Data path   types -> **publish_body** -> NewRecords -> broker.records
Owns        the precedence of query, body and record; the path of every field error
Leaves      bytes to `formats` and `schemas`
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from msgspec import UNSET, Raw

from streamhouse.limits import LargeWork
from streamhouse.model.record import Acks, NewRecord
from streamhouse.wire.http.errors import MAX_FIELD_ERRORS, FieldError, Unprocessable
from streamhouse.wire.http.records.formats import BAD_VALUE, Writer, bytes_of, field_error, headers_of, reject
from streamhouse.wire.http.records.schema_encoding import Deadline, SchemaEncoding
from streamhouse.wire.http.records.types import Format, Publication, PublicationQuery, RecordShape

Part = Literal["key", "value"]
PARTS: Final[Sequence[Part]] = ("key", "value")

INLINE_ELEMENTS: Final = 1000
"""Records and headers up to which a body is converted on the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Options of records that don't set their own. A schema writer takes precedence over the formats."""

    acks: Acks
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    key_format: Format = "text"
    value_format: Format = "json"
    key_writer: Writer | None = None
    value_writer: Writer | None = None

    @property
    def has_writer(self) -> bool:
        return self.key_writer is not None or self.value_writer is not None


def defaults_of(
    query: PublicationQuery,
    body: Publication | None = None,
    *,
    key_writer: Writer | None = None,
    value_writer: Writer | None = None,
) -> Defaults:
    """The body takes precedence over the query."""
    said = body or Publication(records=[])
    return Defaults(
        acks=said.acks or query.acks,
        key=None if query.key is UNSET else query.key.encode(),
        partition=None if query.partition is UNSET else query.partition,
        timestamp_ms=None if query.timestamp_ms is UNSET else query.timestamp_ms,
        key_format=said.key_format or query.key_format or "text",
        value_format=said.value_format or said.format or query.value_format or query.format or "json",
        key_writer=key_writer,
        value_writer=value_writer,
    )


class SchemaChoice(NamedTuple):
    """The schema of keys or values: an id, a subject, or none."""

    schema_id: int | None = None
    subject: str | None = None
    format: Format | None = None


def schema_choice(part: Part, query: PublicationQuery, body: Publication | None) -> SchemaChoice:
    """The choice of the body, or else of the query; raises if one of them sets both an id and a subject."""
    ways = [_chosen(part, each) for each in (body, query) if each is not None]
    for way in ways:
        if sum(each is not None for each in way) > 1:
            reason = f"give one of {part}_schema_id, {part}_subject and {part}_format"
            raise Unprocessable(reason, field_errors=[FieldError(path="$", reason=reason)])
    return next((way for way in ways if any(way)), SchemaChoice())


def _chosen(part: Part, options: Publication | PublicationQuery) -> SchemaChoice:
    if part == "key":
        return SchemaChoice(options.key_schema_id or None, options.key_subject or None, options.key_format or None)
    return SchemaChoice(
        options.value_schema_id or None, options.value_subject or None, options.value_format or options.format or None
    )


async def encode_records(
    shapes: Sequence[RecordShape], defaults: Defaults, encoding: SchemaEncoding, large_bodies: LargeWork
) -> list[NewRecord]:
    """Like `new_records`; records with schemas, and many records or headers, are encoded in a thread."""
    if not defaults.has_writer:
        return await large_bodies.run(lambda: new_records(shapes, defaults), is_large=_is_large(shapes))
    return await encoding.run(
        lambda deadline: new_records(shapes, prepare_values(shapes, defaults, encoding, deadline), check=deadline.check)
    )


def prepare_values(
    shapes: Iterable[RecordShape], defaults: Defaults, encoding: SchemaEncoding, deadline: Deadline
) -> Defaults:
    """Writers with the results of expensive values; runs in a thread."""
    key, value = defaults.key_writer, defaults.value_writer
    if key is not None:
        keys = (bytes(shape.key) for shape in shapes if shape.key and not shape.key_format)
        key = key._replace(encoded=encoding.encode(key.schema, keys, deadline))
    if value is not None:
        values = (bytes(shape.value) for shape in shapes if shape.value and not shape.value_format)
        value = value._replace(encoded=encoding.encode(value.schema, values, deadline))
    return replace(defaults, key_writer=key, value_writer=value)


def new_records(
    shapes: Iterable[RecordShape], defaults: Defaults, *, check: Callable[[], None] = lambda: None
) -> list[NewRecord]:
    """The records of a body; raises `Unprocessable` with all field errors, and nothing is published then. `check` is
    called before each record."""
    records: list[NewRecord] = []
    field_errors: list[FieldError] = []
    for number, shape in enumerate(shapes):
        check()
        try:
            records.append(new_record(shape, defaults))
        except BAD_VALUE:
            field_errors += _field_errors(number, shape, defaults)
            if len(field_errors) >= MAX_FIELD_ERRORS:
                break
    if field_errors:
        raise reject(field_errors)
    return records


def _is_large(shapes: Sequence[RecordShape]) -> bool:
    return len(shapes) > INLINE_ELEMENTS or sum(len(shape.headers) for shape in shapes) > INLINE_ELEMENTS


def new_record(shape: RecordShape, defaults: Defaults) -> NewRecord:
    key = _key(shape, defaults) if shape.key else None  # an empty text means no key or value
    return NewRecord(
        _value(shape, defaults),
        defaults.key if key is None else key,
        headers_of(shape.headers) if shape.headers else (),
        defaults.timestamp_ms if shape.timestamp_ms is None else shape.timestamp_ms,
        defaults.partition if shape.partition is None else shape.partition,
    )


def _key(shape: RecordShape, defaults: Defaults) -> bytes | None:
    return _part(shape.key, shape.key_format, defaults.key_format, defaults.key_writer)


def _value(shape: RecordShape, defaults: Defaults) -> bytes | None:
    return _part(shape.value, shape.value_format, defaults.value_format, defaults.value_writer)


def _part(raw: Raw, own: Format | None, form: Format, writer: Writer | None) -> bytes | None:
    return bytes_of(raw, own or form) if own or writer is None else writer.bytes_of(raw)


def _field_errors(number: int, shape: RecordShape, defaults: Defaults) -> list[FieldError]:
    """The field errors of an invalid record."""
    parts: list[tuple[str, Callable[[], object]]] = [
        ("key", lambda: _key(shape, defaults)),
        ("value", lambda: _value(shape, defaults)),
        ("headers", lambda: headers_of(shape.headers)),
    ]
    errors: list[FieldError] = []
    for name, made in parts:
        try:
            made()
        except BAD_VALUE as error:
            errors.append(field_error(f"$.records[{number}].{name}", error))
    return errors
