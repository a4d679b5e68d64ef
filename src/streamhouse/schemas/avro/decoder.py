"""Avro decoder: payload bytes to JSON-like values, one function per type, compiled once per schema.

Payloads are untrusted. fastavro decodes the simple schemas; it is not used where a payload could overflow its stack
(recursive types), fill the memory (arrays of items of no bytes), pass a negative index of an enum or a union, or where
values must be changed for JSON. Both implementations are tested against each other.
"""

import io
import struct
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Final, cast
from uuid import UUID

import fastavro

from streamhouse.errors import InvalidRecordValue
from streamhouse.format.record_scanner import VARLONG, BadVarint, read_varint
from streamhouse.schemas.avro.canonical_form import logical_name, resolved
from streamhouse.schemas.avro.encoder import MAX_DECIMAL_DIGITS, within
from streamhouse.schemas.avro.types import Array, AvroType, Enum, Fixed, Map, Record, Union, everything_in, shape_of

MAX_EMPTY_ITEMS: Final = 100_000
"""Maximum items without bytes in all arrays of one payload."""

MAX_FASTAVRO_DEPTH: Final = 50

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_LATIN: Final = ("bytes", "fixed")
_TEXTS: Final = ("bytes", "fixed", "string", "enum")
_OBJECTS: Final = ("record", "error", "map")

# Errors of fastavro for bytes that were not written with the schema.
_DECODE_ERRORS: Final = (
    EOFError,
    IndexError,
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
    MemoryError,
    struct.error,
)


class Cursor:
    """A payload and the position in it."""

    __slots__ = ("data", "empty_items", "end", "position")

    def __init__(self, data: bytes) -> None:
        self.data, self.position, self.end = data, 0, len(data)
        self.empty_items = 0

    def long(self) -> int:
        position = self.position
        if position < self.end and (byte := self.data[position]) < 0x80:  # most lengths, indexes and small numbers
            self.position = position + 1
            return (byte >> 1) ^ -(byte & 1)
        try:
            value, self.position = read_varint(self.data, self.position, self.end, VARLONG)
        except BadVarint:
            raise InvalidRecordValue(f"a number is cut off or too long; at={self.position}") from None
        return value

    def take(self, size: int) -> bytes:
        start, stop = self.position, self.position + size
        if size < 0 or stop > self.end:
            raise InvalidRecordValue(f"the payload ends too early; at={start} needed={size} left={self.end - start}")
        self.position = stop
        return self.data[start:stop]


Reader = Callable[[Cursor], object]


def reader_of(root: AvroType) -> Callable[[bytes], object]:
    """The fastest reader that is safe for this schema."""
    return _fastavro_reader(root) if can_use_fastavro(root) else read_checked(root)


def read_checked(root: AvroType) -> Callable[[bytes], object]:
    """The reader with all limits."""
    read_root = _Readers().of(root)

    def read(payload: bytes) -> object:
        cursor = Cursor(payload)
        value = read_root(cursor)
        _check_end(cursor.position, cursor.end)
        return value

    return read


def _fastavro_reader(root: AvroType) -> Callable[[bytes], object]:
    parsed = fastavro.parse_schema(cast("dict[str, object]", resolved(root)))

    def read(payload: bytes) -> object:
        source = io.BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(source, parsed, None)
        except _DECODE_ERRORS as error:
            raise InvalidRecordValue(f"not written with this schema: {type(error).__name__} {error}") from None
        _check_end(source.tell(), len(payload))
        return value

    return read


def _check_end(position: int, end: int) -> None:
    if position != end:
        raise InvalidRecordValue(f"bytes are left over; at={position} left={end - position}")


def can_use_fastavro(root: AvroType) -> bool:
    """Whether fastavro's values are JSON values, and it is safe for every payload of this type."""
    types = everything_in(root)
    shape = shape_of(root)
    if shape.recursive or shape.height > MAX_FASTAVRO_DEPTH or any(kind.kind in _LATIN for kind in types):
        return False
    if any(isinstance(kind, Enum | Union) for kind in types):
        return False
    return not any(_may_be_empty(kind.items) for kind in types if isinstance(kind, Array))


def _may_be_empty(kind: AvroType) -> bool:
    """Whether a value may take no bytes at all; not for recursive types."""
    match kind:
        case Record():
            return all(_may_be_empty(each.type) for each in kind.fields)
        case Fixed():
            return kind.size_bytes == 0
    return kind.kind == "null"


