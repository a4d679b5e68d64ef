"""Schema columns: payloads that were written with a schema, as buffers, without an object per record.

Data path   `format.columnar_decoder` -> a column of values -> **decode_columns**, **find_objects** -> arrays
Owns        the tree of what is read of a payload, and how it is told to `_payload_decoder.c`
Leaves      which tree a schema has, and arrays, to who reads them; payloads that are unusual, or written with another
            schema, to `schemas`: they are marked, and null in all columns

There is no second version of it in Python: without a compiler each payload is read by `schemas`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from streamhouse.format.columnar_decoder import Binary
from streamhouse.format.schema_id import PREFIX_BYTES

try:
    from streamhouse.format import _schema_columns

    IS_COMPILED = True
except ImportError:  # built without a compiler
    IS_COMPILED = False

MAX_FIELDS: Final = 256
"""Of one message of Protobuf."""
MAX_GROWTH: Final = 64
"""Columns have at most so many times the bytes of their payloads: beyond it somebody means to fill the memory."""
LEAST_LIMIT_BYTES: Final = 64 * 1024 * 1024

_NODE: Final = Struct("=8i")

IS_NULL, IS_READ, IS_UNREADABLE = 0, 1, 2
"""What becomes of a payload: it is null, it is to be read or was read, it can't be read here."""


class Op(IntEnum):
    """How a value is read; the numbers are those in `_payload_decoder.c`."""

    NULL = 0
    BOOL = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    FIXED = 7
    ENUM = 8
    DECIMAL = 9
    RECORD = 10
    UNION = 11
    OPTION = 12
    ARRAY = 13
    MAP = 14
    ABSENT = 15
    MESSAGE = 20
    LIST = 21
    P_BOOL = 22
    P_INT32 = 23
    P_SINT32 = 24
    P_UINT32 = 25
    P_INT64 = 26
    P_SINT64 = 27
    P_FIXED32 = 28
    P_SFIXED32 = 29
    P_FIXED64 = 30
    P_FLOAT = 31
    P_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value of a payload. `param` is a size, a number of symbols, or which branch is null; -1 where there is none."""

    op: Op
    param: int = -1
    children: tuple["Node", ...] = ()
    is_wanted: bool = True
    number: int = 0
    has_presence: bool = False
    oneof: int = 0


class NodeColumn(NamedTuple):
    """What a node got: a byte per entry that tells whether it is valid (None: all are), values or bytes, positions."""

    entries: int
    nulls: int
    valid: bytearray | None
    data: bytearray | None
    offsets: bytearray | None
    children: tuple["NodeColumn", ...]


_NOTHING: Final = NodeColumn(0, 0, None, None, None, ())


def flatten_nodes(root: Node) -> bytes:
    """The tree, breadth first: children stand behind each other, and behind their parents."""
    waiting, written = [root], bytearray()
    following = 1
    while waiting:
        deeper: list[Node] = []
        for node in waiting:
            count = len(node.children)
            fields = (node.op, node.param, following if count else 0, count, node.is_wanted)
            written += _NODE.pack(*fields, node.number, node.has_presence, node.oneof)
            following += count
            deeper += node.children
        waiting = deeper
    return bytes(written)


def decode_columns(root: Node, values: Binary, states: bytearray) -> NodeColumn:
    """The columns of payloads that stand behind the ids of their schemas; `states` tells which to read, and is told
    which could not be. Raises `OverflowError` where columns would be much larger than their payloads."""
    limit_bytes = max(LEAST_LIMIT_BYTES, MAX_GROWTH * len(values.data))
    nodes = flatten_nodes(root)
    decoded = _schema_columns.decode(nodes, values.data, values.offsets, states, PREFIX_BYTES, limit_bytes)
    return _grown(root, iter(decoded))


def _grown(
    root: Node, decoded: Iterator[tuple[int, int, bytearray | None, bytearray | None, bytearray | None] | None]
) -> NodeColumn:
    """The flat answer as a tree again: what comes breadth first is put together from the last to the first."""
    order, levels = [root], [root]
    while levels:
        levels = [child for node in levels for child in node.children]
        order += levels
    columns = list(decoded)
    made: list[NodeColumn] = [_NOTHING] * len(order)
    first = len(order)
    for index in range(len(order) - 1, -1, -1):
        count = len(order[index].children)
        first -= count
        column = columns[index]
        children = tuple(made[first : first + count])
        made[index] = _NOTHING._replace(children=children) if column is None else NodeColumn(*column, children)
    return made[0]


def find_objects(values: Binary, states: bytearray) -> bytearray:
    """The JSON objects of payloads, white space between them; what is no object, or nested deeply, is marked."""
    data = bytearray(values.data)
    _schema_columns.json_objects(data, values.offsets, states, PREFIX_BYTES)
    data += b"\n"
    return data
