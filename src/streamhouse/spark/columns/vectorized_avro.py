"""Vectorised Avro: the plan by which payloads of one Avro schema become the columns of another one.

Data path   writer's and reader's schema -> **avro_plan** -> `format.payload_decoder` -> `arrow_builders`
Owns        which types go into which columns without an object per record
Leaves      everything else to `avro` and the reader in `schemas.avro`: the same columns, record by record

Fields go by their names, as they do there; numbers may become wider ones. What the reader has no column for is skipped.
"""

from typing import Final

import pyarrow as pa

from streamhouse.format.payload_decoder import Node, Op
from streamhouse.schemas.avro.canonical_form import logical_name
from streamhouse.schemas.avro.types import MISSING, Array, AvroType, Enum, Fixed, Map, Record, Union, parts, shape_of
from streamhouse.spark.columns.arrow_builders import (
    Make,
    NotVectorizable,
    Plan,
    RowPlan,
    absent,
    booleans,
    cast,
    fixed,
    list_of,
    map_of,
    scaled,
    struct_of,
    symbols,
    texts,
)

MAX_HEIGHT: Final = 40
"""Types inside of types; deeper or recursive types are left to the codec."""
MAX_NODES: Final = 4096
_SCALARS: Final = {
    "boolean": Op.BOOL,
    "int": Op.INT,
    "long": Op.LONG,
    "float": Op.FLOAT,
    "double": Op.DOUBLE,
    "bytes": Op.BYTES,
    "string": Op.BYTES,
}
_NUMBERS: Final = {"int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64()}
_WIDER: Final = {
    "int": ("int",),
    "long": ("int", "long"),
    "float": ("int", "long", "float"),
    "double": ("int", "long", "float", "double"),
}
_UNITS: Final = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}


def avro_plan(writer: AvroType, reader: AvroType, columns: pa.Schema) -> RowPlan:
    """The fields to decode of each record, and the columns; raises `NotVectorizable`."""
    if not isinstance(writer, Record) or not isinstance(reader, Record):
        raise NotVectorizable
    shape = shape_of(writer)
    if shape.recursive or shape.height > MAX_HEIGHT or shape_of(reader).recursive or _size(writer, {}) > MAX_NODES:
        raise NotVectorizable
    plans, nodes = _fields(writer, reader, columns)
    return RowPlan(Node(op=Op.RECORD, children=nodes), plans)


def _size(kind: AvroType, known: dict[int, int]) -> int:
    """How many nodes a type has, those of a name again wherever it is used."""
    if id(kind) not in known:
        known[id(kind)] = 1 + sum(_size(part, known) for part in parts(kind))
    return known[id(kind)]


def _fields(writer: Record, reader: Record, columns: pa.Schema) -> tuple[list[tuple[int, Plan]], tuple[Node, ...]]:
    """Columns by their positions, and all children: the writer's fields in order, then those that it doesn't have."""
    reader_fields = {field.name: field for field in reader.fields}
    plans: dict[str, tuple[int, Plan]] = {}
    nodes: list[Node] = []
    for field in writer.fields:
        if field.name in columns.names:
            plan = _plan(field.type, reader_fields[field.name].type, columns.field(field.name).type)
            plans[field.name] = len(nodes), plan
            nodes.append(plan.node)
        else:
            nodes.append(_skipped(field.type))
    for column in columns:
        if column.name not in plans:
            if reader_fields[column.name].default not in (MISSING, None):
                raise NotVectorizable
            plans[column.name] = len(nodes), absent(column.type)
            nodes.append(plans[column.name][1].node)
    return [plans[name] for name in columns.names], tuple(nodes)


def _plan(writer: AvroType, reader: AvroType, kind: pa.DataType) -> Plan:
    reader = _single(reader)
    if isinstance(writer, Union):
        return _option(writer, reader, kind)
    if isinstance(reader, Record) and isinstance(writer, Record):
        plans, nodes = _fields(writer, reader, pa.schema(list(kind)))
        return Plan(Node(op=Op.RECORD, children=nodes), struct_of(plans, kind))
    if isinstance(reader, Array) and isinstance(writer, Array):
        items = _items(writer.items, reader.items, kind.value_type)
        return Plan(Node(op=Op.ARRAY, children=(items.node,)), list_of(items, kind))
    if isinstance(reader, Map) and isinstance(writer, Map):
        values = _items(writer.values, reader.values, kind.item_type)
        return Plan(Node(op=Op.MAP, children=(Node(op=Op.BYTES), values.node)), map_of(values, kind))
    return _scalar(writer, reader, kind)