class _Readers:
    """Creates the reader of a type once: types can be recursive."""

    def __init__(self) -> None:
        self._readers: dict[int, Reader] = {}

    def of(self, kind: AvroType) -> Reader:
        reader = self._readers.get(id(kind))
        if reader is not None:
            return reader
        match kind:
            case Record():
                return self._record(kind)
            case Union():
                return _union(union=kind, readers=[self.of(branch) for branch in kind.branches])
            case Array():
                return _array(self.of(kind.items))
            case Map():
                return _map(self.of(kind.values))
            case Enum():
                return _enum(kind)
        name = logical_name(kind)
        if name == "decimal":
            return _decimal(kind)
        if isinstance(kind, Fixed):
            return _uuid if name == "uuid" else _fixed(kind)
        return _PRIMITIVES[kind.kind]

    def _record(self, record: Record) -> Reader:
        fields: list[tuple[str, Reader]] = []

        def read(cursor: Cursor) -> object:
            name = ""
            try:
                value: dict[str, object] = {}
                for name, get in fields:
                    value[name] = get(cursor)
            except InvalidRecordValue as error:
                raise within(name, error) from None
            return value

        self._readers[id(record)] = read
        fields += [(each.name, self.of(each.type)) for each in record.fields]
        return read


def _union(*, union: Union, readers: list[Reader]) -> Reader:
    names = {branch.branch_name for branch in union.branches}
    choices = [
        (branch.branch_name, _is_tagged(branch, union), get)
        for branch, get in zip(union.branches, readers, strict=True)
    ]

    def read(cursor: Cursor) -> object:
        index = cursor.long()
        if not 0 <= index < len(choices):
            raise InvalidRecordValue(f"no such branch of the union; branch={index} branches={len(choices)}")
        name, tagged, get = choices[index]
        value = get(cursor)
        if tagged or (type(value) is dict and len(value) == 1 and next(iter(value)) in names):
            return {name: value}
        return value

    return read


def _is_tagged(branch: AvroType, union: Union) -> bool:
    """Whether the branch must be named, because JSON shows values of another branch in the same way."""
    others = [other for other in union.branches if other is not branch]
    if branch.kind in _OBJECTS:
        return any(other.kind in _OBJECTS for other in others)
    return branch.kind in _LATIN and any(other.kind in _TEXTS for other in others)


def _blocks(cursor: Cursor) -> int:
    """The number of items in the next block."""
    count = cursor.long()
    if count < 0:
        cursor.long()  # the block's size in bytes, for readers that skip it
        count = -count
    return count


def _array(get: Reader) -> Reader:
    def read(cursor: Cursor) -> object:
        items: list[object] = []
        try:
            while count := _blocks(cursor):
                for _ in range(count):
                    before = cursor.position
                    items.append(get(cursor))
                    if cursor.position == before:
                        cursor.empty_items += 1
                        if cursor.empty_items > MAX_EMPTY_ITEMS:
                            raise InvalidRecordValue(f"too many items without bytes; limit={MAX_EMPTY_ITEMS}")
        except InvalidRecordValue as error:
            raise within(len(items), error) from None
        return items

    return read


def _map(get: Reader) -> Reader:
    def read(cursor: Cursor) -> object:
        items: dict[str, object] = {}
        key = ""
        try:
            while count := _blocks(cursor):
                for _ in range(count):
                    key = _string(cursor)
                    items[key] = get(cursor)
        except InvalidRecordValue as error:
            raise within(key, error) from None
        return items

    return read


def _enum(kind: Enum) -> Reader:
    def read(cursor: Cursor) -> object:
        index = cursor.long()
        if not 0 <= index < len(kind.symbols):
            raise InvalidRecordValue(f"no such symbol; symbol={index} symbols={len(kind.symbols)}")
        return kind.symbols[index]

    return read


def _fixed(kind: Fixed) -> Reader:
    return lambda cursor: cursor.take(kind.size_bytes).decode("latin-1")


def _decimal(kind: AvroType) -> Reader:
    scale = kind.props.get("scale", 0)
    assert isinstance(scale, int)

    def read(cursor: Cursor) -> object:
        raw = cursor.take(kind.size_bytes if isinstance(kind, Fixed) else cursor.long())
        if len(raw) > MAX_DECIMAL_DIGITS // 3:
            raise InvalidRecordValue(f"a decimal number is too long; size={len(raw)}")
        with localcontext() as context:
            context.prec = 3 * MAX_DECIMAL_DIGITS
            return format(Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale), "f")

    return read


def _uuid(cursor: Cursor) -> object:
    return str(UUID(bytes=cursor.take(16)))


def _string(cursor: Cursor) -> str:
    try:
        return cursor.take(cursor.long()).decode()
    except UnicodeDecodeError:
        raise InvalidRecordValue(f"a text is not UTF-8; before={cursor.position}") from None


_PRIMITIVES: Final[dict[str, Reader]] = {
    "null": lambda cursor: None,
    "boolean": lambda cursor: cursor.take(1) != b"\0",
    "int": Cursor.long,
    "long": Cursor.long,
    "float": lambda cursor: _FLOAT.unpack(cursor.take(4))[0],
    "double": lambda cursor: _DOUBLE.unpack(cursor.take(8))[0],
    "bytes": lambda cursor: cursor.take(cursor.long()).decode("latin-1"),
    "string": _string,
}
