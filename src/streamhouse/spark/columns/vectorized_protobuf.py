"""Vectorized Protobuf: the plan by which messages of the writer's file become columns of the reader's.

Data path   writer's and reader's message -> **protobuf_plan** -> `format.payload_decoder` -> `arrow_builders`
Owns        which fields go into which columns without an object per record
Leaves      the rest to `protobuf_columns` and the codec in `schemas.protobuf`: the same columns, record by record

Fields are matched by their JSON names, as in the codec, and decoded by the writer's field numbers. Maps,
wrappers, groups, required fields and closed enums are left to the codec, as are messages in which a field comes twice.
"""

from dataclasses import replace
from typing import Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from streamhouse.format.payload_decoder import MAX_FIELDS, Node, Op
from streamhouse.spark.columns.arrow_builders import (
    Make,
    NotVectorizable,
    Plan,
    RowPlan,
    absent,
    booleans,
    cast,
    list_of,
    numbered,
    struct_of,
    texts,
    timestamps,
    unsigned,
)

MAX_HEIGHT: Final = 20
"""Maximum nesting of messages, as for columns; a recursive message ends here."""
TIMESTAMP: Final = "google.protobuf.Timestamp"
_OWN_FORM: Final = "google.protobuf."

_T = FieldDescriptor
_NUMBERS: Final = {
    _T.TYPE_INT32: (Op.P_INT32, pa.int32()),
    _T.TYPE_SINT32: (Op.P_SINT32, pa.int32()),
    _T.TYPE_SFIXED32: (Op.P_SFIXED32, pa.int32()),
    _T.TYPE_UINT32: (Op.P_UINT32, pa.int64()),
    _T.TYPE_FIXED32: (Op.P_FIXED32, pa.int64()),
    _T.TYPE_INT64: (Op.P_INT64, pa.int64()),
    _T.TYPE_SINT64: (Op.P_SINT64, pa.int64()),
    _T.TYPE_SFIXED64: (Op.P_FIXED64, pa.int64()),
    _T.TYPE_FLOAT: (Op.P_FLOAT, pa.float32()),
    _T.TYPE_DOUBLE: (Op.P_FIXED64, pa.float64()),
}
_UNSIGNED: Final = {_T.TYPE_UINT64: Op.P_INT64, _T.TYPE_FIXED64: Op.P_FIXED64}


def protobuf_plan(writer: Descriptor, reader: Descriptor, columns: pa.Schema) -> RowPlan:
    """The fields to decode of each message, and the columns; raises `NotVectorizable`."""
    plans, nodes = _fields(writer, reader, columns, 0)
    return RowPlan(Node(op=Op.MESSAGE, children=nodes), plans)


def _fields(
    writer: Descriptor, reader: Descriptor, columns: pa.Schema, depth: int
) -> tuple[list[tuple[int, Plan]], tuple[Node, ...]]:
    if depth > MAX_HEIGHT or writer.is_extendable or any(field.is_required for field in writer.fields):
        raise NotVectorizable
    written = {field.json_name: field for field in writer.fields}
    plans: list[tuple[int, Plan]] = []
    for position, column in enumerate(columns):
        reader_field = reader.fields_by_name[column.name]
        field = written.get(reader_field.json_name)
        plans.append(
            (position, absent(column.type) if field is None else _field(field, reader_field, column.type, depth))
        )
    nodes = [plan.node for _, plan in plans]
    nodes += _rivals(writer, {node.number for node in nodes})
    if len(nodes) > MAX_FIELDS or len(writer.oneofs) > MAX_FIELDS:
        raise NotVectorizable
    return plans, tuple(nodes)


def _rivals(writer: Descriptor, known: set[int]) -> list[Node]:
    """Other members of the oneofs that are read: where one of them comes as well, the later one counts."""
    return [
        Node(op=_op(field), number=field.number, has_presence=True, oneof=oneof.index + 1, is_decoded=False)
        for oneof in writer.oneofs
        if any(field.number in known for field in oneof.fields)
        for field in oneof.fields
        if field.number not in known
    ]


def _op(field: FieldDescriptor) -> Op:
    if field.type in _NUMBERS:
        return _NUMBERS[field.type][0]
    if field.type in _UNSIGNED:
        return _UNSIGNED[field.type]
    return Op.P_INT32 if field.type in (_T.TYPE_BOOL, _T.TYPE_ENUM) else Op.P_BYTES


def _field(writer: FieldDescriptor, reader: FieldDescriptor, kind: pa.DataType, depth: int) -> Plan:
    if writer.type != reader.type or writer.is_repeated != reader.is_repeated:
        raise NotVectorizable
    if writer.is_repeated:
        items = _one(writer, reader, kind.value_type if pa.types.is_list(kind) else _never(), depth)
        return Plan(Node(op=Op.LIST, number=writer.number, children=(items.node,)), list_of(items, kind))
    plan = _one(writer, reader, kind, depth)
    oneof = 0 if writer.containing_oneof is None else writer.containing_oneof.index + 1
    node = replace(plan.node, number=writer.number, has_presence=writer.has_presence, oneof=oneof)
    return Plan(node, plan.array)


def _never() -> pa.DataType:
    raise NotVectorizable  # a map


def _one(writer: FieldDescriptor, reader: FieldDescriptor, kind: pa.DataType, depth: int) -> Plan:
    if writer.type == _T.TYPE_MESSAGE:
        assert writer.message_type is not None
        assert reader.message_type is not None
        return _message(writer.message_type, reader.message_type, kind, depth)
    if writer.type in _NUMBERS:
        op, native = _NUMBERS[writer.type]
        return Plan(Node(op=op), cast(native, kind))
    if writer.type in _UNSIGNED:
        return Plan(Node(op=_UNSIGNED[writer.type]), unsigned(kind))
    if writer.type in (_T.TYPE_STRING, _T.TYPE_BYTES):
        return Plan(Node(op=Op.P_BYTES), texts(kind))
    if writer.type == _T.TYPE_BOOL:
        return Plan(Node(op=Op.P_BOOL), booleans)
    if writer.enum_type is not None and not writer.enum_type.is_closed:
        return Plan(Node(op=Op.P_INT32), _names(writer.enum_type))
    raise NotVectorizable


def _names(enum: EnumDescriptor) -> Make:
    return numbered({number: value.name for number, value in enum.values_by_number.items()})


def _message(writer: Descriptor, reader: Descriptor, kind: pa.DataType, depth: int) -> Plan:
    if writer.full_name == reader.full_name == TIMESTAMP:
        parts = Node(op=Op.P_INT64, number=1), Node(op=Op.P_INT32, number=2)
        return Plan(Node(op=Op.MESSAGE, children=parts), timestamps(kind))
    own_form = writer.full_name.startswith(_OWN_FORM) or reader.full_name.startswith(_OWN_FORM)
    if own_form or not pa.types.is_struct(kind):
        raise NotVectorizable
    plans, nodes = _fields(writer, reader, pa.schema(list(kind)), depth + 1)
    return Plan(Node(op=Op.MESSAGE, children=nodes), struct_of(plans, kind))
