"""Avro encoder: JSON-like values to payload bytes, one function per type, compiled once per schema.

Decides which value fits which type and which branch of a union it takes (the rules are in `avro`). Functions append to
one buffer and check while they write, so a value is visited once. The path of a value that doesn't fit is built only
when encoding fails.
"""

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import Final
from uuid import UUID

from streamhouse.errors import InvalidRecordValue
from streamhouse.format.record_scanner import append_varint
from streamhouse.schemas.avro.canonical_form import logical_name
from streamhouse.schemas.avro.types import MISSING, Array, AvroType, Enum, Field, Fixed, Map, Record, Union

MAX_BRANCH_ATTEMPTS: Final = 10_000
"""Branches that untagged values of one record may try: beyond it, they must be tagged."""
MAX_DECIMAL_DIGITS: Final = 1_000

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_INT: Final = (-(2**31), 2**31)
_LONG: Final = (-(2**63), 2**63)
_NOT_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_WORDS: Final = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
}

# Which branches a plain value may take, those that say most of it first.
_BY_VALUE: Final[dict[type, tuple[str, ...]]] = {
    bool: ("boolean",),
    int: ("int", "long", "decimal", "double", "float"),
    float: ("double", "float", "decimal"),
    str: ("string", "enum", "uuid", "decimal", "bytes", "fixed", "double", "float"),
    list: ("array",),
    dict: ("record", "error", "map"),
}


class Budget:
    """The remaining steps of one value for trying branches of unions."""

    __slots__ = ("attempts",)

    def __init__(self) -> None:
        self.attempts = MAX_BRANCH_ATTEMPTS

    def spend(self) -> None:
        self.attempts -= 1
        if self.attempts < 0:
            raise InvalidRecordValue("too many branches of unions to try; tag the values")


Writer = Callable[[object, bytearray, Budget], None]


def field_error(value: object, expected: str) -> InvalidRecordValue:
    return InvalidRecordValue(f"expected {expected}, got {_WORDS.get(type(value), 'an object')}")


def within(step: object, error: InvalidRecordValue) -> InvalidRecordValue:
    """The same failure, seen from one level further out."""
    below = "" if error.path == "/" else error.path
    return InvalidRecordValue(error.reason, path=f"/{step}{below}")


class Writers:
    """Creates the writer of a type once: types can be recursive."""

    def __init__(self, *, logical: bool = True) -> None:
        self._logical = logical
        self._writers: dict[int, Writer] = {}

    def of(self, kind: AvroType) -> Writer:
        writer = self._writers.get(id(kind))
        if writer is not None:
            return writer
        match kind:
            case Record():
                return self._record(kind)
            case Union():
                return self._union(kind)
            case Array():
                return _array(self.of(kind.items))
            case Map():
                return _map(self.of(kind.values))
            case Enum():
                return _enum(kind)
        name = logical_name(kind) if self._logical else None
        if name == "decimal":
            return _decimal(kind)
        if isinstance(kind, Fixed):
            return _uuid if name == "uuid" else _fixed(kind)
        return _PRIMITIVES[kind.kind]

    def _record(self, record: Record) -> Writer:
        fields: list[tuple[str, Writer]] = []
        by_name = {each.name: each for each in record.fields}
        defaults: dict[str, bytes] = {}

        def write(value: object, out: bytearray, budget: Budget) -> None:
            if type(value) is not dict:
                raise field_error(value, f"the record {record.name}")
            name = ""
            try:
                for name, put in fields:
                    if name in value:
                        put(value[name], out, budget)
                        continue
                    if name not in defaults:
                        defaults[name] = _default(by_name[name])
                    out += defaults[name]
            except InvalidRecordValue as error:
                raise within(name, error) from None
            if not by_name.keys() >= value.keys():
                stranger = next(key for key in value if key not in by_name)
                raise InvalidRecordValue(f"no field of {record.name}", path=f"/{stranger}")

        self._writers[id(record)] = write
        fields += [(each.name, self.of(each.type)) for each in record.fields]
        return write

    def _union(self, union: Union) -> Writer:
        branches: list[tuple[AvroType, bytes, Writer]] = []
        for index, branch in enumerate(union.branches):
            branches.append((branch, _long_bytes(index), self.of(branch)))
        tagged = {branch.branch_name: (prefix, put) for branch, prefix, put in branches}
        null = next((prefix for branch, prefix, _ in branches if branch.kind == "null"), None)
        choices = {kind: self._choices(branches, order) for kind, order in _BY_VALUE.items()}

        def write(value: object, out: bytearray, budget: Budget) -> None:
            if value is None:
                if null is None:
                    raise field_error(None, "a branch of the union")
                out += null
                return
            if type(value) is dict and len(value) == 1 and next(iter(value)) in tagged:
                return _write_tagged(value, tagged, choices[dict], out, budget)
            _write_plain(value, choices.get(type(value), ()), out, budget)

        return write

    def _choices(self, branches: Sequence[tuple[AvroType, bytes, Writer]], order: Sequence[str]) -> "Choices":
        ranked = [
            (order.index(role), prefix, put) for kind, prefix, put in branches if (role := self._role(kind)) in order
        ]
        return [(prefix, put) for _, prefix, put in sorted(ranked, key=lambda each: each[0])]

    def _role(self, kind: AvroType) -> str:
        name = logical_name(kind) if self._logical else None
        return name if name == "decimal" or (name == "uuid" and kind.kind == "fixed") else kind.kind


