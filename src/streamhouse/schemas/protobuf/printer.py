"""Printer: a linked file as .proto text; files that mean the same have the same text.

Invariant: parsing the text gives the same descriptor, each message at the same index, unless the text is normalized.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Final, TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from streamhouse.schemas.protobuf.definition_parser import MAX_ENUM_NUMBER, MAX_FIELD_NUMBER
from streamhouse.schemas.protobuf.descriptors import SCALAR_NAMES, join_names, json_name, message_class
from streamhouse.schemas.protobuf.lexer import quoted
from streamhouse.schemas.protobuf.option_parser import float_text


@dataclass(frozen=True)
class OptionPrinter:
    """Prints options by what one schema's pool knows."""

    pool: DescriptorPool

    def bracketed(self, owner: Any, *, special: Iterable[str] = ()) -> str:
        """` [a = 1, b = 2]`, or nothing when there is nothing to say."""
        options = [*special, *self.assignments(owner)]
        return f" [{', '.join(options)}]" if options else ""

    def assignments(self, owner: Any) -> list[str]:
        """`name = value` for all options of a message, a field, ...; what belongs to the syntax of maps is left out."""
        if not owner.HasField("options"):
            return []
        options = self._known(owner.options)
        return [each for field, value in options.ListFields() for each in self._assignments("", field, value)]

    def _known(self, options: Message) -> Message:
        """The same options, with the custom ones understood as far as the schema's imports define them."""
        if not self._knows_options:
            return options
        try:
            known: Message = message_class(self.pool.FindMessageTypeByName(options.DESCRIPTOR.full_name))()
            known.ParseFromString(options.SerializeToString())
        except (KeyError, DecodeError):
            return options
        return known

    @cached_property
    def _knows_options(self) -> bool:
        try:
            self.pool.FindFileByName("google/protobuf/descriptor.proto")
        except KeyError:
            return False
        return True

    def _assignments(self, prefix: str, field: FieldDescriptor, value: Any) -> Iterable[str]:
        name = f"{prefix}(.{field.full_name})" if field.is_extension else f"{prefix}{field.name}"
        if name == "uninterpreted_option":
            return
        if name == "features":
            # Of these some may be set by hand only one by one.
            for inner, inner_value in value.ListFields():
                yield from self._assignments(f"{name}.", inner, inner_value)
            return
        for each in _each(field, value):
            yield f"{name} = {self._value(field, each)}"

    def _value(self, field: FieldDescriptor, value: Any) -> str:
        if field.message_type is not None:
            text = text_format.MessageToString(value, as_one_line=True)
            return f"{{ {text} }}" if text else "{ }"
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return str(value) if known is None else known.name
        if field.type == FieldDescriptor.TYPE_BOOL:
            return "true" if value else "false"
        if field.type == FieldDescriptor.TYPE_STRING:
            return quoted(value.encode())
        if field.type == FieldDescriptor.TYPE_BYTES:
            return quoted(value)
        if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
            return float_text(value, single=field.type == FieldDescriptor.TYPE_FLOAT)
        return str(value)


def _each(field: FieldDescriptor, value: Any) -> Iterable[Any]:
    """Every value of a field that may have many; a map is read as the entries it is written as."""
    if not field.is_repeated:
        return [value]
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return list(value)
    entry_class: Any = message_class(entry)
    is_message = entry.fields_by_name["value"].message_type is not None
    entries = []
    for key in sorted(value):
        item = entry_class(key=key)
        item.value.CopyFrom(value[key]) if is_message else setattr(item, "value", value[key])
        entries.append(item)
    return entries


