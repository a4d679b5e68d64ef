"""Publication: what a request says about its records, added up, and each record made of it.

Data path   shapes -> **publication** -> NewRecords -> broker.records
Owns        which of the query, the body and the record decides; every flaw with its place
Leaves      bytes to `payloads` and `schemas`
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec import UNSET, Raw

from streamhouse.model.record import Acks, NewRecord
from streamhouse.wire.http.errors import MAX_FLAWS, Flaw, Unprocessable

from .payloads import BAD_VALUE, bytes_of, flaw_of, headers_of, refuse
from .schemas import Writer
from .shapes import Format, Publication, PublicationQuery, RecordShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What holds for records that don't say otherwise. A writer, where there is one, decides before any format."""

    acks: Acks
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    key_format: Format = "text"
    value_format: Format = "json"
    key_writer: Writer | None = None
    value_writer: Writer | None = None


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
        key_format=said.key_format or query.key_format,
        value_format=said.value_format or said.format or query.value_format or query.format or "json",
        key_writer=key_writer,
        value_writer=value_writer,
    )


def check_schemas(body: Publication) -> None:
    """Raise where a part has more than one thing that says how it is written."""
    for part, ways in (
        ("key", (body.key_schema_id, body.key_subject, body.key_format)),
        ("value", (body.value_schema_id, body.value_subject, body.value_format or body.format)),
    ):
        if sum(way is not None for way in ways) > 1:
            reason = f"give one of {part}_schema_id, {part}_subject and {part}_format"
            raise Unprocessable(reason, flaws=[Flaw(path="$", reason=reason)])


def new_records(shapes: Iterable[RecordShape], defaults: Defaults) -> list[NewRecord]:
    """The records of a body; raises `Unprocessable` naming what is wrong with which. Nothing is published then."""
    records: list[NewRecord] = []
    flaws: list[Flaw] = []
    for number, shape in enumerate(shapes):
        try:
            records.append(new_record(shape, defaults))
        except BAD_VALUE:
            flaws.extend(_flaws(number, shape, defaults))
            if len(flaws) >= MAX_FLAWS:
                break
    if flaws:
        raise refuse(flaws)
    return records


def new_record(shape: RecordShape, defaults: Defaults) -> NewRecord:
    key = _key(shape, defaults) if shape.key else None  # an empty part is one that isn't there
    return NewRecord(
        _part(shape.value, shape.value_format or defaults.value_format, defaults.value_writer),
        defaults.key if key is None else key,
        headers_of(shape.headers) if shape.headers else (),
        defaults.timestamp_ms if shape.timestamp_ms is None else shape.timestamp_ms,
        defaults.partition if shape.partition is None else shape.partition,
    )


def _key(shape: RecordShape, defaults: Defaults) -> bytes | None:
    return _part(shape.key, shape.key_format or defaults.key_format, defaults.key_writer)


def _part(raw: Raw, form: Format, writer: Writer | None) -> bytes | None:
    return bytes_of(raw, form) if writer is None else writer.bytes_of(raw)


def _flaws(number: int, shape: RecordShape, defaults: Defaults) -> list[Flaw]:
    """Which parts of a record are wrong; asked only when one is."""
    form = shape.value_format or defaults.value_format
    parts: list[tuple[str, Callable[[], object]]] = [
        ("key", lambda: _key(shape, defaults)),
        ("value", lambda: _part(shape.value, form, defaults.value_writer)),
        ("headers", lambda: headers_of(shape.headers)),
    ]
    found: list[Flaw] = []
    for name, made in parts:
        try:
            made()
        except BAD_VALUE as error:
            found.append(flaw_of(f"$.records[{number}].{name}", error))
    return found
