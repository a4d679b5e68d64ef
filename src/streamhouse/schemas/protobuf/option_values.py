"""Option values: parsed options set as fields of the messages that Protobuf keeps them in.

Rejects options that are unknown, set twice or of the wrong type. Custom options are set once the pool knows their
types; aggregates are parsed by the Protobuf library.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, Protocol

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, UninterpretedOption
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from streamhouse.schemas.protobuf.descriptors import INTEGER_RANGES, Source, join_names, message_class
from streamhouse.schemas.protobuf.linker import Symbols, find_symbol, walk_enums, walk_extensions, walk_messages

# A name in brackets inside an aggregate, where strings are passed over. Between two tokens there is one space.
_BRACKETS: Final = re.compile(r""""(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|\[ ([A-Za-z_.][A-Za-z0-9_. ]*) \]""")


class HasOptions(Protocol):
    """Anything that options can be set on; each has a message of its own kind for them."""

    @property
    def options(self) -> Any: ...

    def HasField(self, name: Any, /) -> bool: ...


def walk_options(file: FileDescriptorProto) -> Iterator[tuple[str, HasOptions]]:
    """Everything in a file that has options, with the name inside the file."""
    return ((local, each) for local, each in _walk(file) if each.HasField("options"))


def _walk(file: FileDescriptorProto) -> Iterator[tuple[str, HasOptions]]:
    yield "", file
    for local, message in walk_messages(file):
        yield local, message
        yield from ((join_names(local, field.name), field) for field in message.field)
        yield from ((join_names(local, oneof.name), oneof) for oneof in message.oneof_decl)
        yield from ((local, extension_range) for extension_range in message.extension_range)
    for local, enum in walk_enums(file):
        yield local, enum
        yield from ((join_names(local.rpartition(".")[0], value.name), value) for value in enum.value)
    for scope, extension in walk_extensions(file):
        yield join_names(scope, extension.name), extension
    for service in file.service:
        yield service.name, service
        yield from ((join_names(service.name, method.name), method) for method in service.method)


def interpret_plain(source: Source) -> list[tuple[str, Any, list[UninterpretedOption]]]:
    """Set the options that Protobuf itself defines; those that need an extension are taken off and handed back."""
    custom = []
    for local, element in walk_options(source.file):
        waiting = list(element.options.uninterpreted_option)
        element.options.ClearField("uninterpreted_option")
        setter = _Setter(source=source, local=local)
        for option in waiting:
            if not any(part.is_extension for part in option.name):
                setter.set(element.options, option)
        left = [option for option in waiting if any(part.is_extension for part in option.name)]
        if left:
            custom.append((local, element.options, left))
    return custom


def interpret_custom(
    source: Source, custom: list[tuple[str, Any, list[UninterpretedOption]]], symbols: Symbols, pool: DescriptorPool
) -> None:
    """Set the options that other files, or this one, define; the pool holds them all."""
    for local, options, waiting in custom:
        setter = _Setter(source=source, local=local, symbols=symbols, pool=pool)
        try:
            kind = pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
        except KeyError:
            source.fail(f"option {_name(waiting[0])} is not defined: an import is missing", local)
        known = message_class(kind)()
        known.ParseFromString(options.SerializeToString())
        for option in waiting:
            setter.set(known, option)
        if not known.IsInitialized():
            source.fail(f"option {_name(waiting[0])} lacks a required field", local)
        # What the library's own options don't know is kept among their unknown fields, as protoc leaves it.
        options.ParseFromString(known.SerializeToString(deterministic=True))


