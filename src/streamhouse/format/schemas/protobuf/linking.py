"""Linking: type names become full names, and what a text leaves open is filled in.

Data path   `statements` or a serialised descriptor -> **linking** -> `checking` -> the pool
Owns        which message or enum a field means; the labels and JSON names that nobody wrote
Leaves      the scoping rules to `symbols`; whether numbers fit together to `checking`
"""

from dataclasses import dataclass
from dataclasses import field as cache

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
)

from streamhouse.format.schemas.protobuf.names import INTEGER_RANGES, SCALAR_NAMES, joined, json_name, map_entry_name
from streamhouse.format.schemas.protobuf.options import float_text
from streamhouse.format.schemas.protobuf.ranges import Ranges, extension_ranges
from streamhouse.format.schemas.protobuf.source import Source
from streamhouse.format.schemas.protobuf.symbols import Symbols, find_symbol, walk_extensions, walk_messages
from streamhouse.format.schemas.protobuf.tokens import c_escaped, unescaped

_TYPES = (DescriptorProto, EnumDescriptorProto)
_MESSAGE_TYPES = (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linker:
    """One file and all symbols that it can see."""

    source: Source
    symbols: Symbols
    # What is asked of one message or enum many times, by full name.
    _room: dict[str, Ranges] = cache(default_factory=dict)
    _values: dict[str, frozenset[str]] = cache(default_factory=dict)

    def link(self) -> None:
        """Give every name in the file its full form."""
        for local, message in walk_messages(self.source.file):
            for field in message.field:
                self._link_field(field, local)
        for scope, extension in walk_extensions(self.source.file):
            self._link_field(extension, scope)
            self._link_extendee(extension, scope)
        for service in self.source.file.service:
            for method in service.method:
                local = joined(service.name, method.name)
                method.input_type = self._message(method.input_type, service.name, local)
                method.output_type = self._message(method.output_type, service.name, local)

    def _link_field(self, field: FieldDescriptorProto, scope: str) -> None:
        local = joined(scope, field.name)
        if not field.HasField("label"):
            field.label = FieldDescriptorProto.LABEL_OPTIONAL
        if not field.HasField("json_name"):
            field.json_name = json_name(field.name)
        if field.type_name:
            self._link_type(field, scope, local)
        elif not field.HasField("type") or field.type not in SCALAR_NAMES:
            self.source.fail("the field has no type", local)
        elif field.HasField("default_value"):
            self._link_default(field, local)

    def _link_default(self, field: FieldDescriptorProto, local: str) -> None:
        """Defaults that other compilers wrote in other digits become equal to those of a text."""
        try:
            if field.type in INTEGER_RANGES:
                low, high = INTEGER_RANGES[field.type]
                if len(field.default_value) > 24 or not low <= int(field.default_value) <= high:
                    raise ValueError
                field.default_value = str(int(field.default_value))
            elif field.type in (FieldDescriptorProto.TYPE_FLOAT, FieldDescriptorProto.TYPE_DOUBLE):
                single = field.type == FieldDescriptorProto.TYPE_FLOAT
                field.default_value = float_text(float(field.default_value), single=single)
            elif field.type == FieldDescriptorProto.TYPE_BYTES:
                field.default_value = c_escaped(unescaped(field.default_value))
            elif field.type == FieldDescriptorProto.TYPE_BOOL and field.default_value not in ("true", "false"):
                raise ValueError
        except ValueError:
            self.source.fail("the default is not of the field's type", local)

    def _link_type(self, field: FieldDescriptorProto, scope: str, local: str) -> None:
        full = self._find(field.type_name, scope, _TYPES)
        if full is None:
            self.source.fail(f"{field.type_name[:120]!r} is no message or enum that this file can see", local)
        symbol = self.symbols[full]
        is_enum = isinstance(symbol, EnumDescriptorProto)
        natural = FieldDescriptorProto.TYPE_ENUM if is_enum else FieldDescriptorProto.TYPE_MESSAGE
        if not field.HasField("type"):
            field.type = natural
        if (field.type == FieldDescriptorProto.TYPE_ENUM) != is_enum or (
            not is_enum and field.type not in _MESSAGE_TYPES
        ):
            self.source.fail(f"{full!r} is {'an enum' if is_enum else 'a message'}: the field's type differs", local)
        if field.type == FieldDescriptorProto.TYPE_GROUP:
            self._check_group(field, full, scope)
        if isinstance(symbol, DescriptorProto) and symbol.options.map_entry:
            self._check_map(field, full, scope)
        field.type_name = f".{full}"
        if isinstance(symbol, EnumDescriptorProto) and field.HasField("default_value"):
            self._check_enum_default(field, symbol, local)

    def _check_enum_default(self, field: FieldDescriptorProto, enum: EnumDescriptorProto, local: str) -> None:
        if field.type_name not in self._values:
            self._values[field.type_name] = frozenset(value.name for value in enum.value)
        if field.default_value not in self._values[field.type_name]:
            self.source.fail(f"{field.default_value[:80]!r} is no value of the enum {enum.name!r}", local)

    def _check_group(self, field: FieldDescriptorProto, full: str, scope: str) -> None:
        """A group defines its message where it stands, and is called after it."""
        around, _, name = full.rpartition(".")
        if around != joined(self.source.file.package, scope) or name.lower() != field.name:
            self.source.fail(
                "a group stands beside its message, and has its name in small letters", joined(scope, field.name)
            )

    def _check_map(self, field: FieldDescriptorProto, entry: str, scope: str) -> None:
        """A map's entry is named after the one field that may have it, which stands beside it."""
        beside = joined(self.source.file.package, joined(scope, map_entry_name(field.name)))
        repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
        plain = field.type == FieldDescriptorProto.TYPE_MESSAGE and not field.HasField("extendee")
        if entry != beside or not repeated or not plain:
            self.source.fail("a map's entry belongs to its map alone", joined(scope, field.name))

    def _link_extendee(self, extension: FieldDescriptorProto, scope: str) -> None:
        local = joined(scope, extension.name)
        extension.extendee = self._message(extension.extendee, scope, local)
        message = self.symbols[extension.extendee[1:]]
        assert isinstance(message, DescriptorProto)
        if extension.extendee not in self._room:
            self._room[extension.extendee] = Ranges(extension_ranges(message))
        if extension.number not in self._room[extension.extendee]:
            self.source.fail(f"{extension.extendee[1:]!r} has no room for an extension {extension.number}", local)

    def _message(self, name: str, scope: str, local: str) -> str:
        full = self._find(name, scope, (DescriptorProto,))
        if full is None:
            self.source.fail(f"{name[:120]!r} is no message that this file can see", local)
        return f".{full}"

    def _find(self, name: str, scope: str, wanted: tuple[type, ...]) -> str | None:
        return find_symbol(self.symbols, name, joined(self.source.file.package, scope), wanted)
