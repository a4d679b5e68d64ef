"""Definition parser: messages, fields, enums and extensions of a .proto text to descriptors with unresolved names.

Knows the grammar of message and enum bodies in proto2, proto3 and edition 2023.
"""

from collections.abc import MutableSequence
from typing import Final, Protocol

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    ExtensionRangeOptions,
    FieldDescriptorProto,
    OneofDescriptorProto,
)

from streamhouse.schemas.protobuf.descriptors import SCALARS, Source, join_names, map_entry_name, presence_oneof_name
from streamhouse.schemas.protobuf.lexer import Cursor, Kind
from streamhouse.schemas.protobuf.option_parser import field_options, option_list, option_statement

MAX_FIELD_NUMBER: Final = 2**29 - 1
MAX_ENUM_NUMBER: Final = 2**31 - 1
MAX_MESSAGE_DEPTH: Final = 32
"""Messages inside messages: protoc stops here as well."""

_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}


class Body:
    """The inside of one message: what its statements need to know of each other."""

    __slots__ = ("cursor", "depth", "message", "scope", "source")

    def __init__(self, source: Source, cursor: Cursor, message: DescriptorProto, scope: str, depth: int) -> None:
        self.source, self.cursor, self.message, self.scope, self.depth = source, cursor, message, scope, depth

    def read(self) -> None:
        """Everything between the braces of the message."""
        if self.depth > MAX_MESSAGE_DEPTH:
            self.cursor.fail(f"messages are nested too deeply; limit={MAX_MESSAGE_DEPTH}")
        self.cursor.expect("{")
        while not self.cursor.accept("}"):
            if self.cursor.token.kind is Kind.END:
                self.cursor.expected("'}'")
            self._statement()
        _add_presence_oneofs(self.message)
        if self.message.extension_range and _is_message_set(self.message):
            _widen_extensions(self.message)

    def _statement(self) -> None:
        cursor, message = self.cursor, self.message
        match cursor.token.text:
            case ";":
                cursor.take()
            case "message":
                read_message(self.source, cursor, message.nested_type.add(), self.scope, self.depth + 1)
            case "enum":
                read_enum(self.source, cursor, message.enum_type.add(), self.scope)
            case "extensions":
                _read_extension_ranges(cursor, message)
            case "reserved":
                _read_reserved(self.source, cursor, message, low=1, high=MAX_FIELD_NUMBER, past_end=1)
            case "extend":
                read_extend(self.source, cursor, message.extension, message.nested_type, self.scope, self.depth)
            case "option":
                message.options.uninterpreted_option.append(option_statement(cursor))
            case "oneof":
                self._oneof()
            case _:
                FieldReader(self.source, cursor, message.nested_type, self.scope, self.depth).read(message.field.add())

    def _oneof(self) -> None:
        cursor = self.cursor
        cursor.take()
        start = cursor.token.start
        index = len(self.message.oneof_decl)
        oneof = self.message.oneof_decl.add(name=cursor.name("the oneof's name"))
        self.source.mark(self.scope, oneof.name, start)
        cursor.expect("{")
        while not cursor.accept("}"):
            if cursor.is_next("option"):
                oneof.options.uninterpreted_option.append(option_statement(cursor))
            elif not cursor.accept(";"):
                field = self.message.field.add(oneof_index=index)
                FieldReader(self.source, cursor, self.message.nested_type, self.scope, self.depth).read(field)