def _single(reader: AvroType) -> AvroType:
    """The type of a column's values that are not null."""
    if not isinstance(reader, Union):
        return reader
    others = [branch for branch in reader.branches if branch.kind != "null"]
    if len(others) != 1 or isinstance(others[0], Union):
        raise NotVectorizable
    return others[0]


def _items(writer: AvroType, reader: AvroType, kind: pa.DataType) -> Plan:
    if _may_be_empty(writer):
        raise NotVectorizable
    return _plan(writer, reader, kind)


def _may_be_empty(kind: AvroType) -> bool:
    if isinstance(kind, Record):
        return all(_may_be_empty(field.type) for field in kind.fields)
    return kind.kind == "null" or (isinstance(kind, Fixed) and kind.size_bytes == 0)


def _option(writer: Union, reader: AvroType, kind: pa.DataType) -> Plan:
    kinds = [branch.kind for branch in writer.branches]
    if len(kinds) != 2 or "null" not in kinds:
        raise NotVectorizable
    null = kinds.index("null")
    inner = _plan(writer.branches[1 - null], reader, kind)
    node = Node(op=Op.OPTION, param=null, children=(inner.node,))
    return Plan(node, lambda column, rows: inner.array(column.children[0], rows))


def _scalar(writer: AvroType, reader: AvroType, kind: pa.DataType) -> Plan:
    logical = logical_name(reader)
    if logical == "decimal" or logical_name(writer) == "decimal":
        return _decimal(writer, reader, kind)
    if logical_name(writer) == "uuid" and isinstance(writer, Fixed):
        raise NotVectorizable
    if logical is not None and "timestamp-" in logical:
        return _time(writer, logical, kind)
    if isinstance(writer, Enum) and reader.kind in ("enum", "string"):
        return Plan(Node(op=Op.ENUM, param=len(writer.symbols)), symbols(writer.symbols))
    return Plan(_leaf(writer), _plain(writer, reader, kind))


def _plain(writer: AvroType, reader: AvroType, kind: pa.DataType) -> Make:
    if logical_name(reader) == "date" and writer.kind == "int":
        return fixed(kind)
    if writer.kind in _WIDER.get(reader.kind, ()):
        return cast(_NUMBERS[writer.kind], kind)
    if writer.kind == reader.kind == "boolean":
        return booleans
    if writer.kind == "string" and reader.kind in ("string", "enum"):
        return texts(kind)
    if writer.kind in ("bytes", "fixed") and reader.kind in ("bytes", "fixed"):
        return texts(kind)
    raise NotVectorizable


def _time(writer: AvroType, logical: str, kind: pa.DataType) -> Plan:
    if writer.kind != "long":
        raise NotVectorizable
    times, by = _UNITS[logical.rpartition("-")[2]]
    return Plan(Node(op=Op.LONG), scaled(kind, times=times, by=by))


def _decimal(writer: AvroType, reader: AvroType, kind: pa.DataType) -> Plan:
    same = logical_name(writer) == logical_name(reader) and writer.props.get("scale", 0) == reader.props.get("scale", 0)
    if not same or not pa.types.is_decimal128(kind):
        raise NotVectorizable
    size = writer.size_bytes if isinstance(writer, Fixed) else -1
    return Plan(Node(op=Op.DECIMAL, param=size), fixed(kind))


def _leaf(writer: AvroType, *, is_decoded: bool = True) -> Node:
    if isinstance(writer, Fixed):
        return Node(op=Op.FIXED, param=writer.size_bytes, is_decoded=is_decoded)
    if isinstance(writer, Enum):
        return Node(op=Op.ENUM, param=len(writer.symbols), is_decoded=is_decoded)
    if writer.kind == "null":
        return Node(op=Op.NULL, is_decoded=is_decoded)
    if writer.kind not in _SCALARS:
        raise NotVectorizable
    return Node(op=_SCALARS[writer.kind], is_decoded=is_decoded)


def _skipped(kind: AvroType) -> Node:
    if isinstance(kind, Record):
        return _skip(Op.RECORD, *(_skipped(field.type) for field in kind.fields))
    if isinstance(kind, Union):
        return _skip(Op.UNION, *(_skipped(branch) for branch in kind.branches))
    if isinstance(kind, Array):
        if _may_be_empty(kind.items):
            raise NotVectorizable
        return _skip(Op.ARRAY, _skipped(kind.items))
    if isinstance(kind, Map):
        return _skip(Op.MAP, Node(op=Op.BYTES, is_decoded=False), _skipped(kind.values))
    return _leaf(kind, is_decoded=False)


def _skip(op: Op, *children: Node) -> Node:
    return Node(op=op, children=children, is_decoded=False)
