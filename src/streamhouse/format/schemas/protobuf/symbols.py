"""Symbols: everything that a file defines, by full name, and how a name is found from where it was written.

Data path   a file's definitions -> **symbols** -> `linking` and `interpreting` look names up
Owns        Protobuf's scoping rules; two definitions of one name; the walk over a file's messages and enums
Leaves      what to do with what was found to those who look
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from streamhouse.format.schemas.protobuf.definitions import MAX_MESSAGE_DEPTH
from streamhouse.format.schemas.protobuf.names import IDENTIFIER, MAX_FULL_NAME, joined
from streamhouse.format.schemas.protobuf.source import Source

Symbol: TypeAlias = DescriptorProto | EnumDescriptorProto | FieldDescriptorProto | ServiceDescriptorProto | str
"""What a full name stands for. Packages, and what only takes a name away from others, are words."""
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
        waiting += [(joined(local, nested.name), nested) for nested in reversed(message.nested_type)]


def walk_enums(file: FileDescriptorProto) -> Iterator[tuple[str, EnumDescriptorProto]]:
    """Every enum with its name inside the file."""
    yield from ((enum.name, enum) for enum in file.enum_type)
    for local, message in walk_messages(file):
        yield from ((joined(local, enum.name), enum) for enum in message.enum_type)


def walk_extensions(file: FileDescriptorProto) -> Iterator[tuple[str, FieldDescriptorProto]]:
    """Every extension field with the scope inside the file that it is defined in."""
    yield from (("", extension) for extension in file.extension)
    for local, message in walk_messages(file):
        yield from ((local, extension) for extension in message.extension)


def symbols_of(source: Source) -> Symbols:
    """What a file defines; refuses a name that comes twice, and names that are none."""
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
            self.source.fail(f"{name[:80]!r} is no name", joined(scope, name))
        full = joined(self.package, joined(scope, name))
        if len(full) > MAX_FULL_NAME:
            self.source.fail(f"the full name is too long; limit={MAX_FULL_NAME}", joined(scope, name))
        if len(self.symbols) >= MAX_DEFINITIONS:
            self.source.fail(f"too many definitions; limit={MAX_DEFINITIONS}", joined(scope, name))
        if full in self.symbols:
            self.source.fail(f"{full!r} is defined twice", joined(scope, name))
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


def find_symbol(symbols: Mapping[str, Symbol], name: str, scope: str, wanted: tuple[type, ...]) -> str | None:
    """The full name of what `name` means inside of `scope`, from the innermost scope outwards.

    Only the first part is looked for outwards: `a.b` is b in the nearest a that can hold something, or nothing.
    """
    if name.startswith("."):
        return name[1:] if isinstance(symbols.get(name[1:]), wanted) else None
    first, _, rest = name.partition(".")
    while True:
        found = symbols.get(joined(scope, first))
        if not rest and isinstance(found, wanted):
            return joined(scope, first)
        if rest and (found == PACKAGE or isinstance(found, _HOLDERS)):
            full = joined(scope, name)
            return full if isinstance(symbols.get(full), wanted) else None
        if not scope:
            return None
        scope = scope.rpartition(".")[0]
