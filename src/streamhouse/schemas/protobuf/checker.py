"""Checker: rejects what protoc rejects in a linked file, before the native descriptor pool sees it.

Numbers and names that collide, oneofs, maps, enums, what each syntax forbids. The linker rejects duplicate names.
"""

from collections.abc import Sequence
from typing import Final, NoReturn

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto

from streamhouse.schemas.protobuf.definition_parser import MAX_ENUM_NUMBER, MAX_FIELD_NUMBER
from streamhouse.schemas.protobuf.descriptors import IDENTIFIER, SCALAR_NAMES, Ranges, Source, join_names, taken_ranges
from streamhouse.schemas.protobuf.linker import walk_enums, walk_extensions, walk_messages

_RESERVED_NUMBERS: Final = range(19_000, 20_000)
_REPEATED: Final = FieldDescriptorProto.LABEL_REPEATED
_REQUIRED: Final = FieldDescriptorProto.LABEL_REQUIRED
_LABELS: Final = (FieldDescriptorProto.LABEL_OPTIONAL, _REPEATED, _REQUIRED)
_UNPACKABLE: Final = frozenset(
    (
        FieldDescriptorProto.TYPE_STRING,
        FieldDescriptorProto.TYPE_BYTES,
        FieldDescriptorProto.TYPE_MESSAGE,
        FieldDescriptorProto.TYPE_GROUP,
    )
)
_NO_MAP_KEYS: Final = frozenset(
    (FieldDescriptorProto.TYPE_DOUBLE, FieldDescriptorProto.TYPE_FLOAT, FieldDescriptorProto.TYPE_BYTES)
)
# Options are the one thing that proto3 may extend.
_OPTION_MESSAGES: Final = frozenset(
    f".google.protobuf.{kind}Options"
    for kind in ("File", "Message", "Field", "Oneof", "ExtensionRange", "Enum", "EnumValue", "Service", "Method",
                 "Stream")
)  # fmt: skip


def check_file(source: Source) -> None:
    """Refuse a file that protoc would refuse, at the first thing that is wrong with it."""
    for local, message in walk_messages(source.file):
        _MessageCheck(source, local, message).check()
    for local, enum in walk_enums(source.file):
        _check_enum(source, local, enum)
    for scope, extension in walk_extensions(source.file):
        local = join_names(scope, extension.name)
        _check_number(source, local, extension.number)
        _check_field(source, local, extension)
        if extension.label == _REQUIRED or extension.HasField("oneof_index"):
            source.fail("an extension is neither required nor in a oneof", local)
        if source.is_proto3 and extension.extendee not in _OPTION_MESSAGES:
            source.fail("proto3 extends nothing but options", local)