Choices = list[tuple[bytes, Writer]]


def _write_tagged(
    value: dict[str, object], tagged: dict[str, tuple[bytes, Writer]], plain: Choices, out: bytearray, budget: Budget
) -> None:
    """A value in the form {"branch": value}; one that only looks like it may still be a plain one."""
    tag, inner = next(iter(value.items()))
    prefix, put = tagged[tag]
    start = len(out)
    try:
        out += prefix
        put(inner, out, budget)
    except InvalidRecordValue as error:
        del out[start:]
        for prefix, put in plain:
            if _try(value, prefix, put, out, budget):
                return
        raise within(tag, error) from None


def _write_plain(value: object, choices: Sequence[tuple[bytes, Writer]], out: bytearray, budget: Budget) -> None:
    if len(choices) == 1:
        prefix, put = choices[0]
        out += prefix
        put(value, out, budget)
        return
    if not any(_try(value, prefix, put, out, budget) for prefix, put in choices):
        raise field_error(value, "a branch of the union")


def _try(value: object, prefix: bytes, put: Writer, out: bytearray, budget: Budget) -> bool:
    budget.spend()
    start = len(out)
    try:
        out += prefix
        put(value, out, budget)
    except InvalidRecordValue:
        del out[start:]
        if budget.attempts < 0:
            raise
        return False
    return True


def _array(put: Writer) -> Writer:
    def write(value: object, out: bytearray, budget: Budget) -> None:
        if type(value) is not list:
            raise field_error(value, "a list")
        if value:
            append_varint(out, len(value))
        written = 0
        try:
            for item in value:
                put(item, out, budget)
                written += 1
        except InvalidRecordValue as error:
            raise within(written, error) from None
        out.append(0)

    return write


def _map(put: Writer) -> Writer:
    def write(value: object, out: bytearray, budget: Budget) -> None:
        if type(value) is not dict:
            raise field_error(value, "an object")
        key = ""
        try:
            if value:
                append_varint(out, len(value))
            for key, item in value.items():
                _string(key, out, budget)
                put(item, out, budget)
        except InvalidRecordValue as error:
            raise within(key, error) from None
        out.append(0)

    return write


def _enum(kind: Enum) -> Writer:
    indexes = {symbol: _long_bytes(index) for index, symbol in enumerate(kind.symbols)}

    def write(value: object, out: bytearray, budget: Budget) -> None:
        if type(value) is not str:
            raise field_error(value, f"a symbol of {kind.name}")
        if value not in indexes:
            raise InvalidRecordValue(f"no symbol of {kind.name}: {value[:50]!r}")
        out += indexes[value]

    return write


def _fixed(kind: Fixed) -> Writer:
    def write(value: object, out: bytearray, budget: Budget) -> None:
        raw = _latin(value)
        if len(raw) != kind.size_bytes:
            raise InvalidRecordValue(f"expected {kind.size_bytes} bytes, got {len(raw)}")
        out += raw

    return write


