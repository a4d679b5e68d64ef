"""Decodes a batch of values into the columns of their fields, by the schemas that wrote them.

Data path   values -> schema ids -> **Decoder** -> Arrow arrays, and errors by row
Owns        the subject of a topic's values; schemas cached by the process; which rows have which schema
Leaves      the registry's routes to `client.schemas`, whole columns at once to `vectorized_decoder`, types to each
            language, what becomes of malformed records to `typed_columns`
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from streamhouse.client.schemas import Schemas
from streamhouse.client.types import NewSchema
from streamhouse.errors import InvalidRecordValue, Misconfigured, UnknownSchema, UnknownSubject
from streamhouse.format.columnar_decoder import Binary
from streamhouse.format.payload_decoder import IS_READ, IS_UNREADABLE
from streamhouse.format.schema_id import MAGIC, PREFIX_BYTES
from streamhouse.schemas import parse_schema
from streamhouse.schemas.avro import AvroSchema
from streamhouse.schemas.base import ParsedSchema
from streamhouse.schemas.json_schema import JsonSchema
from streamhouse.schemas.protobuf.schema import ProtobufSchema
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.agents.client import AgentClient, run_on_loop
from streamhouse.spark.columns import avro_columns, column_types, protobuf_columns
from streamhouse.spark.columns.arrow_builders import chosen_from
from streamhouse.spark.columns.column_types import ColumnType, Field, field_value
from streamhouse.spark.columns.vectorized_decoder import VectorizedDecoder, vectorized_decoder

MAX_SCHEMAS: Final = 1_000
VALUE: Final = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSchema:
    """The schema whose fields are the columns; small enough to travel with a query."""

    type: str
    text: str
    references: tuple[tuple[str, str], ...]

    def parsed(self) -> ParsedSchema:
        return parse_schema(self.type, self.text, dict(self.references))


def subject_of(topic: str) -> str:
    """Where the schemas of a topic's values are registered."""
    return f"{topic}-value"


async def latest_schema(address: AgentAddress, topic: str) -> ReaderSchema:
    """The latest version of what a topic's values are; raises `Misconfigured` where none is registered."""
    schema = await find_schema(address, topic)
    if schema is None:
        raise Misconfigured(
            f"no schema is registered for the topic; subject={subject_of(topic)}"
            " do=register one: streamhouse schemas register, or leave schema=registry out"
        )
    return schema


async def find_schema(address: AgentAddress, topic: str) -> ReaderSchema | None:
    """The latest version of what a topic's values are; None where none is registered."""
    async with AgentClient(address) as agents:
        schemas = Schemas(agents.http)
        try:
            latest = await schemas.latest(subject_of(topic))
        except (UnknownSubject, UnknownSchema):
            return None
        new = NewSchema(text=latest.text, type=latest.type, references=latest.references)
        references = await schemas.resolved(new)
    return ReaderSchema(type=latest.type, text=latest.text, references=tuple(sorted(references.items())))


def fields_of(schema: ParsedSchema) -> list[Field]:
    """The columns; what is no record has one, named `value`."""
    fields: list[Field] | None = None
    kind: ColumnType | None = None
    if isinstance(schema, AvroSchema):
        fields, kind = avro_columns.fields_of(schema), avro_columns.column_type(schema)
    elif isinstance(schema, JsonSchema):
        fields, kind = column_types.fields_of(schema), column_types.column_type(schema)
    elif isinstance(schema, ProtobufSchema):
        fields = protobuf_columns.fields_of(schema)
    if fields is not None:
        return fields
    assert kind is not None, "a language without columns"
    return [Field(VALUE, "", kind)]


def is_single_column(fields: list[Field]) -> bool:
    """Whether a decoded value is the column itself."""
    return len(fields) == 1 and not fields[0].key


@lru_cache(maxsize=MAX_SCHEMAS)
def writer_schema(address: AgentAddress, schema_id: int) -> ParsedSchema:
    """The schema behind an id, which never means another one."""
    return run_on_loop(_by_id(address, schema_id))


async def _by_id(address: AgentAddress, schema_id: int) -> ParsedSchema:
    async with AgentClient(address) as agents:
        schemas = Schemas(agents.http)
        schema = await schemas.by_id(schema_id)
        return parse_schema(schema.type, schema.text, await schemas.resolved(schema))


_UNFRAMED: Final = "it does not begin with the id of a schema"
_FIELD_ERRORS: Final = (ValueError, TypeError, ArithmeticError, AttributeError, pa.ArrowException)

Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"
Numbers: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"


class Decoded(NamedTuple):
    """Columns, in which records that are wrong have nothing, and what is wrong with them by their rows."""

    arrays: list[pa.Array]
    wrong: dict[int, InvalidRecordValue]


class Framed(NamedTuple):
    """Which rows have a value, which of them a schema's id in front, and which one."""

    is_value: "np.ndarray[Any, np.dtype[np.bool_]]"
    is_framed: "np.ndarray[Any, np.dtype[np.bool_]]"
    ids: Numbers


