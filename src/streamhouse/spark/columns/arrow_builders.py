"""Arrow builders: arrays from the buffers of decoded payloads.

Data path   `format.payload_decoder` -> **arrow_builders** -> typed columns
Owns        a plan's two halves: the node that is read, and the array that is made of it, without an object per value
Leaves      the plan of a schema to `vectorized_avro` and `vectorized_protobuf`
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamhouse.format.payload_decoder import Node, NodeColumn, Op

MAX_MICROS: Final = 2**63 - 1
Make = Callable[[NodeColumn, int], pa.Array]
"""The array of a node; the number is how many entries its parent has, for those that have none of their own."""


class NotVectorizable(Exception):
    """A type that can't be vectorised: it is decoded record by record."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The schema node to decode, and the function that builds its Arrow array."""

    node: Node
    array: Make


@dataclass(frozen=True, slots=True)
class RowPlan:
    """All columns of a record: each one's index among the root's children, and its plan."""

    root: Node
    columns: list[tuple[int, Plan]]

    def arrays(self, read: NodeColumn, rows: int) -> list[pa.Array]:
        return [plan.array(read.children[index], rows) for index, plan in self.columns]


def validity(column: NodeColumn) -> pa.Buffer | None:
    if column.valid is None:
        return None
    return pa.py_buffer(np.packbits(np.frombuffer(column.valid, dtype=np.uint8), bitorder="little"))


def fixed(kind: pa.DataType) -> Make:
    """Numbers whose bytes are Arrow's."""

    def make(column: NodeColumn, rows: int) -> pa.Array:
        buffers = [validity(column), pa.py_buffer(column.data)]
        return pa.Array.from_buffers(kind, column.entries, buffers, column.nulls)

    return make


def cast(kind: pa.DataType, to: pa.DataType) -> Make:
    make = fixed(kind)
    return make if kind == to else lambda column, rows: make(column, rows).cast(to)


def booleans(column: NodeColumn, rows: int) -> pa.Array:
    assert column.data is not None
    bits = np.packbits(np.frombuffer(column.data, dtype=np.uint8), bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), column.entries, [validity(column), pa.py_buffer(bits)], column.nulls)


def texts(kind: pa.DataType) -> Make:
    """Bytes, or texts, which are checked for UTF-8 when all columns are complete."""

    def make(column: NodeColumn, rows: int) -> pa.Array:
        buffers = [validity(column), pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
        return pa.Array.from_buffers(kind, column.entries, buffers, column.nulls)

    return make


def scaled(kind: pa.DataType, *, times: int = 1, by: int = 1) -> Make:
    """Times in another unit; `OverflowError` if it doesn't fit 64 bits."""

    def make(column: NodeColumn, rows: int) -> pa.Array:
        assert column.data is not None
        numbers = np.frombuffer(column.data, dtype=np.int64)
        if times > 1 and len(numbers) and np.abs(np.clip(numbers, -MAX_MICROS, None)).max() > MAX_MICROS // times:
            raise OverflowError("a time is too far away")
        data = pa.py_buffer(numbers * times // by)
        return pa.Array.from_buffers(kind, column.entries, [validity(column), data], column.nulls)

    return make


def symbols(names: Sequence[str]) -> Make:
    """The names of an enum's indexes."""
    known = pa.array(names, pa.string())
    indexes = fixed(pa.int32())
    return lambda column, rows: known.take(indexes(column, rows))


def numbered(names: Mapping[int, str]) -> Make:
    """The names of an enum's numbers; those without a name are their digits."""
    numbers = fixed(pa.int32())

    def make(column: NodeColumn, rows: int) -> pa.Array:
        encoded = numbers(column, rows).dictionary_encode()
        texts = [names.get(number, str(number)) for number in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)

    return make


def unsigned(kind: pa.DataType) -> Make:
    numbers = fixed(pa.uint64())
    return lambda column, rows: numbers(column, rows).cast(kind)


def list_of(items: Plan, kind: pa.DataType) -> Make:
    def make(column: NodeColumn, rows: int) -> pa.Array:
        values = items.array(column.children[0], 0)
        buffers = [validity(column), pa.py_buffer(column.offsets)]
        return pa.Array.from_buffers(kind, column.entries, buffers, column.nulls, children=[values])

    return make


def map_of(values: Plan, kind: pa.DataType) -> Make:
    keys = texts(pa.string())

    def make(column: NodeColumn, rows: int) -> pa.Array:
        each = [keys(column.children[0], 0), values.array(column.children[1], 0)]
        pairs = pa.StructArray.from_arrays(each, fields=[kind.key_field, kind.item_field])
        buffers = [validity(column), pa.py_buffer(column.offsets)]
        return pa.Array.from_buffers(kind, column.entries, buffers, column.nulls, children=[pairs])

    return make


def struct_of(fields: Sequence[tuple[int, Plan]], kind: pa.DataType) -> Make:
    """A struct, whose fields are children of the node by index."""

    def make(column: NodeColumn, rows: int) -> pa.Array:
        children = [plan.array(column.children[index], column.entries) for index, plan in fields]
        return pa.Array.from_buffers(kind, column.entries, [validity(column)], column.nulls, children=children)

    return make


def absent(kind: pa.DataType) -> Plan:
    return Plan(Node(op=Op.ABSENT), lambda column, rows: pa.nulls(rows, kind))


def timestamps(kind: pa.DataType) -> Make:
    """Seconds and nanoseconds, two children, in microseconds."""

    def make(column: NodeColumn, rows: int) -> pa.Array:
        seconds, nanos = (child.data for child in column.children)
        assert seconds is not None
        assert nanos is not None
        whole, part = np.frombuffer(seconds, dtype=np.int64), np.frombuffer(nanos, dtype=np.int32)
        # What the years 1 to 9999 have: all that Protobuf allows.
        if len(whole) and (whole.min() < -62_135_596_800 or whole.max() > 253_402_300_799):
            raise OverflowError("a time is too far away")
        if len(part) and (part.min() < 0 or part.max() > 999_999_999):
            raise OverflowError("nanoseconds are out of range")
        data = pa.py_buffer(whole * 1_000_000 + part // 1000)
        return pa.Array.from_buffers(kind, column.entries, [validity(column), data], column.nulls)

    return make


def chosen_from(parts: Sequence[pa.Array], indices: pa.Array) -> pa.Array:
    """Rows of several arrays that stand behind each other."""
    return pc.take(parts[0] if len(parts) == 1 else pa.concat_arrays(parts), indices)