def _name(option: UninterpretedOption) -> str:
    parts = (f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    return ".".join(parts)[:200]


class _Setter:
    """Sets options on one element of a file."""

    def __init__(
        self, *, source: Source, local: str, symbols: Symbols | None = None, pool: DescriptorPool | None = None
    ) -> None:
        self.source, self.local, self.symbols, self.pool = source, local, symbols or {}, pool

    def set(self, message: Any, option: UninterpretedOption) -> None:
        name = _name(option)
        if not option.name:
            self.source.fail("an option has a name", self.local)
        for part in option.name[:-1]:
            field = self._field(message, part, name)
            if field.message_type is None or field.is_repeated:
                self.source.fail(f"option {name}: {part.name_part!r} is not a single message", self.local)
            message = message.Extensions[field] if field.is_extension else getattr(message, field.name)
            message.SetInParent()
        self._set_field(message, self._field(message, option.name[-1], name), option, name)

    def _field(self, message: Any, part: UninterpretedOption.NamePart, name: str) -> FieldDescriptor:
        field: FieldDescriptor | None
        if part.is_extension:
            field = self._extension(message, part.name_part)
        else:
            field = message.DESCRIPTOR.fields_by_name.get(part.name_part)
        if field is None or field.name == "uninterpreted_option":
            self.source.fail(f"option {name} is not defined here", self.local)
        return field

    def _extension(self, message: Any, name: str) -> FieldDescriptor | None:
        full = self._full_name(name)
        if full is None or self.pool is None:
            return None
        extension = self.pool.FindExtensionByName(full)
        return extension if extension.containing_type is message.DESCRIPTOR else None

    def _full_name(self, name: str) -> str | None:
        """The extension that a name means here. One that is full already counts even where protoc, looking from
        inside a package with the same first part, would not see it: other registries print options that way."""
        types = (FieldDescriptorProto,)
        scope = join_names(self.source.file.package, self.local)
        return find_symbol(self.symbols, name, scope, types) or find_symbol(self.symbols, f".{name}", "", types)

    def _set_field(self, message: Any, field: FieldDescriptor, option: UninterpretedOption, name: str) -> None:
        if not field.is_repeated and _is_set(message, field):
            self.source.fail(f"option {name} is set twice", self.local)
        target = message.Extensions[field] if field.is_extension else getattr(message, field.name)
        try:
            if field.message_type is not None:
                self._merge(message, field, option, name)
            elif field.is_repeated:
                target.append(self._value(field, option, name))
            elif field.is_extension:
                message.Extensions[field] = self._value(field, option, name)
            else:
                setattr(message, field.name, self._value(field, option, name))
        except (TypeError, ValueError, AttributeError) as error:
            self.source.fail(f"option {name}: {error}", self.local)

    def _merge(self, message: Message, field: FieldDescriptor, option: UninterpretedOption, name: str) -> None:
        """Add a message in braces; encoded as a field of the enclosing message, so that maps need no special case."""
        if not option.HasField("aggregate_value"):
            self.source.fail(f"option {name} is a message: its value must be in braces", self.local)
        kind = field.message_type
        assert kind is not None
        is_group = field.type == FieldDescriptor.TYPE_GROUP
        key = f"[{field.full_name}]" if field.is_extension else kind.name if is_group else field.name
        value = _BRACKETS.sub(self._full_extension, option.aggregate_value)
        try:
            text_format.Merge(f"{key} {{ {value} }}", message, descriptor_pool=self.pool)
        except (text_format.ParseError, RecursionError) as error:
            self.source.fail(f"option {name}: {error}", self.local)

    def _full_extension(self, match: re.Match[str]) -> str:
        """The text format wants extensions by their full name; a .proto file may leave out what is around both."""
        if match[1] is None:
            return match[0]
        full = self._full_name(match[1].replace(" ", ""))
        return match[0] if full is None else f"[{full}]"

    def _value(self, field: FieldDescriptor, option: UninterpretedOption, name: str) -> object:
        value = _plain_value(field, option)
        if value is None:
            self.source.fail(f"option {name} has a value of another type", self.local)
        return value


def _is_set(message: Any, field: FieldDescriptor) -> bool:
    if field.is_extension:
        return bool(message.HasExtension(field))
    # A field without presence has a value only.
    return bool(message.HasField(field.name) if field.has_presence else getattr(message, field.name))


def _plain_value(field: FieldDescriptor, option: UninterpretedOption) -> object:
    """The value as the field wants it, or nothing when it is of another type."""
    if field.enum_type is not None:
        value = field.enum_type.values_by_name.get(option.identifier_value)
        return None if value is None else value.number
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"true": True, "false": False}.get(option.identifier_value)
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        if not option.HasField("string_value"):
            return None
        return option.string_value if field.type == FieldDescriptor.TYPE_BYTES else option.string_value.decode()
    number = _number(option)
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return None if number is None else float(number)
    if not isinstance(number, int):
        return None
    low, high = INTEGER_RANGES[field.type]
    return number if low <= number <= high else None


def _number(option: UninterpretedOption) -> int | float | None:
    if option.HasField("positive_int_value"):
        return option.positive_int_value
    if option.HasField("negative_int_value"):
        return option.negative_int_value
    if option.HasField("double_value"):
        return option.double_value
    return float(option.identifier_value) if option.identifier_value in ("inf", "nan") else None
