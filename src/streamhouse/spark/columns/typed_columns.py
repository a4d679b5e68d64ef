"""Typed columns: the fields of records, and what is known of a record besides, in columns that begin with `_`.

Data path   read_columns -> **TypedShape** -> Arrow -> Spark
Owns        which columns there are; what becomes of records that can't be decoded: the read fails, or two columns tell
Leaves      decoding to `typed_decoder`, types to each language, schemas to `registry`
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, BooleanType, DataType, StringType, StructField, StructType

from streamhouse.errors import InvalidRecordValue, Misconfigured
from streamhouse.format.columnar_decoder import Column, Columns
from streamhouse.model.names import TopicPartition
from streamhouse.spark.columns import METADATA_PREFIX
from streamhouse.spark.columns.record_columns import ARRAYS, binary_array, required_columns
from streamhouse.spark.columns.record_schema import TYPES
from streamhouse.spark.columns.typed_decoder import Decoded, Decoder, ReaderSchema, fields_of, is_single_column

_ALWAYS: Final = ("key", "topic", "partition", "offset", "timestamp")
ERROR: Final = "error"
VALUE: Final = "value"
DELETED: Final = "deleted"
"""Whether a record has no value; only there when it is asked for by name."""
_ERRORS: Final[Mapping[str, DataType]] = {ERROR: StringType(), VALUE: BinaryType()}
"""Of a record that can't be decoded: why, and its bytes; null for all others, unless all bytes are wanted."""


def typed_schema(
    schema: ReaderSchema, *, include_headers: bool, keep_errors: bool = False, prefix: str = METADATA_PREFIX
) -> StructType:
    """The record's columns, then those about it, unless a record has one of that name itself."""
    own = own_types(schema)
    about = (*_ALWAYS, "headers") if include_headers else _ALWAYS
    others = {prefix + name: TYPES[name] for name in about if prefix + name not in own}
    errors = {prefix + name: kind for name, kind in _ERRORS.items()} if keep_errors else {}
    for name in errors:
        if name in own:
            raise Misconfigured(
                f"records have a column of this name themselves; column={name}"
                " do=set metadataPrefix to another one, such as _record_"
            )
    return StructType([StructField(name, kind) for name, kind in {**own, **others, **errors}.items()])


def own_types(schema: ReaderSchema) -> dict[str, DataType]:
    """The fields of records themselves, whatever their names."""
    return {field.name: field.kind.spark for field in fields_of(schema.parsed())}


def check_typed(
    schema: StructType, reader: ReaderSchema, *, keep_errors: bool = False, prefix: str = METADATA_PREFIX
) -> None:
    """Raise `Misconfigured` unless these are columns of the record, or about it."""
    known = typed_schema(reader, include_headers=True, keep_errors=keep_errors, prefix=prefix)
    if prefix + DELETED not in known.names:
        known = StructType([*known.fields, StructField(prefix + DELETED, BooleanType())])
    for field in schema.fields:
        if field.name not in known.fieldNames():
            names = ",".join(known.names)
            raise Misconfigured(f"the schema has no such field; column={field.name} do=name some of {names}")
        kind = known[field.name].dataType.simpleString()
        if field.dataType.simpleString() != kind:
            raise Misconfigured(f"a column has another type; column={field.name} type={kind} do=read it so, then cast")


