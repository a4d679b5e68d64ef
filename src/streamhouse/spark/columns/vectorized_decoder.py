"""Vectorized decoder: payloads of one writer's schema to columns, without an object per record.

Data path   values with one schema id -> **vectorized_decoder** -> arrays, and the rows that it could not decode
Owns        the decoder of each schema language; validity of texts and decimals; bisecting batches in which a few
            payloads can't be decoded
Leaves      plans to `vectorized_avro` and `vectorized_protobuf`, bytes to `format.payload_decoder`; marked rows to
            `typed_decoder`
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from streamhouse.errors import Misconfigured
from streamhouse.format.columnar_decoder import Binary
from streamhouse.format.payload_decoder import IS_COMPILED, IS_READ, IS_UNREADABLE, decode_columns, find_objects
from streamhouse.schemas.avro import AvroSchema
from streamhouse.schemas.base import ParsedSchema
from streamhouse.schemas.json_schema import JsonSchema
from streamhouse.schemas.protobuf.schema import ProtobufSchema
from streamhouse.spark.columns.arrow_builders import NotVectorizable, RowPlan, chosen_from
from streamhouse.spark.columns.protobuf_columns import first_message
from streamhouse.spark.columns.vectorized_avro import avro_plan
from streamhouse.spark.columns.vectorized_protobuf import protobuf_plan

FEW_ROWS: Final = 16
"""Batches of at most this many rows are decoded row by row if one of them can't be vectorised."""

VectorizedDecoder = Callable[[Binary, bytearray], list[pa.Array]]
"""Reads the rows whose state is `IS_READ`; the others, and those that it marks `IS_UNREADABLE`, are null."""

_ODD: Final = (pa.ArrowException, OverflowError, ValueError)


def vectorized_decoder(
    writer: ParsedSchema, reader: ParsedSchema, columns: pa.Schema, *, has_text: bool
) -> VectorizedDecoder | None:
    """The vectorised decoder from one schema to the columns of another one; None if there is none.

    `has_text`: some column is JSON text of whatever a record has there.
    """
    if not IS_COMPILED or has_text:
        return None
    try:
        if isinstance(writer, AvroSchema) and isinstance(reader, AvroSchema):
            return _by_plan(avro_plan(writer.root, reader.root, columns))
        if isinstance(writer, ProtobufSchema) and isinstance(reader, ProtobufSchema):
            return _by_plan(protobuf_plan(first_message(writer), first_message(reader), columns))
        is_json = isinstance(writer, JsonSchema) and isinstance(reader, JsonSchema)
        if is_json and not any(_has_map(field.type) for field in columns):
            return _json(columns)
    except (NotVectorizable, Misconfigured):
        pass
    return None


def _has_map(kind: pa.DataType) -> bool:
    """Arrow reads maps as lists of pairs, which is not what JSON has."""
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(at).type) for at in range(kind.num_fields))


def _by_plan(plan: RowPlan) -> VectorizedDecoder:
    def read(values: Binary, states: bytearray) -> list[pa.Array]:
        return plan.arrays(decode_columns(plan.root, values, states), values.rows)

    return lambda values, states: _decode_with_bisection(read, values, states)


def _json(columns: pa.Schema) -> VectorizedDecoder:
    parsing = pj.ParseOptions(explicit_schema=columns, unexpected_field_behavior="ignore")

    def read(values: Binary, states: bytearray) -> list[pa.Array]:
        data = find_objects(values, states)
        is_read = np.frombuffer(states, dtype=np.uint8) == IS_READ
        count = int(is_read.sum())
        if count == 0:
            return [pa.nulls(values.rows, field.type) for field in columns]
        _check_texts(values, data)
        reading = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = pj.read_json(pa.BufferReader(data), read_options=reading, parse_options=parsing)
        if table.num_rows != count:
            raise ValueError("objects and records are not the same")
        arrays = [table.column(name).combine_chunks() for name in columns.names]
        return arrays if count == values.rows else [chosen_from([array], _spread(is_read)) for array in arrays]

    return lambda values, states: _decode_with_bisection(read, values, states)


def _check_texts(values: Binary, data: bytearray) -> None:
    """JSON is UTF-8, also in fields that are not read."""
    buffers = [None, pa.py_buffer(values.offsets), pa.py_buffer(data)]
    pa.Array.from_buffers(pa.string(), values.rows, buffers, 0).validate(full=True)


def _spread(is_read: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> pa.Array:
    """For each row, which of those that were read it is; null where it is none."""
    return pa.array(np.cumsum(is_read) - 1, mask=~is_read)


def _decode_with_bisection(read: VectorizedDecoder, values: Binary, states: bytearray) -> list[pa.Array]:
    """Odd records make a whole column fail: they are looked for by halves."""
    tried = bytearray(states)
    try:
        arrays = read(values, tried)
        for array in arrays:
            array.validate(full=True)
    except _ODD:
        return _bisect(read, values, states)
    states[:] = tried
    return arrays


def _bisect(read: VectorizedDecoder, values: Binary, states: bytearray) -> list[pa.Array]:
    if values.rows <= FEW_ROWS:
        states[:] = bytes(IS_UNREADABLE if state == IS_READ else state for state in states)
        nothing = bytearray(len(states))  # all null: the types of the columns, and no values
        return read(values, nothing)
    middle = values.rows // 2
    parts: list[Sequence[pa.Array]] = []
    for start, end in ((0, middle), (middle, values.rows)):
        some = states[start:end]
        parts.append(_decode_with_bisection(read, sliced(values, start, end), some))
        states[start:end] = some
    return [pa.concat_arrays(pair) for pair in zip(*parts, strict=True)]


def sliced(values: Binary, start: int, end: int) -> Binary:
    """Some rows, with bytes of their own; states show whether they are null, so that is left out."""
    offsets = np.frombuffer(values.offsets, dtype=np.int32)[start : end + 1]
    data = values.data[offsets[0] : offsets[-1]]
    return Binary(end - start, 0, None, bytearray((offsets - offsets[0]).tobytes()), data)
