"""Option parser: names and values of options as they stand in the text; `option_values` gives them their meaning.

`default` is parsed here too: it looks like an option and is part of the field.
"""

import math
import struct
from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, UninterpretedOption

from streamhouse.schemas.protobuf.descriptors import INTEGER_RANGES
from streamhouse.schemas.protobuf.lexer import Cursor, Kind, c_escaped

MAX_AGGREGATE_DEPTH: Final = 32
"""Braces inside braces in the value of one option; the text format's reader recurses once for each."""

_SINGLE: Final = struct.Struct("<f")
_OPENING: Final = frozenset("{[<")
_CLOSING: Final = frozenset("}]>")


def option_statement(cursor: Cursor) -> UninterpretedOption:
    """`option name = value;`"""
    cursor.expect("option")
    option = _option(cursor)
    cursor.expect(";")
    return option


def option_list(cursor: Cursor) -> Iterator[UninterpretedOption]:
    """`[name = value, ...]`, if there is one; `default` of a field is left to the caller at its name."""
    if not cursor.accept("["):
        return
    yield _option(cursor)
    while not cursor.accept("]"):
        if not cursor.accept(","):
            cursor.expected("',' or ']'")
        yield _option(cursor)


def field_options(cursor: Cursor, field: FieldDescriptorProto) -> None:
    """The options in brackets after a field."""
    if not cursor.accept("["):
        return
    while True:
        start = cursor.token.start
        if cursor.is_next("default") and cursor.is_after_next("="):
            if field.HasField("default_value"):
                cursor.fail("a field has one default", at=start)
            cursor.take()
            cursor.take()
            field.default_value = _default(cursor, field)
        elif cursor.is_next("json_name") and cursor.is_after_next("="):
            if field.HasField("json_name"):
                cursor.fail("a field has one json_name", at=start)
            cursor.take()
            cursor.take()
            field.json_name = cursor.text_string("the field's name in JSON")
        else:
            field.options.uninterpreted_option.append(_option(cursor))
        if cursor.accept("]"):
            return
        if not cursor.accept(","):
            cursor.expected("',' or ']'")


def _option(cursor: Cursor) -> UninterpretedOption:
    option = UninterpretedOption()
    _name_part(cursor, option)
    while cursor.accept("."):
        _name_part(cursor, option)
    cursor.expect("=")
    _value(cursor, option)
    return option


def _name_part(cursor: Cursor, option: UninterpretedOption) -> None:
    if cursor.accept("("):
        option.name.add(name_part=cursor.path("an extension's name"), is_extension=True)
        cursor.expect(")")
    else:
        option.name.add(name_part=cursor.name("an option's name"), is_extension=False)


def _value(cursor: Cursor, option: UninterpretedOption) -> None:
    if cursor.is_next("{"):
        option.aggregate_value = _aggregate(cursor)
        return
    if cursor.token.kind is Kind.STRING:
        option.string_value = cursor.string()
        return
    negative = cursor.accept("-")
    if cursor.token.kind is Kind.NAME and not negative:
        option.identifier_value = cursor.name()
        return
    number = _number(cursor, negative)
    if isinstance(number, float):
        option.double_value = number
    elif number < 0:
        option.negative_int_value = number
    else:
        option.positive_int_value = number


def _number(cursor: Cursor, negative: bool) -> int | float:
    token = cursor.token
    if token.text in ("inf", "nan"):
        cursor.take()
        value: int | float = float(token.text)
    elif token.kind is Kind.FLOAT:
        value = float(cursor.take().text)
    elif token.kind is Kind.INT:
        value = cursor.unsigned()
        if negative and value > 2**63:
            value = float(value)
    else:
        cursor.expected("a value")
    return -value if negative else value


def _aggregate(cursor: Cursor) -> str:
    """Everything between two braces, as the text format's reader will want it."""
    words: list[str] = []
    depth = 0
    while True:
        token = cursor.token
        if token.kind is Kind.END:
            cursor.expected("'}'")
        if token.text in _OPENING:
            depth += 1
            if depth > MAX_AGGREGATE_DEPTH:
                cursor.fail(f"the option's value is nested too deeply; limit={MAX_AGGREGATE_DEPTH}")
        elif token.text in _CLOSING:
            depth -= 1
        words.append(cursor.take().text)
        if depth == 0:
            # The reader takes a sign and its number for one word.
            return "".join(word if word == "-" else f"{word} " for word in words[1:-1])


def _default(cursor: Cursor, field: FieldDescriptorProto) -> str:
    """The default as a descriptor writes it. A type without a number is an enum, or the linker rejects it."""
    if not field.HasField("type"):
        return cursor.name("the name of an enum's value")
    kind = field.type
    if kind in INTEGER_RANGES:
        low, high = INTEGER_RANGES[kind]
        return str(cursor.integer("the default", low=low, high=high))
    if kind == FieldDescriptorProto.TYPE_BOOL:
        if not (cursor.is_next("true") or cursor.is_next("false")):
            cursor.expected("'true' or 'false'")
        return cursor.name()
    if kind == FieldDescriptorProto.TYPE_STRING:
        return cursor.text_string("the default")
    if kind == FieldDescriptorProto.TYPE_BYTES:
        return c_escaped(cursor.string("the default"))
    if kind in (FieldDescriptorProto.TYPE_FLOAT, FieldDescriptorProto.TYPE_DOUBLE):
        return float_text(float(_number(cursor, cursor.accept("-"))), single=kind == FieldDescriptorProto.TYPE_FLOAT)
    cursor.fail("messages have no default")


def float_text(value: float, *, single: bool) -> str:
    """A number in the fewest digits that read back as the same, as descriptors write it."""
    if math.isnan(value) or math.isinf(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if single:
        short = f"{value:.6g}"
        return short if _as_single(float(short)) == _as_single(value) else f"{value:.9g}"
    short = f"{value:.15g}"
    return short if float(short) == value else f"{value:.17g}"


def _as_single(value: float) -> float:
    """A number rounded to a 32-bit float."""
    try:
        (single,) = _SINGLE.unpack(_SINGLE.pack(value))
    except OverflowError:
        return math.copysign(math.inf, value)
    return float(single)