class _MessageCheck:
    def __init__(self, source: Source, local: str, message: DescriptorProto) -> None:
        self.source, self.local, self.message = source, local, message

    def check(self) -> None:
        self._check_ranges()
        self._check_fields()
        self._check_oneofs()
        self._check_json_names()
        if self.message.options.map_entry:
            self._check_map_entry()

    def _fail(self, why: str, name: str = "") -> NoReturn:
        self.source.fail(why, join_names(self.local, name) if name else self.local)

    def _check_ranges(self) -> None:
        message = self.message
        if message.extension_range and self.source.is_proto3:
            self._fail("proto3 has no extension ranges")
        # A message set's numbers go further than those of fields; it has nothing but extensions.
        highest = MAX_ENUM_NUMBER if message.options.message_set_wire_format else MAX_FIELD_NUMBER + 1
        if message.options.message_set_wire_format and (message.field or self.source.is_proto3):
            self._fail("a message set has no fields, and is for proto2")
        self._check_disjoint(taken_ranges(message), highest)
        _check_reserved_names(self.source, self.local, message.reserved_name)

    def _check_disjoint(self, ranges: list[tuple[int, int]], highest: int) -> None:
        last_end = 1
        for start, end in sorted(ranges):
            if start < 1 or end <= start or end > highest:
                self._fail(f"{start} to {end - 1} is no range of field numbers")
            if start < last_end:
                self._fail(f"{start} to {end - 1} overlaps another range")
            last_end = end

    def _check_fields(self) -> None:
        message = self.message
        taken: dict[int, str] = {}
        reserved = set(message.reserved_name)
        ranges = Ranges(taken_ranges(message))
        for field in message.field:
            local = join_names(self.local, field.name)
            _check_number(self.source, local, field.number)
            if field.number in taken:
                self._fail(f"number {field.number} belongs to {taken[field.number]!r} already", field.name)
            taken[field.number] = field.name
            if field.name in reserved:
                self._fail(f"the name {field.name!r} is reserved", field.name)
            if field.number in ranges:
                self._fail(f"number {field.number} is reserved, or set aside for extensions", field.name)
            if field.HasField("extendee"):
                self._fail("a field of a message extends nothing", field.name)
            _check_field(self.source, local, field)

    def _check_oneofs(self) -> None:
        members = [0] * len(self.message.oneof_decl)
        last: int | None = None
        for field in self.message.field:
            index = field.oneof_index if field.HasField("oneof_index") else None
            if index is None and field.proto3_optional:
                self._fail("an optional field of proto3 needs its oneof", field.name)
            if index is not None:
                if not 0 <= index < len(members):
                    self._fail(f"there is no oneof {index}", field.name)
                if members[index] and (last != index or field.proto3_optional):
                    self._fail("the fields of a oneof stand side by side", field.name)
                if field.label != FieldDescriptorProto.LABEL_OPTIONAL:
                    self._fail("fields in a oneof have no label", field.name)
                members[index] += 1
            last = index
        for oneof, count in zip(self.message.oneof_decl, members, strict=True):
            if not count:
                self._fail("a oneof has at least one field", oneof.name)

    def _check_json_names(self) -> None:
        taken: dict[str, str] = {}
        for field in self.message.field:
            if "\0" in field.json_name:
                self._fail("a name in JSON has no zero byte", field.name)
            # proto2 was there before JSON was: only names that are equal in JSON by order are refused.
            if field.json_name in taken and (self.source.is_proto3 or self.source.has_editions):
                self._fail(f"in JSON the field has the same name as {taken[field.json_name]!r}", field.name)
            taken[field.json_name] = field.name

    def _check_map_entry(self) -> None:
        fields = self.message.field
        others = (
            self.message.nested_type, self.message.enum_type, self.message.extension, self.message.oneof_decl,
            self.message.extension_range,
        )  # fmt: skip
        shape = [(field.name, field.number, field.label) for field in fields]
        optional = FieldDescriptorProto.LABEL_OPTIONAL
        if any(others) or shape != [("key", 1, optional), ("value", 2, optional)] or "." not in self.local:
            self._fail("a map's entry is a message inside another, with one key and one value")
        key = fields[0]
        if key.type not in SCALAR_NAMES or key.type in _NO_MAP_KEYS:
            self._fail("the key of a map is an integer, a bool or a string")


def _check_reserved_names(source: Source, local: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        source.fail("a name is reserved twice", local)
    if source.has_editions and not all(IDENTIFIER.fullmatch(name) for name in names):
        source.fail("what is reserved is no name", local)


def _check_number(source: Source, local: str, number: int) -> None:
    if not 1 <= number <= MAX_FIELD_NUMBER:
        source.fail(f"a field's number must be from 1 to {MAX_FIELD_NUMBER}", local)
    if number in _RESERVED_NUMBERS:
        source.fail("numbers 19000 to 19999 belong to Protobuf itself", local)


def _check_field(source: Source, local: str, field: FieldDescriptorProto) -> None:
    if field.label not in _LABELS:
        source.fail("the field has no label", local)
    if source.file.syntax and field.label == _REQUIRED:
        source.fail("required fields are for proto2", local)
    if source.file.syntax and field.type == FieldDescriptorProto.TYPE_GROUP:
        source.fail("groups are for proto2", local)
    if field.proto3_optional and not source.is_proto3:
        source.fail("proto3_optional is for proto3", local)
    if field.HasField("default_value"):
        _check_default(source, local, field)
    if field.options.packed and (field.label != _REPEATED or field.type in _UNPACKABLE):
        source.fail("only repeated numbers can be packed", local)


def _check_default(source: Source, local: str, field: FieldDescriptorProto) -> None:
    if source.is_proto3:
        source.fail("proto3 has no defaults of one's own", local)
    if field.label == _REPEATED or field.type in (FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.TYPE_GROUP):
        source.fail("repeated fields and messages have no default", local)


def _check_enum(source: Source, local: str, enum: EnumDescriptorProto) -> None:
    if not enum.value:
        source.fail("an enum has at least one value", local)
    scope = local.rpartition(".")[0]
    if source.is_proto3 and enum.value[0].number != 0:
        source.fail("the first value of an enum in proto3 is zero", join_names(scope, enum.value[0].name))
    _check_reserved_names(source, local, enum.reserved_name)
    ranges = [(each.start, each.end + 1) for each in enum.reserved_range]
    for start, end in ranges:
        if end <= start:
            source.fail(f"{start} to {end - 1} is no range", local)
    spans, reserved = Ranges(ranges), set(enum.reserved_name)
    taken: dict[int, str] = {}
    for value in enum.value:
        path = join_names(scope, value.name)
        if value.number in taken and not enum.options.allow_alias:
            source.fail(f"number {value.number} belongs to {taken[value.number]!r} already", path)
        taken[value.number] = value.name
        if value.number in spans or value.name in reserved:
            source.fail(f"{value.name!r} or its number {value.number} is reserved", path)
