"""Linker: resolves type names to full names and fills in labels and JSON names that the text leaves out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as cache
from typing import Final, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from streamhouse.schemas.protobuf.definition_parser import MAX_MESSAGE_DEPTH
from streamhouse.schemas.protobuf.descriptors import (
    IDENTIFIER,
    INTEGER_RANGES,
    MAX_FULL_NAME,
    SCALAR_NAMES,
    Ranges,
    Source,
    extension_ranges,
    join_names,
    json_name,
    map_entry_name,
)
from streamhouse.schemas.protobuf.lexer import c_escaped, unescaped
from streamhouse.schemas.protobuf.option_parser import float_text

Symbol: TypeAlias = DescriptorProto | EnumDescriptorProto | FieldDescriptorProto | ServiceDescriptorProto | str
"""What a full name refers to. Packages and names that are only reserved are strings."""
Symbols: TypeAlias = dict[str, Symbol]

MAX_DEFINITIONS: Final = 50_000
"""Messages, fields, values and the like of one file; protoc's own largest tests have a tenth of it."""
PACKAGE: Final = "package"
_HOLDERS: Final = (DescriptorProto, EnumDescriptorProto, ServiceDescriptorProto)


def walk_messages(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    """Every message with its name inside the file, outer before inner."""
    waiting = [(message.name, message) for message in reversed(file.message_type)]
    while waiting:
        local, message = waiting.pop()
        yield local, message
        waiting += [(join_names(local, nested.name), nested) for nested in reversed(message.nested_type)]


def walk_enums(file: FileDescriptorProto) -> Iterator[tuple[str, EnumDescriptorProto]]:
    """Every enum with its name inside the file."""
    yield from ((enum.name, enum) for enum in file.enum_type)
    for local, message in walk_messages(file):
        yield from ((join_names(local, enum.name), enum) for enum in message.enum_type)


def walk_extensions(file: FileDescriptorProto) -> Iterator[tuple[str, FieldDescriptorProto]]:
    """Every extension field with the scope inside the file that it is defined in."""
    yield from (("", extension) for extension in file.extension)
    for local, message in walk_messages(file):
        yield from ((local, extension) for extension in message.extension)


def symbols_of(source: Source) -> Symbols:
    """The definitions of a file; rejects duplicate and invalid names."""
    table = _Table(source)
    file = source.file
    for extension in file.extension:
        table.add("", extension.name, extension)
    for enum in file.enum_type:
        table.add_enum("", enum)
    for service in file.service:
        table.add("", service.name, service)
        for method in service.method:
            table.add(service.name, method.name, "method")
    for local, message in walk_messages(file):
        table.add_message(local, message)
    return table.symbols


def packages_of(file: FileDescriptorProto) -> Iterator[str]:
    """The file's package and those around it."""
    package = file.package
    while package:
        yield package
        package = package.rpartition(".")[0]


class _Table:
    def __init__(self, source: Source) -> None:
        self.source, self.package = source, source.file.package
        self.symbols: Symbols = {}
        if len(self.package) > MAX_FULL_NAME:
            source.fail(f"the package's name is too long; limit={MAX_FULL_NAME}", "")
        if self.package and not all(IDENTIFIER.fullmatch(part) for part in self.package.split(".")):
            source.fail(f"{self.package[:80]!r} is no package", "")

    def add(self, scope: str, name: str, symbol: Symbol) -> None:
        if not IDENTIFIER.fullmatch(name):
            self.source.fail(f"{name[:80]!r} is no name", join_names(scope, name))
        full = join_names(self.package, join_names(scope, name))
        if len(full) > MAX_FULL_NAME:
            self.source.fail(f"the full name is too long; limit={MAX_FULL_NAME}", join_names(scope, name))
        if len(self.symbols) >= MAX_DEFINITIONS:
            self.source.fail(f"too many definitions; limit={MAX_DEFINITIONS}", join_names(scope, name))
        if full in self.symbols:
            self.source.fail(f"{full!r} is defined twice", join_names(scope, name))
        self.symbols[full] = symbol

    def add_enum(self, scope: str, enum: EnumDescriptorProto) -> None:
        self.add(scope, enum.name, enum)
        for value in enum.value:
            self.add(scope, value.name, "value")

    def add_message(self, local: str, message: DescriptorProto) -> None:
        scope, _, name = local.rpartition(".")
        if local.count(".") >= MAX_MESSAGE_DEPTH:
            self.source.fail(f"messages are nested too deeply; limit={MAX_MESSAGE_DEPTH}", local)
        self.add(scope, name, message)
        for field in message.field:
            self.add(local, field.name, "field")
        for oneof in message.oneof_decl:
            self.add(local, oneof.name, "oneof")
        for extension in message.extension:
            self.add(local, extension.name, extension)
        for enum in message.enum_type:
            self.add_enum(local, enum)


def find_symbol(symbols: Mapping[str, Symbol], name: str, scope: str, types: tuple[type, ...]) -> str | None:
    """The full name of what `name` means inside of `scope`, from the innermost scope outwards.

    Only the first part is looked for outwards: `a.b` is b in the nearest a that can hold something, or nothing.
    """
    if name.startswith("."):
        return name[1:] if isinstance(symbols.get(name[1:]), types) else None
    first, _, rest = name.partition(".")
    while True:
        symbol = symbols.get(join_names(scope, first))
        if not rest and isinstance(symbol, types):
            return join_names(scope, first)
        if rest and (symbol == PACKAGE or isinstance(symbol, _HOLDERS)):
            full = join_names(scope, name)
            return full if isinstance(symbols.get(full), types) else None
        if not scope:
            return None
        scope = scope.rpartition(".")[0]


_TYPES = (DescriptorProto, EnumDescriptorProto)
_MESSAGE_TYPES = (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linker:
    """One file and all symbols that it can see."""

    source: Source
    symbols: Symbols
    # Looked up many times per message or enum, by full name.
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
                local = join_names(service.name, method.name)
                method.input_type = self._message(method.input_type, service.name, local)
                method.output_type = self._message(method.output_type, service.name, local)

    def _link_field(self, field: FieldDescriptorProto, scope: str) -> None:
        local = join_names(scope, field.name)
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
        """A group defines its message in place and is named after it."""
        around, _, name = full.rpartition(".")
        if around != join_names(self.source.file.package, scope) or name.lower() != field.name:
            self.source.fail(
                "a group is declared next to its message, and has its name in lower case", join_names(scope, field.name)
            )

    def _check_map(self, field: FieldDescriptorProto, entry: str, scope: str) -> None:
        """A map's entry message is named after its one field, which is declared next to it."""
        beside = join_names(self.source.file.package, join_names(scope, map_entry_name(field.name)))
        repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
        plain = field.type == FieldDescriptorProto.TYPE_MESSAGE and not field.HasField("extendee")
        if entry != beside or not repeated or not plain:
            self.source.fail("a map's entry belongs to its map alone", join_names(scope, field.name))

    def _link_extendee(self, extension: FieldDescriptorProto, scope: str) -> None:
        local = join_names(scope, extension.name)
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

    def _find(self, name: str, scope: str, types: tuple[type, ...]) -> str | None:
        return find_symbol(self.symbols, name, join_names(self.source.file.package, scope), types)
