"""Protobuf's JSON mapping of numbers, strings, bytes and enums, with the reason why a value doesn't fit."""

import math
import struct
from base64 import b64encode
from binascii import Error, a2b_base64
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from streamhouse.schemas.protobuf.descriptors import INTEGER_RANGES

Into: TypeAlias = Callable[[Any], Any]
"""JSON value -> what the message takes; raises `ValueError` with the reason."""
Out: TypeAlias = Callable[[Any], Any]
"""Converts a field's value to JSON; raises `ValueError` with the reason."""

_WIDE: Final = frozenset(
    (
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_FIXED64,
        FieldDescriptor.TYPE_SFIXED64,
    )
)
_NO_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SINGLE: Final = struct.Struct("<f")
_MAX_SINGLE: Final = 3.4028235677973366e38
"""The largest value that rounds to a finite 32-bit float; larger ones become infinity."""
NULL_VALUE: Final = "google.protobuf.NullValue"


def into(field: FieldDescriptor) -> Into:
    """How a value of this field is read."""
    if field.enum_type is not None:
        return _into_enum(field.enum_type)
    if field.type in INTEGER_RANGES:
        return _into_integer(*INTEGER_RANGES[field.type])
    return {
        FieldDescriptor.TYPE_BOOL: _into_bool,
        FieldDescriptor.TYPE_STRING: _into_string,
        FieldDescriptor.TYPE_BYTES: _into_bytes,
        FieldDescriptor.TYPE_FLOAT: _into_single,
        FieldDescriptor.TYPE_DOUBLE: _into_double,
    }[field.type]


def into_key(field: FieldDescriptor) -> Into:
    """How the key of a map is read: JSON has nothing but strings there."""
    if field.type == FieldDescriptor.TYPE_BOOL:
        return _into_bool_key
    if field.type == FieldDescriptor.TYPE_STRING:
        return _into_string
    return into(field)


def out(field: FieldDescriptor) -> Out | None:
    """How a value of this field is written; nothing is to be done for most."""
    if field.enum_type is not None:
        return _out_enum(field.enum_type)
    if field.type in _WIDE:
        return str
    others: dict[int, Out] = {
        FieldDescriptor.TYPE_STRING: _out_string,
        FieldDescriptor.TYPE_BYTES: _out_bytes,
        FieldDescriptor.TYPE_FLOAT: _out_single,
        FieldDescriptor.TYPE_DOUBLE: _out_double,
    }
    return others.get(field.type)


def out_key(field: FieldDescriptor) -> Out:
    """How the key of a map is written."""
    keys: dict[int, Out] = {
        FieldDescriptor.TYPE_BOOL: _out_bool_key,
        FieldDescriptor.TYPE_STRING: _out_string,
    }
    return keys.get(field.type, str)


def kind_of(value: object) -> str:
    """The JSON type name of a value."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "a bool", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def _into_integer(low: int, high: int) -> Into:
    def read(value: Any) -> int:
        if type(value) is not int:
            value = _whole(value)
        if not low <= value <= high:
            raise ValueError(f"a number from {low} to {high} is expected")
        return int(value)

    return read


def _whole(value: Any) -> int:
    """An integer that JSON has as something else: in quotes, or with a point and zeros behind it."""
    if isinstance(value, str) and len(value) <= 40:
        digits = value.removeprefix("-")
        if digits.isascii() and digits.isdigit():
            return int(value)
        if value.strip() == value:
            try:
                return _whole(float(value))
            except ValueError:
                pass
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise ValueError(f"an integer is expected, not {kind_of(value)}")


def _into_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"true or false is expected, not {kind_of(value)}")
    return value


def _into_bool_key(value: Any) -> bool:
    if value not in ("true", "false"):
        raise ValueError("'true' or 'false' is expected")
    return bool(value == "true")


def _into_string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a string is expected, not {kind_of(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("the string has half a surrogate pair") from None
    return value


def _into_bytes(value: Any) -> bytes:
    if not isinstance(value, str) or not value.isascii():
        raise ValueError("a string in base64 is expected")
    text = value.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except Error:
        raise ValueError("the string is no base64") from None


def _into_double(value: Any) -> float:
    if type(value) is float:
        if not math.isfinite(value):
            raise ValueError("numbers that are none stand in quotes: 'NaN', 'Infinity', '-Infinity'")
        return value
    if isinstance(value, str):
        if value in _NO_NUMBERS:
            return _NO_NUMBERS[value]
        return _into_double(_from_text(value))
    if type(value) is not int:
        raise ValueError(f"a number is expected, not {kind_of(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("the number is too large") from None


def _from_text(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError("a number is expected, not a string") from None
    if "_" in value or value.strip() != value:
        raise ValueError("a number is expected, not a string")
    return number


def _into_single(value: Any) -> float:
    number = _into_double(value)
    if abs(number) >= _MAX_SINGLE and not math.isinf(number):
        raise ValueError("the number is too large for 32 bits")
    return number


def _into_enum(enum: EnumDescriptor) -> Into:
    numbers = {value.name: value.number for value in enum.values}
    known = set(numbers.values())
    is_null = enum.full_name == NULL_VALUE

    def read(value: Any) -> int:
        if isinstance(value, str) and value in numbers:
            return numbers[value]
        if type(value) is int and (value in known or (not enum.is_closed and -(2**31) <= value < 2**31)):
            return value
        if is_null and value is None:
            return 0
        raise ValueError(f"a value of the enum {enum.name} is expected")

    return read


def _out_enum(enum: EnumDescriptor) -> Out:
    if enum.full_name == NULL_VALUE:
        return lambda _: None
    # Of several names for a number the first one counts.
    names = {value.number: value.name for value in reversed(enum.values)}
    return lambda number: names.get(number, number)


def _out_string(value: str | bytes) -> str:
    """The library gives a string of proto2 as bytes when it is none."""
    if isinstance(value, bytes):
        raise ValueError("a string is not UTF-8")
    return value


def _out_bytes(value: bytes) -> str:
    return b64encode(value).decode()


def _out_double(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _out_single(value: float) -> float | str:
    """The fewest digits that read back as the same number of 32 bits."""
    if not math.isfinite(value) or value == 0:
        return _out_double(value)
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        if abs(short) < _MAX_SINGLE and _SINGLE.unpack(_SINGLE.pack(short))[0] == value:
            return short
    return float(f"{value:.9g}")


def _out_bool_key(value: bool) -> str:
    return "true" if value else "false"