@dataclass(frozen=True, slots=True)
class TypedRecordBatchBuilder:
    """The columns of an answer, in Spark's order and with Spark's types; `decoder` is None where none is a field."""

    arrow: pa.Schema
    wanted: Column
    decoder: Decoder | None
    keep_errors: bool
    keep_values: bool = False
    prefix: str = METADATA_PREFIX

    @classmethod
    def of(
        cls,
        schema: StructType,
        reader: ReaderSchema,
        address: str,
        *,
        keep_errors: bool = False,
        keep_values: bool = False,
        prefix: str = METADATA_PREFIX,
    ) -> "TypedRecordBatchBuilder":
        parsed = reader.parsed()
        fields = fields_of(parsed)
        own = {field.name: field for field in fields}
        errors = {prefix + name for name in _ERRORS} if keep_errors else set()
        names = [name for name in schema.fieldNames() if name not in own and name not in errors]
        chosen = [name for name in schema.fieldNames() if name in own]
        if not chosen and not errors.isdisjoint(schema.fieldNames()):
            chosen = list(own)  # whether a record can be decoded is asked of all of it
        wanted = required_columns([name.removeprefix(prefix) for name in names])
        decoder = None
        if chosen:
            wanted |= Column.VALUE | Column.OFFSET
            kinds = to_arrow_schema(
                StructType([StructField(name, own[name].kind.spark) for name in chosen]), timezone="UTC"
            )
            decoder = Decoder(kinds, [own[name] for name in chosen], is_single_column(fields), parsed, address)
        return cls(to_arrow_schema(schema, timezone="UTC"), wanted, decoder, keep_errors, keep_values, prefix)

    def record_batch(self, columns: Columns, place: TopicPartition, *, shift: int = 0) -> pa.RecordBatch:
        decoded = self._decoded(columns, place, shift)
        made = {} if self.decoder is None else dict(zip(self.decoder.columns.names, decoded.arrays, strict=True))
        if self.keep_errors:
            found = _error_columns(columns, decoded.wrong)
            made |= {self.prefix + name: array for name, array in found.items()}
        if self.keep_values and self.prefix + VALUE in self.arrow.names:
            made[self.prefix + VALUE] = binary_array(pa.binary(), columns.value)
        arrays = [
            made[field.name]
            if field.name in made
            else ARRAYS[field.name.removeprefix(self.prefix)](field.type, columns, place, shift)
            for field in self.arrow
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _decoded(self, columns: Columns, place: TopicPartition, shift: int) -> Decoded:
        """Raises `InvalidRecordValue` for the first record that can't be decoded, where nobody wants to be told."""
        if self.decoder is None:
            return Decoded([], {})
        assert columns.value is not None
        decoded = self.decoder.decode(columns.value)
        if not decoded.wrong:
            return decoded
        wrong = {
            row: _with_record_position(error, columns, place, row, shift)
            for row, error in sorted(decoded.wrong.items())
        }
        if not self.keep_errors:
            first = next(iter(wrong.values()))
            help_ = "do=set decodeErrors=columns to be told in a column, or read it without schema=registry"
            raise InvalidRecordValue(f"{first.reason} {help_}", path=first.path)
        return Decoded(_without(decoded.arrays, wrong), wrong)


def _with_record_position(
    error: InvalidRecordValue, columns: Columns, place: TopicPartition, row: int, shift: int
) -> InvalidRecordValue:
    assert columns.offset is not None
    offset = int(np.frombuffer(columns.offset, dtype=np.int64)[row]) + shift
    return InvalidRecordValue(f"{error.reason}; record={place}@{offset}", path=error.path)


def _without(arrays: list[pa.Array], wrong: Mapping[int, InvalidRecordValue]) -> list[pa.Array]:
    """Records that are wrong in one column have nothing in the others either."""
    if not arrays:
        return []
    rows = len(arrays[0])
    is_wrong = np.zeros(rows, dtype=np.bool_)
    is_wrong[list(wrong)] = True
    indices = pa.array(np.arange(rows), mask=is_wrong)
    return [array.take(indices) for array in arrays]


def _error_columns(columns: Columns, wrong: Mapping[int, InvalidRecordValue]) -> dict[str, pa.Array]:
    texts = pa.nulls(columns.rows, pa.string())
    values = pa.nulls(columns.rows, pa.binary())
    if wrong:
        texts = pa.array([str(wrong[row]) if row in wrong else None for row in range(columns.rows)], pa.string())
        places = pa.array([row if row in wrong else None for row in range(columns.rows)], pa.int64())
        values = binary_array(pa.binary(), columns.value).take(places)
    return {ERROR: texts, VALUE: values}