class FieldReader:
    """One field; groups and maps bring a message of their own, which goes to `nested`."""

    __slots__ = ("cursor", "depth", "nested", "scope", "source")

    def __init__(self, source: Source, cursor: Cursor, nested: "Messages", scope: str, depth: int) -> None:
        self.source, self.cursor, self.nested, self.scope, self.depth = source, cursor, nested, scope, depth

    def read(self, field: FieldDescriptorProto) -> None:
        cursor = self.cursor
        if cursor.token.kind is not Kind.NAME and not cursor.is_next("."):
            cursor.expected("a field, or '}'")
        labelled = self._label(field)
        if cursor.is_next("map") and cursor.is_after_next("<"):
            if labelled or field.HasField("oneof_index") or field.HasField("extendee"):
                cursor.fail("a map has no label and is allowed neither in a oneof nor in an extension")
            self._map(field)
            return
        in_oneof = field.HasField("oneof_index")
        if not labelled and not in_oneof and not (self.source.is_proto3 or self.source.has_editions):
            cursor.expected("'optional', 'required' or 'repeated'")
        if cursor.is_next("group") and not self.source.is_proto3 and not self.source.has_editions:
            self._group(field)
            return
        self._type(field)
        self._name_and_number(field)
        field_options(cursor, field)
        cursor.expect(";")

    def _label(self, field: FieldDescriptorProto) -> bool:
        field.label = FieldDescriptorProto.LABEL_OPTIONAL
        word = self.cursor.token.text
        if word not in _LABELS:
            return False
        if field.HasField("oneof_index"):
            self.cursor.fail("fields in a oneof have no label")
        if word == "required" and (self.source.is_proto3 or self.source.has_editions):
            self.cursor.fail("required fields are for proto2")
        if word == "optional" and self.source.has_editions:
            self.cursor.fail("in editions, presence is a feature: features.field_presence")
        self.cursor.take()
        field.label = _LABELS[word]
        if word == "optional" and self.source.is_proto3:
            field.proto3_optional = True
        return True

    def _type(self, field: FieldDescriptorProto) -> None:
        cursor = self.cursor
        if cursor.token.text in SCALARS:
            field.type = SCALARS[cursor.take().text]
        else:
            field.type_name = cursor.path("a type")

    def _name_and_number(self, field: FieldDescriptorProto) -> None:
        start = self.cursor.token.start
        field.name = self.cursor.name("the field's name")
        self.source.mark(self.scope, field.name, start)
        self.cursor.expect("=")
        field.number = self.cursor.integer("the field's number", low=1, high=MAX_FIELD_NUMBER)

    def _group(self, field: FieldDescriptorProto) -> None:
        cursor = self.cursor
        cursor.take()
        start = cursor.token.start
        if not cursor.token.text[:1].isupper():
            cursor.expected("the group's name, with a capital")
        field.type = FieldDescriptorProto.TYPE_GROUP
        self._name_and_number(field)
        message = self.nested.add(name=field.name)
        field.type_name = field.name
        self.source.mark(self.scope, field.name.lower(), start)
        field_options(cursor, field)
        field.name = field.name.lower()
        Body(self.source, cursor, message, join_names(self.scope, message.name), self.depth + 1).read()

    def _map(self, field: FieldDescriptorProto) -> None:
        cursor = self.cursor
        cursor.take()
        cursor.expect("<")
        key = FieldDescriptorProto(name="key", number=1, label=FieldDescriptorProto.LABEL_OPTIONAL)
        value = FieldDescriptorProto(name="value", number=2, label=FieldDescriptorProto.LABEL_OPTIONAL)
        self._type(key)
        cursor.expect(",")
        self._type(value)
        cursor.expect(">")
        self._name_and_number(field)
        field.label = FieldDescriptorProto.LABEL_REPEATED
        field.type_name = map_entry_name(field.name)
        entry = self.nested.add(name=field.type_name)
        entry.options.map_entry = True
        entry.field.extend((key, value))
        self.source.mark(self.scope, entry.name, self.source.starts[join_names(self.scope, field.name)])
        field_options(cursor, field)
        cursor.expect(";")


class Messages(Protocol):
    """Where new messages go: a file's, or another message's."""

    def add(self, *, name: str = ...) -> DescriptorProto: ...


class Fields(Protocol):
    """Where new fields go."""

    def add(self, *, extendee: str = ...) -> FieldDescriptorProto: ...


def read_message(source: Source, cursor: Cursor, message: DescriptorProto, scope: str, depth: int) -> None:
    """`message Name { ... }`"""
    cursor.expect("message")
    start = cursor.token.start
    message.name = cursor.name("the message's name")
    source.mark(scope, message.name, start)
    Body(source, cursor, message, join_names(scope, message.name), depth).read()


def read_enum(source: Source, cursor: Cursor, enum: EnumDescriptorProto, scope: str) -> None:
    """`enum Name { ... }`"""
    cursor.expect("enum")
    start = cursor.token.start
    enum.name = cursor.name("the enum's name")
    source.mark(scope, enum.name, start)
    cursor.expect("{")
    while not cursor.accept("}"):
        if cursor.is_next("option"):
            enum.options.uninterpreted_option.append(option_statement(cursor))
        elif cursor.is_next("reserved"):
            _read_reserved(source, cursor, enum, low=-MAX_ENUM_NUMBER - 1, high=MAX_ENUM_NUMBER, past_end=0)
        elif not cursor.accept(";"):
            _read_enum_value(source, cursor, enum, scope)


