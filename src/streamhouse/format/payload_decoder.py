"""Decodes payloads that were written with a schema into columns, without an object per record.

Data path   `format.columnar_decoder` -> a column of values -> **decode_columns**, **find_objects** -> arrays
Owns        the decoding tree, and passing it to `_payload_decoder.c`
Leaves      the tree of a schema, and arrays, to the caller; unusual payloads and those of other schemas to `schemas`:
            they are marked as unreadable, and null in all columns

There is no fallback in Python: without the extension, `schemas` reads each payload.
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
"""Maximum number of fields of a Protobuf message."""
MAX_GROWTH: Final = 64
"""Limit of the columns' size, as a multiple of the payloads' size, against payloads made to exhaust the memory."""
LEAST_LIMIT_BYTES: Final = 64 * 1024 * 1024

_NODE: Final = Struct("=8i")

IS_NULL, IS_READ, IS_UNREADABLE = 0, 1, 2
"""States of a payload: null; to be decoded, or decoded; can't be decoded here."""


class Op(IntEnum):
    """How to decode a value; same numbers as in `_payload_decoder.c`."""

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
    """A node of the decoding tree. `param` is a size, a number of symbols, or the index of the null branch; -1:
    none."""

    op: Op
    param: int = -1
    children: tuple["Node", ...] = ()
    is_decoded: bool = True
    number: int = 0
    has_presence: bool = False
    oneof: int = 0


class NodeColumn(NamedTuple):
    """The decoded column of a node: a validity byte per entry (None: no nulls), values or bytes, positions."""

    entries: int
    nulls: int
    valid: bytearray | None
    data: bytearray | None
    offsets: bytearray | None
    children: tuple["NodeColumn", ...]


_NOTHING: Final = NodeColumn(0, 0, None, None, None, ())


def flatten_nodes(root: Node) -> bytes:
    """Flatten the tree, breadth first: siblings are consecutive, after their parents."""
    waiting, written = [root], bytearray()
    following = 1
    while waiting:
        deeper: list[Node] = []
        for node in waiting:
            count = len(node.children)
            fields = (node.op, node.param, following if count else 0, count, node.is_decoded)
            written += _NODE.pack(*fields, node.number, node.has_presence, node.oneof)
            following += count
            deeper += node.children
        waiting = deeper
    return bytes(written)


def decode_columns(root: Node, values: Binary, states: bytearray) -> NodeColumn:
    """Decode payloads after their schema ids into columns; `states` selects the payloads, and is updated for those that
    can't be decoded. Raises `OverflowError` if the columns would be much larger than the payloads."""
    limit_bytes = max(LEAST_LIMIT_BYTES, MAX_GROWTH * len(values.data))
    nodes = flatten_nodes(root)
    decoded = _schema_columns.decode(nodes, values.data, values.offsets, states, PREFIX_BYTES, limit_bytes)
    return _unflatten(root, iter(decoded))


def _unflatten(
    root: Node, decoded: Iterator[tuple[int, int, bytearray | None, bytearray | None, bytearray | None] | None]
) -> NodeColumn:
    """Rebuild the tree from the flat result, from the last node to the first."""
    order, levels = [root], [root]
    while levels:
        levels = [child for node in levels for child in node.children]
        order += levels
    columns = list(decoded)
    node_columns: list[NodeColumn] = [_NOTHING] * len(order)
    first = len(order)
    for index in range(len(order) - 1, -1, -1):
        count = len(order[index].children)
        first -= count
        column = columns[index]
        children = tuple(node_columns[first : first + count])
        node_columns[index] = _NOTHING._replace(children=children) if column is None else NodeColumn(*column, children)
    return node_columns[0]


def find_objects(values: Binary, states: bytearray) -> bytearray:
    """Find the JSON objects of payloads, separated by white space; other values and deeply nested ones are marked as
    unreadable."""
    data = bytearray(values.data)
    _schema_columns.json_objects(data, values.offsets, states, PREFIX_BYTES)
    data += b"\n"
    return data