T = TypeVar("T")
_LABELS: Final = {
    FieldDescriptorProto.LABEL_OPTIONAL: "optional ",
    FieldDescriptorProto.LABEL_REQUIRED: "required ",
    FieldDescriptorProto.LABEL_REPEATED: "repeated ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """Lines that stand together, and the messages that they define besides (entries of maps, groups)."""

    lines: list[str]
    brings: tuple[str, ...] = ()


def _together(head: str, units: Iterable[_Unit], lines: Iterable[str] = ()) -> _Unit:
    """Several of them in one pair of braces."""
    units = list(units)
    inner = [*lines, *(line for unit in units for line in unit.lines)]
    brings = tuple(name for unit in units for name in unit.brings)
    return _Unit(lines=[f"{head} {{", *_indented(inner), "}"], brings=brings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Printer:
    """Prints one file."""

    file: FileDescriptorProto
    options: OptionPrinter
    is_normalized: bool = False

    def text(self) -> str:
        """The whole file."""
        return "\n".join((*self._head(), *self._definitions())) + "\n"

    def _head(self) -> Iterator[str]:
        file = self.file
        if file.syntax == "editions":
            yield 'edition = "2023";'
        else:
            yield f'syntax = "{file.syntax or "proto2"}";'
        if file.package:
            yield f"package {file.package};"
        public, weak = set(file.public_dependency), set(file.weak_dependency)
        imports = [
            f"import {'public ' if at in public else 'weak ' if at in weak else ''}{quoted(path.encode())};"
            for at, path in enumerate(file.dependency)
        ]
        yield from sorted(imports) if self.is_normalized else imports
        yield from self._option_statements(file)

    def _definitions(self) -> Iterator[str]:
        file = self.file
        scope = file.package
        yield from self._woven(file.message_type, list(self._extends(file.extension, file.message_type, scope)), scope)
        for enum in file.enum_type:
            yield from self._enum(enum)
        for service in file.service:
            yield from self._service(service)

    # --- messages ---------------------------------------------------------------------------------------------

    def _message(self, message: DescriptorProto, scope: str) -> Iterator[str]:
        yield f"message {message.name} {{"
        yield from _indented(self._body(message, join_names(scope, message.name)))
        yield "}"

    def _body(self, message: DescriptorProto, scope: str) -> Iterator[str]:
        yield from self._option_statements(message)
        yield from self._reserved(message, past_end=1, highest=MAX_FIELD_NUMBER)
        units = list(self._field_units(message, scope))
        units += self._extends(message.extension, message.nested_type, scope)
        yield from self._woven(message.nested_type, units, scope)
        for enum in message.enum_type:
            yield from self._enum(enum)
        for each in self._in_order(message.extension_range, key=lambda each: each.start):
            last = "max" if each.end > MAX_FIELD_NUMBER else str(each.end - 1)
            numbers = str(each.start) if last == str(each.start) else f"{each.start} to {last}"
            yield f"extensions {numbers}{self.options.bracketed(each)};"

    def _woven(self, messages: Sequence[DescriptorProto], units: list[_Unit], scope: str) -> Iterator[str]:
        """Messages and what else defines messages, so that every message comes back at its index.

        Clients write the index of a record's message in front of it.
        """
        brought = {name for unit in units for name in unit.brings}
        plain = deque(message for message in messages if message.name not in brought)
        waiting = iter(units)
        debt = 0
        last = max((at for at, message in enumerate(messages) if message.name in brought), default=-1)
        for message in messages[: last + 1]:
            if message.name not in brought:
                yield from self._message(plain.popleft(), scope)
                continue
            while debt == 0:
                unit = next(waiting)
                yield from unit.lines
                debt += len(unit.brings)
            debt -= 1
        for unit in waiting:
            yield from unit.lines
        for message in plain:
            yield from self._message(message, scope)

    # --- fields -----------------------------------------------------------------------------------------------

    def _field_units(self, message: DescriptorProto, scope: str) -> Iterator[_Unit]:
        fields = self._in_order(message.field, key=lambda field: field.number)
        nested = {each.name: each for each in message.nested_type}
        members: dict[int, list[FieldDescriptorProto]] = {}
        for field in fields:
            if field.HasField("oneof_index") and not field.proto3_optional:
                members.setdefault(field.oneof_index, []).append(field)
        for field in fields:
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield self._field(field, nested, scope)
            elif field.oneof_index in members:
                oneof = message.oneof_decl[field.oneof_index]
                units = (self._field(each, nested, scope, is_labelled=False) for each in members.pop(field.oneof_index))
                yield _together(f"oneof {oneof.name}", units, self._option_statements(oneof))

    def _field(
        self,
        field: FieldDescriptorProto,
        nested: Mapping[str, DescriptorProto],
        scope: str,
        *,
        is_labelled: bool = True,
    ) -> _Unit:
        label = self._label(field) if is_labelled else ""
        tail = self.options.bracketed(field, special=_special(field))
        beside = f"{scope}." if scope else ""
        name = field.type_name[1:].removeprefix(beside)
        message = nested.get(name)
        if message is not None and message.options.map_entry:
            key, value = (_type(each) for each in message.field)
            return _Unit(lines=[f"map<{key}, {value}> {field.name} = {field.number}{tail};"], brings=(name,))
        if message is not None and field.type == FieldDescriptorProto.TYPE_GROUP:
            head = f"{label}group {message.name} = {field.number}{tail} {{"
            return _Unit(lines=[head, *_indented(self._body(message, join_names(scope, name))), "}"], brings=(name,))
        return _Unit(lines=[f"{label}{_type(field)} {field.name} = {field.number}{tail};"])

    def _label(self, field: FieldDescriptorProto) -> str:
        if field.label != FieldDescriptorProto.LABEL_OPTIONAL or field.proto3_optional or not self.file.syntax:
            return _LABELS[field.label]
        return ""

    def _extends(
        self, extensions: Sequence[FieldDescriptorProto], nested: Sequence[DescriptorProto], scope: str
    ) -> Iterator[_Unit]:
        fields = self._in_order(extensions, key=lambda field: (field.extendee, field.number))
        beside = {each.name: each for each in nested}
        for extendee, members in groupby(fields, key=lambda field: field.extendee):
            yield _together(f"extend {extendee}", [self._field(field, beside, scope) for field in members])

    # --- enums and services -----------------------------------------------------------------------------------

    def _enum(self, enum: EnumDescriptorProto) -> Iterator[str]:
        yield f"enum {enum.name} {{"
        yield from _indented(self._option_statements(enum))
        yield from _indented(self._reserved(enum, past_end=0, highest=MAX_ENUM_NUMBER))
        values = self._in_order(enum.value, key=lambda value: (value.number, value.name))
        # The first value is the default of the type: it stays so, whatever its number.
        values.sort(key=lambda value: value.name != enum.value[0].name)
        for value in values:
            yield f"  {value.name} = {value.number}{self.options.bracketed(value)};"
        yield "}"

    def _service(self, service: ServiceDescriptorProto) -> Iterator[str]:
        yield f"service {service.name} {{"
        yield from _indented(self._option_statements(service))
        for method in service.method:
            yield from _indented(self._method(method))
        yield "}"

    def _method(self, method: MethodDescriptorProto) -> Iterator[str]:
        takes = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        gives = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        head = f"rpc {method.name} ({takes}) returns ({gives})"
        options = list(_indented(self._option_statements(method)))
        yield from (f"{head} {{", *options, "}") if options else (f"{head};",)

    # --- pieces -----------------------------------------------------------------------------------------------

    def _reserved(self, owner: DescriptorProto | EnumDescriptorProto, *, past_end: int, highest: int) -> Iterator[str]:
        for start, end in self._in_order([(each.start, each.end) for each in owner.reserved_range], key=tuple):
            last = end - past_end
            until = "" if last == start else f" to {'max' if last >= highest else last}"
            yield f"reserved {start}{until};"
        is_edition = self.file.syntax == "editions"
        for name in self._in_order(owner.reserved_name, key=str):
            yield f"reserved {name if is_edition else quoted(name.encode())};"

    def _option_statements(self, owner: object) -> list[str]:
        return [f"option {option};" for option in self.options.assignments(owner)]

    def _in_order(self, items: Iterable[T], key: Callable[[T], Any]) -> list[T]:
        return sorted(items, key=key) if self.is_normalized else list(items)


def _type(field: FieldDescriptorProto) -> str:
    return field.type_name or SCALAR_NAMES[field.type]


def _special(field: FieldDescriptorProto) -> list[str]:
    """The entries among a field's options that are no options."""
    special = []
    if field.HasField("default_value"):
        value = field.default_value
        if field.type == FieldDescriptorProto.TYPE_STRING:
            value = quoted(value.encode())
        elif field.type == FieldDescriptorProto.TYPE_BYTES:
            value = f'"{value}"'
        special.append(f"default = {value}")
    if field.HasField("json_name") and field.json_name != json_name(field.name):
        special.append(f"json_name = {quoted(field.json_name.encode())}")
    return special


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
