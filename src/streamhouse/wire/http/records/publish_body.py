"""Publication: what a request says about its records, added up, and each record made of it.

Data path   shapes -> **publication** -> NewRecords -> broker.records
Owns        which of the query, the body and the record decides; every flaw with its place
Leaves      bytes to `formats` and `schemas`
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from msgspec import UNSET, Raw

from streamhouse.model.record import Acks, NewRecord
from streamhouse.wire.http.errors import MAX_FLAWS, Flaw, Unprocessable
from streamhouse.wire.http.records.formats import BAD_VALUE, Writer, bytes_of, flaw_of, headers_of, reject
from streamhouse.wire.http.records.schema_encoding import Deadline, SchemaEncoding
from streamhouse.wire.http.records.types import Format, Publication, PublicationQuery, RecordShape

Part = Literal["key", "value"]
PARTS: Final[Sequence[Part]] = ("key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What holds for records that don't say otherwise. A writer, where there is one, decides before these formats."""

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
    """The body decides before the query."""
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
    """How keys or values are written: by one of these, or nobody says."""

    schema_id: int | None = None
    subject: str | None = None
    format: Format | None = None


def schema_choice(part: Part, query: PublicationQuery, body: Publication | None) -> SchemaChoice:
    """What the body says, else the query; raises where one of them says two things."""
    ways = [_chosen(part, each) for each in (body, query) if each is not None]
    for way in ways:
        if sum(each is not None for each in way) > 1:
            reason = f"give one of {part}_schema_id, {part}_subject and {part}_format"
            raise Unprocessable(reason, flaws=[Flaw(path="$", reason=reason)])
    return next((way for way in ways if any(way)), SchemaChoice())


def _chosen(part: Part, given: Publication | PublicationQuery) -> SchemaChoice:
    if part == "key":
        return SchemaChoice(given.key_schema_id or None, given.key_subject or None, given.key_format or None)
    return SchemaChoice(
        given.value_schema_id or None, given.value_subject or None, given.value_format or given.format or None
    )


async def encode_records(
    shapes: Sequence[RecordShape], defaults: Defaults, encoding: SchemaEncoding
) -> list[NewRecord]:
    """As `new_records`; those that are written with schemas, beside the event loop."""
    if not defaults.has_writer:
        return new_records(shapes, defaults)
    return await encoding.run(
        lambda deadline: new_records(shapes, prepare_values(shapes, defaults, encoding, deadline), check=deadline.check)
    )


def prepare_values(
    shapes: Iterable[RecordShape], defaults: Defaults, encoding: SchemaEncoding, deadline: Deadline
) -> Defaults:
    """Writers that know the values which take long; for threads."""
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
    """The records of a body; raises `Unprocessable` naming what is wrong with which. Nothing is published then.

    `check` is called before each.
    """
    records: list[NewRecord] = []
    flaws: list[Flaw] = []
    for number, shape in enumerate(shapes):
        check()
        try:
            records.append(new_record(shape, defaults))
        except BAD_VALUE:
            flaws.extend(_flaws(number, shape, defaults))
            if len(flaws) >= MAX_FLAWS:
                break
    if flaws:
        raise reject(flaws)
    return records


def new_record(shape: RecordShape, defaults: Defaults) -> NewRecord:
    key = _key(shape, defaults) if shape.key else None  # an empty part is one that isn't there
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


def _flaws(number: int, shape: RecordShape, defaults: Defaults) -> list[Flaw]:
    """Which parts of a record are wrong; asked only when one is."""
    parts: list[tuple[str, Callable[[], object]]] = [
        ("key", lambda: _key(shape, defaults)),
        ("value", lambda: _value(shape, defaults)),
        ("headers", lambda: headers_of(shape.headers)),
    ]
    found: list[Flaw] = []
    for name, made in parts:
        try:
            made()
        except BAD_VALUE as error:
            found.append(flaw_of(f"$.records[{number}].{name}", error))
    return found
