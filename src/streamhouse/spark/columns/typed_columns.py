"""Typed columns: the fields of records, and metadata columns, which begin with `_`.

Data path   read_columns -> **TypedRecordBatchBuilder** -> Arrow -> Spark
Owns        which columns there are; malformed records: the read fails, or two columns have the error
Leaves      decoding to `typed_decoder`, types to each language, schemas to the registry
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
"""Whether a record has no value; only in a schema that names it."""
_ERRORS: Final[Mapping[str, DataType]] = {ERROR: StringType(), VALUE: BinaryType()}
"""The error and the bytes of a malformed record; null for all others, unless `keep_values`."""


def typed_schema(
    schema: ReaderSchema, *, include_headers: bool, keep_errors: bool = False, prefix: str = METADATA_PREFIX
) -> StructType:
    """The record's columns, then metadata columns, unless a record has a column of that name."""
    own = own_types(schema)
    metadata = (*_ALWAYS, "headers") if include_headers else _ALWAYS
    others = {prefix + name: TYPES[name] for name in metadata if prefix + name not in own}
    errors = {prefix + name: kind for name, kind in _ERRORS.items()} if keep_errors else {}
    for name in errors:
        if name in own:
            raise Misconfigured(
                f"records have a column of this name themselves; column={name}"
                " do=set metadataPrefix to another one, such as _record_"
            )
    return StructType([StructField(name, kind) for name, kind in {**own, **others, **errors}.items()])


def own_types(schema: ReaderSchema) -> dict[str, DataType]:
    """The types of the records' own fields."""
    return {field.name: field.kind.spark for field in fields_of(schema.parsed())}


def check_typed(
    schema: StructType, reader: ReaderSchema, *, keep_errors: bool = False, prefix: str = METADATA_PREFIX
) -> None:
    """Raise `Misconfigured` unless these are columns of the record, or metadata columns."""
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
    """Builds the columns of a query, in Spark's order and with Spark's types; `decoder` is None if none is a field."""

    arrow: pa.Schema
    required: Column
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
            chosen = list(own)  # a record is malformed if any of its fields is
        required = required_columns([name.removeprefix(prefix) for name in names])
        decoder = None
        if chosen:
            required |= Column.VALUE | Column.OFFSET
            kinds = to_arrow_schema(
                StructType([StructField(name, own[name].kind.spark) for name in chosen]), timezone="UTC"
            )
            decoder = Decoder(kinds, [own[name] for name in chosen], is_single_column(fields), parsed, address)
        return cls(to_arrow_schema(schema, timezone="UTC"), required, decoder, keep_errors, keep_values, prefix)

    def record_batch(self, columns: Columns, partition: TopicPartition, *, shift: int = 0) -> pa.RecordBatch:
        decoded = self._decoded(columns, partition, shift)
        made = {} if self.decoder is None else dict(zip(self.decoder.columns.names, decoded.arrays, strict=True))
        if self.keep_errors:
            error_columns = _error_columns(columns, decoded.wrong)
            made |= {self.prefix + name: array for name, array in error_columns.items()}
        if self.keep_values and self.prefix + VALUE in self.arrow.names:
            made[self.prefix + VALUE] = binary_array(pa.binary(), columns.value)
        arrays = [
            made[field.name]
            if field.name in made
            else ARRAYS[field.name.removeprefix(self.prefix)](field.type, columns, partition, shift)
            for field in self.arrow
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _decoded(self, columns: Columns, partition: TopicPartition, shift: int) -> Decoded:
        """Raises `InvalidRecordValue` for the first malformed record unless `keep_errors`."""
        if self.decoder is None:
            return Decoded([], {})
        assert columns.value is not None
        decoded = self.decoder.decode(columns.value)
        if not decoded.wrong:
            return decoded
        wrong = {
            row: _with_record_position(error, columns, partition, row, shift)
            for row, error in sorted(decoded.wrong.items())
        }
        if not self.keep_errors:
            first = next(iter(wrong.values()))
            help_ = "do=set decodeErrors=columns to have the error in a column, or read it without schema=registry"
            raise InvalidRecordValue(f"{first.reason} {help_}", path=first.path)
        return Decoded(_without(decoded.arrays, wrong), wrong)


def _with_record_position(
    error: InvalidRecordValue, columns: Columns, partition: TopicPartition, row: int, shift: int
) -> InvalidRecordValue:
    assert columns.offset is not None
    offset = int(np.frombuffer(columns.offset, dtype=np.int64)[row]) + shift
    return InvalidRecordValue(f"{error.reason}; record={partition}@{offset}", path=error.path)


def _without(arrays: list[pa.Array], wrong: Mapping[int, InvalidRecordValue]) -> list[pa.Array]:
    """Records that are malformed in one column are null in the others, too."""
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
        rows = pa.array([row if row in wrong else None for row in range(columns.rows)], pa.int64())
        values = binary_array(pa.binary(), columns.value).take(rows)
    return {ERROR: texts, VALUE: values}