@dataclass(frozen=True, slots=True)
class Decoder:
    """The columns of a read; a vectorised decoder is created with the first record of a schema."""

    columns: pa.Schema
    fields: Sequence[Field]
    is_single_column: bool
    reader: ParsedSchema
    address: AgentAddress
    _quick: dict[int, VectorizedDecoder | None] = field(default_factory=dict)

    def decode(self, values: Binary) -> Decoded:
        framed = framing_of(values)
        wrong = {row: InvalidRecordValue(_UNFRAMED) for row in rows_of(framed.is_value & ~framed.is_framed)}
        parts: list[list[pa.Array]] = []
        which = np.zeros(values.rows, dtype=np.int64)
        for schema_id in np.unique(framed.ids[framed.is_framed]).tolist():
            rows = framed.is_framed & (framed.ids == schema_id)
            which[rows] = len(parts)
            parts += self._of_schema(schema_id, values, rows, wrong, which, len(parts))
        return Decoded(self._joined(parts, which, values.rows), wrong)

    def _joined(self, parts: list[list[pa.Array]], which: Numbers, rows: int) -> list[pa.Array]:
        if not parts:
            return [pa.nulls(rows, column.type) for column in self.columns]
        if len(parts) == 1:
            return parts[0]
        indices = pa.array(which * rows + np.arange(rows))
        return [chosen_from([part[at] for part in parts], indices) for at in range(len(self.columns))]

    def _of_schema(
        self,
        schema_id: int,
        values: Binary,
        rows: Any,
        wrong: dict[int, InvalidRecordValue],
        which: Numbers,
        first: int,
    ) -> Iterator[list[pa.Array]]:
        """The columns of one schema's rows, the others null; then of those that aren't vectorised, if any."""
        try:
            writer = writer_schema(self.address, schema_id)
        except UnknownSchema as error:
            wrong.update({row: InvalidRecordValue(str(error)) for row in rows_of(rows)})
            rows = np.zeros(values.rows, dtype=np.bool_)
            yield self._one_by_one(None, values, rows, wrong)
            return
        quick = self._vectorized_decoder(schema_id, writer)
        if quick is None:
            yield self._one_by_one(writer, values, rows, wrong)
            return
        states = bytearray((rows * np.uint8(IS_READ)).tobytes())
        yield quick(values, states)
        rest = np.frombuffer(states, dtype=np.uint8) == IS_UNREADABLE
        if rest.any():
            which[rest] = first + 1
            yield self._one_by_one(writer, values, rest, wrong)

    def _vectorized_decoder(self, schema_id: int, writer: ParsedSchema) -> VectorizedDecoder | None:
        if schema_id not in self._quick:
            has_text = self.is_single_column or any(each.kind.has_text for each in self.fields)
            self._quick[schema_id] = vectorized_decoder(writer, self.reader, self.columns, has_text=has_text)
        return self._quick[schema_id]

    def _one_by_one(
        self, writer: ParsedSchema | None, values: Binary, rows: Any, wrong: dict[int, InvalidRecordValue]
    ) -> list[pa.Array]:
        decoded: list[Any] = [None] * values.rows
        offsets = np.frombuffer(values.offsets, dtype=np.int32)
        for row in rows_of(rows):
            payload = bytes(values.data[offsets[row] + PREFIX_BYTES : offsets[row + 1]])
            try:
                assert writer is not None
                decoded[row] = writer.decode(payload)
            except InvalidRecordValue as error:
                wrong[row] = error
        return [self._array(index, decoded, wrong) for index in range(len(self.columns))]

    def _array(self, index: int, decoded: list[Any], wrong: dict[int, InvalidRecordValue]) -> pa.Array:
        column, own = self.columns.field(index), self.fields[index]
        try:
            return pa.array([self._value(own, value) for value in decoded], type=column.type)
        except _FIELD_ERRORS:
            return pa.array(list(self._fitting(column, own, decoded, wrong)), type=column.type)

    def _value(self, own: Field, value: Any) -> Any:
        if self.is_single_column:
            return own.kind.value(value)
        return None if value is None else field_value(own, value)

    def _fitting(
        self, column: pa.Field, own: Field, decoded: list[Any], wrong: dict[int, InvalidRecordValue]
    ) -> Iterator[Any]:
        """Each value, or None where it is none of the column's type."""
        for row, value in enumerate(decoded):
            try:
                made = self._value(own, value)
                pa.array([made], type=column.type)
            except _FIELD_ERRORS as error:
                reason = f"a value is none of the column's type; type={column.type} why={error}"
                wrong.setdefault(row, InvalidRecordValue(reason, path=f"/{column.name}"))
                made = None
            yield made


def rows_of(chosen: Any) -> list[int]:
    return [int(row) for row in np.flatnonzero(chosen)]


def framing_of(values: Binary) -> Framed:
    """The prefixes of all values, decoded at once."""
    rows = values.rows
    is_value = np.ones(rows, dtype=np.bool_)
    if values.validity is not None:
        bits = np.unpackbits(np.frombuffer(values.validity, dtype=np.uint8), bitorder="little")
        is_value = bits[:rows].astype(np.bool_)
    offsets = np.frombuffer(values.offsets, dtype=np.int32).astype(np.int64)
    # Five bytes more, so that there are bytes behind each position; they count for nothing.
    data: Bytes = np.frombuffer(bytes(values.data) + bytes(PREFIX_BYTES), dtype=np.uint8)
    starts = offsets[:-1]
    is_framed = is_value & (offsets[1:] - starts >= PREFIX_BYTES) & (data[starts] == MAGIC)
    ids = np.zeros(rows, dtype=np.int64)
    for step in range(1, PREFIX_BYTES):
        ids = ids << 8 | data[starts + step]
    return Framed(is_value, is_framed, ids.astype(np.uint32).astype(np.int32).astype(np.int64))