def _decimal(kind: AvroType) -> Writer:
    precision, scale = kind.props["precision"], kind.props.get("scale", 0)
    assert isinstance(precision, int)
    assert isinstance(scale, int)

    def write(value: object, out: bytearray, budget: Budget) -> None:
        unscaled = _unscaled(value, precision, scale)
        size = kind.size_bytes if isinstance(kind, Fixed) else (unscaled + (unscaled < 0)).bit_length() // 8 + 1
        if not isinstance(kind, Fixed):
            append_varint(out, size)
        out += unscaled.to_bytes(size, "big", signed=True)

    return write


def _unscaled(value: object, precision: int, scale: int) -> int:
    """The digits of a decimal number without its point."""
    if type(value) not in (str, int, float) or len(text := str(value)) > MAX_DECIMAL_DIGITS:
        raise field_error(value, "a decimal number")
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise InvalidRecordValue(f"no decimal number: {text[:50]!r}") from None
    if not number.is_finite() or not -MAX_DECIMAL_DIGITS < number.adjusted() < MAX_DECIMAL_DIGITS:
        raise InvalidRecordValue(f"no decimal number: {text[:50]!r}")
    with localcontext() as context:
        context.prec = 3 * MAX_DECIMAL_DIGITS
        scaled = number.scaleb(scale)
        unscaled = int(scaled)
        if scaled != unscaled or len(str(abs(unscaled))) > precision:
            raise InvalidRecordValue(f"{text[:50]} doesn't fit; precision={precision} scale={scale}")
    return unscaled


def _uuid(value: object, out: bytearray, budget: Budget) -> None:
    if type(value) is not str:
        raise field_error(value, "a UUID")
    try:
        out += UUID(value).bytes
    except ValueError:
        raise InvalidRecordValue(f"no UUID: {value[:50]!r}") from None


def _null(value: object, out: bytearray, budget: Budget) -> None:
    if value is not None:
        raise field_error(value, "null")


def _boolean(value: object, out: bytearray, budget: Budget) -> None:
    if type(value) is not bool:
        raise field_error(value, "a boolean")
    out.append(value)


def _whole(name: str, low: int, high: int) -> Writer:
    def write(value: object, out: bytearray, budget: Budget) -> None:
        if type(value) is not int:
            raise field_error(value, f"a whole number ({name})")
        if 0 <= value < 64:
            out.append(value << 1)
        elif low <= value < high:
            append_varint(out, value)
        else:
            raise InvalidRecordValue(f"out of the range of {name}: {str(value)[:50]}")

    return write


def _real(name: str, form: struct.Struct) -> Writer:
    def write(value: object, out: bytearray, budget: Budget) -> None:
        if type(value) is str and value in _NOT_NUMBERS:
            value = _NOT_NUMBERS[value]
        if type(value) is not float and type(value) is not int:
            raise field_error(value, f"a number ({name})")
        try:
            out += form.pack(value)
        except (OverflowError, struct.error):
            raise InvalidRecordValue(f"out of the range of {name}: {str(value)[:50]}") from None

    return write


def _bytes(value: object, out: bytearray, budget: Budget) -> None:
    raw = _latin(value)
    append_varint(out, len(raw))
    out += raw


def _string(value: object, out: bytearray, budget: Budget) -> None:
    if type(value) is not str:
        raise field_error(value, "a text")
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        raise InvalidRecordValue("a text with half a surrogate pair") from None
    size = len(raw)
    if size < 64:
        out.append(size << 1)
    else:
        append_varint(out, size)
    out += raw


def _latin(value: object) -> bytes:
    if type(value) is not str:
        raise field_error(value, "bytes as a text")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise InvalidRecordValue("bytes are a text of characters up to U+00FF") from None


def _default(each: Field) -> bytes:
    """A default's bytes; in a schema's text it is in Avro's own JSON, without logical types."""
    if each.default is MISSING:
        raise InvalidRecordValue("missing, and there is no default")
    out = bytearray()
    Writers(logical=False).of(each.type)(each.default, out, Budget())
    return bytes(out)


def _long_bytes(number: int) -> bytes:
    out = bytearray()
    append_varint(out, number)
    return bytes(out)


_PRIMITIVES: Final[dict[str, Writer]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole("int", *_INT),
    "long": _whole("long", *_LONG),
    "float": _real("float", _FLOAT),
    "double": _real("double", _DOUBLE),
    "bytes": _bytes,
    "string": _string,
}