def _read_enum_value(source: Source, cursor: Cursor, enum: EnumDescriptorProto, scope: str) -> None:
    start = cursor.token.start
    value = enum.value.add(name=cursor.name("a value, or '}'"))
    # A value is a name beside its enum, not inside of it.
    source.mark(scope, value.name, start)
    cursor.expect("=")
    value.number = cursor.integer("the value's number", low=-MAX_ENUM_NUMBER - 1, high=MAX_ENUM_NUMBER)
    options = list(option_list(cursor))
    if options:
        value.options.uninterpreted_option.extend(options)
    cursor.expect(";")


def read_extend(source: Source, cursor: Cursor, extensions: Fields, nested: Messages, scope: str, depth: int) -> None:
    """`extend Name { fields }`"""
    cursor.expect("extend")
    extendee = cursor.path("the message to extend")
    cursor.expect("{")
    empty = True
    while not cursor.accept("}"):
        if cursor.accept(";"):
            continue
        empty = False
        FieldReader(source, cursor, nested, scope, depth).read(extensions.add(extendee=extendee))
    if empty:
        cursor.fail("an extension has at least one field")


def _read_extension_ranges(cursor: Cursor, message: DescriptorProto) -> None:
    cursor.expect("extensions")
    first = len(message.extension_range)
    while True:
        start, end = _range(cursor, low=1, high=MAX_FIELD_NUMBER)
        message.extension_range.add(start=start, end=end + 1)
        if not cursor.accept(","):
            break
    options = list(option_list(cursor))
    if options:
        for extension_range in message.extension_range[first:]:
            extension_range.options.CopyFrom(ExtensionRangeOptions(uninterpreted_option=options))
    cursor.expect(";")


def _read_reserved(
    source: Source, cursor: Cursor, owner: DescriptorProto | EnumDescriptorProto, *, low: int, high: int, past_end: int
) -> None:
    cursor.expect("reserved")
    if cursor.token.kind is Kind.STRING or cursor.token.kind is Kind.NAME:
        _read_reserved_names(source, cursor, owner.reserved_name)
        return
    while True:
        start, end = _range(cursor, low=low, high=high)
        owner.reserved_range.add(start=start, end=end + past_end)
        if not cursor.accept(","):
            break
    cursor.expect(";")


def _read_reserved_names(source: Source, cursor: Cursor, names: MutableSequence[str]) -> None:
    while True:
        if source.has_editions:
            names.append(cursor.name("a reserved name"))
        else:
            names.append(cursor.text_string("a reserved name in quotes"))
        if not cursor.accept(","):
            break
    cursor.expect(";")


def _range(cursor: Cursor, *, low: int, high: int) -> tuple[int, int]:
    at = cursor.token.start
    start = cursor.integer("a number", low=low, high=high)
    if not cursor.accept("to"):
        return start, start
    end = high if cursor.accept("max") else cursor.integer("a number or 'max'", low=low, high=high)
    if end < start:
        cursor.fail("the range ends before it starts", at=at)
    return start, end


def _is_message_set(message: DescriptorProto) -> bool:
    """Whether the message has `message_set_wire_format`, whose extensions may have larger numbers."""
    return any(
        [part.name_part for part in option.name] == ["message_set_wire_format"] and option.identifier_value == "true"
        for option in message.options.uninterpreted_option
    )


def _widen_extensions(message: DescriptorProto) -> None:
    """In a message set `max` means more than elsewhere."""
    for extension_range in message.extension_range:
        if extension_range.end == MAX_FIELD_NUMBER + 1:
            extension_range.end = MAX_ENUM_NUMBER


def _add_presence_oneofs(message: DescriptorProto) -> None:
    """Give every `optional` field of proto3 a oneof of its own, after all other oneofs."""
    optional = [field for field in message.field if field.proto3_optional]
    if not optional:
        return
    taken = {each.name for each in message.field} | {each.name for each in message.oneof_decl}
    for field in optional:
        name = presence_oneof_name(field.name, taken)
        taken.add(name)
        field.oneof_index = len(message.oneof_decl)
        message.oneof_decl.append(OneofDescriptorProto(name=name))
