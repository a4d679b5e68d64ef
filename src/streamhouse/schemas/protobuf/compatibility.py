"""Compatibility of Protobuf files: kinds of changes and their paths, as Confluent's registry names them.

Fields are matched by number. Imported types are compared as deep as the fields reach; each pair of messages once, so
that cycles end.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from streamhouse.schemas.base import Incompatibility
from streamhouse.schemas.protobuf.descriptors import SCALAR_NAMES, join_names
from streamhouse.schemas.protobuf.imports import LinkedFiles
from streamhouse.schemas.protobuf.linker import walk_enums, walk_messages

REASONS: Final = {
    "PACKAGE_CHANGED": "the package is another one",
    "MESSAGE_REMOVED": "the message is gone",
    "FIELD_KIND_CHANGED": "the field was a scalar, a message or a map, and now is another of these",
    "FIELD_SCALAR_KIND_CHANGED": "the field's scalar type is written differently now",
    "FIELD_NAMED_TYPE_CHANGED": "the field's message type is another one, or has changed too much",
    "FIELD_NUMERIC_LABEL_CHANGED": "the numeric field's label changed",
    "REQUIRED_FIELD_ADDED": "a required field is new: older records don't have it",
    "REQUIRED_FIELD_REMOVED": "a required field is gone",
    "ONEOF_FIELD_REMOVED": "a field of a oneof is gone",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "several fields now exclude each other",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "a field now excludes those of a oneof that was there before",
}
"""The changes that readers can't cope with; all others are allowed."""

_SCALAR_KINDS: Final = {
    "int32": "varint", "int64": "varint", "uint32": "varint", "uint64": "varint", "bool": "varint",
    "sint32": "zigzag", "sint64": "zigzag", "string": "bytes", "bytes": "bytes", "fixed32": "fixed32",
    "sfixed32": "fixed32", "fixed64": "fixed64", "sfixed64": "fixed64", "float": "float", "double": "double",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One change; the path is made of names, and of numbers for fields."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Definition:
    """A message or an enum: where it is defined, and its name inside that file."""

    type: DescriptorProto | EnumDescriptorProto
    file: str
    local: str
    is_proto2: bool


def incompatible_changes(older: LinkedFiles, newer: LinkedFiles) -> list[Incompatibility]:
    """The changes from `older` to `newer` that break a reader."""
    return [
        Incompatibility(kind=each.kind, path=each.path, message=REASONS[each.kind])
        for each in differences(older, newer)
        if each.kind in REASONS
    ]


def differences(older: LinkedFiles, newer: LinkedFiles) -> list[Difference]:
    """All changes from `older` to `newer`."""
    comparison = _Comparison(older=_definitions(older), newer=_definitions(newer))
    comparison.compare_files(older.main, newer.main)
    return comparison.verdict()


def _definitions(files: LinkedFiles) -> dict[str, _Definition]:
    """Everything that a field may have as its type, by the full name that fields give."""
    definitions: dict[str, _Definition] = {}
    for file in files.by_name.values():
        home = "" if file is files.main else file.name
        types: Iterable[tuple[str, DescriptorProto | EnumDescriptorProto]] = (*walk_messages(file), *walk_enums(file))
        for local, each in types:
            definitions["." + join_names(file.package, local)] = _Definition(
                type=each, file=home, local=local, is_proto2=not file.syntax
            )
    return definitions


Path: TypeAlias = tuple[str, ...]


class _Syntaxes(NamedTuple):
    """Labels are written in proto2, and mostly left out elsewhere."""

    older_is_proto2: bool
    newer_is_proto2: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suspicion:
    """A field whose type is imported: it has changed too much if its type has."""

    path: str
    pair: "_Pair"


class _Pair(NamedTuple):
    """Two messages, by full name, of which the newer one is to read the older one."""

    older: str
    newer: str


@dataclass(slots=True, kw_only=True)
class _Comparison:
    """Types that fields lead to wait for their turn, so that no chain of them is too long for the stack."""

    older: dict[str, _Definition]
    newer: dict[str, _Definition]
    # Differences of the files themselves (no pair), and of every pair of imported types.
    _differences: dict[_Pair | None, list[Difference | _Suspicion]] = field(default_factory=dict)
    _now: list[Difference | _Suspicion] = field(default_factory=list)
    _waiting: list[_Pair] = field(default_factory=list)

    def add(self, kind: str, path: Path) -> None:
        self._now.append(Difference(kind=kind, path=_written(path)))

    def compare_files(self, older: FileDescriptorProto, newer: FileDescriptorProto) -> None:
        """Everything in the two files, then all that their fields lead to elsewhere."""
        self._now = self._differences[None] = []
        if older.package != newer.package:
            self.add("PACKAGE_CHANGED", ())
        self.compare_types(older, newer, (), _Syntaxes(not older.syntax, not newer.syntax))
        while self._waiting:
            pair = self._waiting.pop()
            before, after = self.older[pair.older], self.newer[pair.newer]
            assert isinstance(before.type, DescriptorProto)
            assert isinstance(after.type, DescriptorProto)
            self._now = self._differences[pair]
            syntaxes = _Syntaxes(before.is_proto2, after.is_proto2)
            self.compare_messages(before.type, after.type, tuple(before.local.split(".")), syntaxes)

    def verdict(self) -> list[Difference]:
        """All differences; a suspicion is one when the type behind it doesn't read the older one."""
        broken = self._broken()
        verdict = []
        for each in (each for differences in self._differences.values() for each in differences):
            if isinstance(each, Difference):
                verdict.append(each)
            elif each.pair in broken:
                verdict.append(Difference(kind="FIELD_NAMED_TYPE_CHANGED", path=each.path))
        return verdict

    def _broken(self) -> set[_Pair]:
        """The pairs that have a change for the worse, or a field that leads to one that has."""
        led_from: dict[_Pair, list[_Pair]] = {}
        broken: set[_Pair] = set()
        for pair, differences in self._differences.items():
            if pair is None:
                continue
            if any(isinstance(each, Difference) and each.kind in REASONS for each in differences):
                broken.add(pair)
            for each in differences:
                if isinstance(each, _Suspicion):
                    led_from.setdefault(each.pair, []).append(pair)
        waiting = list(broken)
        while waiting:
            for pair in led_from.get(waiting.pop(), ()):
                if pair not in broken:
                    broken.add(pair)
                    waiting.append(pair)
        return broken

    def compare_types(
        self,
        older: FileDescriptorProto | DescriptorProto,
        newer: FileDescriptorProto | DescriptorProto,
        path: Path,
        syntaxes: _Syntaxes,
    ) -> None:
        """The messages and enums that stand in a file or a message."""
        messages, new_messages = _plain_messages(older), _plain_messages(newer)
        order, new_order = _order(messages), _order(new_messages)
        for name in _names(messages, new_messages):
            if name not in new_messages:
                self.add("MESSAGE_REMOVED", (*path, name))
            elif name not in messages:
                self.add("MESSAGE_ADDED", (*path, name))
            else:
                self.compare_messages(messages[name], new_messages[name], (*path, name), syntaxes)
                if order[name] != new_order[name]:
                    self.add("MESSAGE_MOVED", (*path, name))
        enums = {each.name: each for each in older.enum_type}
        new_enums = {each.name: each for each in newer.enum_type}
        for name in _names(enums, new_enums):
            if name not in new_enums:
                self.add("ENUM_REMOVED", (*path, name))
            elif name not in enums:
                self.add("ENUM_ADDED", (*path, name))
            else:
                self._compare_enums(enums[name], new_enums[name], (*path, name))

    def _compare_enums(self, older: EnumDescriptorProto, newer: EnumDescriptorProto, path: Path) -> None:
        values = {value.number: value.name for value in older.value}
        new_values = {value.number: value.name for value in newer.value}
        for number in sorted({*values, *new_values}):
            if number not in new_values:
                self.add("ENUM_CONST_REMOVED", (*path, str(number)))
            elif number not in values:
                self.add("ENUM_CONST_ADDED", (*path, str(number)))
            elif values[number] != new_values[number]:
                self.add("ENUM_CONST_CHANGED", (*path, str(number)))

    def compare_messages(self, older: DescriptorProto, newer: DescriptorProto, path: Path, syntaxes: _Syntaxes) -> None:
        """The fields, the oneofs and the types of a message."""
        before, after = _Shape(older), _Shape(newer)
        self._compare_oneofs(before, after, path)
        for number in sorted({*before.fields, *after.fields}):
            if number not in after.fields:
                self._removed(before, after, number, path)
            elif number not in before.fields:
                self._added(after, number, path)
            else:
                if number in before.oneof_of and number not in after.oneof_of:
                    self.add("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", (*path, str(number)))
                path_of = (*path, *after.path_of(number))
                self._compare_fields(before.fields[number], after.fields[number], path_of, syntaxes)
        self.compare_types(older, newer, path, syntaxes)

    def _compare_oneofs(self, before: "_Shape", after: "_Shape", path: Path) -> None:
        for name, numbers in after.oneofs.items():
            known = [number for number in numbers if number in before.fields]
            moved_in = [number for number in known if number not in before.oneof_of]
            groups = {before.oneof_of[number] for number in known if number in before.oneof_of}
            if len(groups) + len(moved_in) > 1:
                several = len(moved_in) > 1
                kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if several else "FIELD_MOVED_TO_EXISTING_ONEOF"
                self.add(kind, (*path, name))
        for name in sorted({*before.oneofs, *after.oneofs}):
            if name not in after.oneofs:
                self.add("ONEOF_REMOVED", (*path, name))
            elif name not in before.oneofs:
                self.add("ONEOF_ADDED", (*path, name))

    def _removed(self, before: "_Shape", after: "_Shape", number: int, path: Path) -> None:
        oneof = before.oneof_of.get(number)
        if oneof is None:
            required = before.fields[number].label == FieldDescriptorProto.LABEL_REQUIRED
            self.add("REQUIRED_FIELD_REMOVED" if required else "FIELD_REMOVED", (*path, str(number)))
        elif oneof in after.oneofs or any(each in after.fields for each in before.oneofs[oneof]):
            # A oneof that is gone with all its fields is as harmless as fields that are gone.
            self.add("ONEOF_FIELD_REMOVED", (*path, *before.path_of(number)))

    def _added(self, after: "_Shape", number: int, path: Path) -> None:
        if number in after.oneof_of:
            self.add("ONEOF_FIELD_ADDED", (*path, *after.path_of(number)))
        else:
            required = after.fields[number].label == FieldDescriptorProto.LABEL_REQUIRED
            self.add("REQUIRED_FIELD_ADDED" if required else "FIELD_ADDED", (*path, str(number)))

    def _compare_fields(
        self, older: FieldDescriptorProto, newer: FieldDescriptorProto, path: Path, syntaxes: _Syntaxes
    ) -> None:
        if older.name != newer.name:
            self.add("FIELD_NAME_CHANGED", path)
        labels = (_label(older, syntaxes.older_is_proto2), _label(newer, syntaxes.newer_is_proto2))
        self._compare_field_types(older, newer, path, None not in labels and labels[0] != labels[1])

    def _compare_field_types(
        self, older: FieldDescriptorProto, newer: FieldDescriptorProto, path: Path, is_relabelled: bool
    ) -> None:
        kind = _kind(older, self.older)
        if kind != _kind(newer, self.newer):
            self.add("FIELD_KIND_CHANGED", path)
        elif kind == "scalar":
            self._compare_scalars(older, newer, path, is_relabelled)
        elif kind == "map":
            for entry, new_entry in zip(self._entry(older, self.older), self._entry(newer, self.newer), strict=True):
                self._compare_field_types(entry, new_entry, path, False)
        else:
            self._compare_named(older.type_name, newer.type_name, path)

    def _entry(self, of: FieldDescriptorProto, definitions: dict[str, _Definition]) -> Sequence[FieldDescriptorProto]:
        entry = definitions[of.type_name].type
        assert isinstance(entry, DescriptorProto)
        return entry.field

    def _compare_scalars(
        self, older: FieldDescriptorProto, newer: FieldDescriptorProto, path: Path, is_relabelled: bool
    ) -> None:
        kind = _scalar_kind(older)
        if kind != _scalar_kind(newer):
            self.add("FIELD_SCALAR_KIND_CHANGED", path)
        elif is_relabelled:
            texts = kind == "bytes"
            self.add("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if texts else "FIELD_NUMERIC_LABEL_CHANGED", path)

    def _compare_named(self, older: str, newer: str, path: Path) -> None:
        before, after = self.older[older], self.newer[newer]
        if before.local != after.local:
            self.add("FIELD_NAMED_TYPE_CHANGED", path)
        elif before.file or after.file:
            # Two types of the files' own are compared where they stand.
            pair = _Pair(older, newer)
            self._now.append(_Suspicion(path=_written(path), pair=pair))
            if pair not in self._differences:
                self._differences[pair] = []
                self._waiting.append(pair)


def _written(path: Path) -> str:
    return "#/" + "/".join(path)


class _Shape:
    """A message's fields by number, and the oneofs that are not synthetic."""

    __slots__ = ("fields", "oneof_of", "oneofs")

    def __init__(self, message: DescriptorProto) -> None:
        self.fields = {each.number: each for each in message.field}
        self.oneof_of: dict[int, str] = {}
        self.oneofs: dict[str, list[int]] = {}
        for each in message.field:
            if each.HasField("oneof_index") and not each.proto3_optional:
                name = message.oneof_decl[each.oneof_index].name
                self.oneof_of[each.number] = name
                self.oneofs.setdefault(name, []).append(each.number)

    def path_of(self, number: int) -> Path:
        oneof = self.oneof_of.get(number)
        return (str(number),) if oneof is None else (oneof, str(number))


def _plain_messages(of: FileDescriptorProto | DescriptorProto) -> dict[str, DescriptorProto]:
    messages = of.message_type if isinstance(of, FileDescriptorProto) else of.nested_type
    return {message.name: message for message in messages if not message.options.map_entry}


def _order(names: Iterable[str]) -> dict[str, int]:
    return {name: at for at, name in enumerate(names)}


def _names(older: Iterable[str], newer: Iterable[str]) -> Iterator[str]:
    """Those of the older version in their order, then what is new."""
    older = dict.fromkeys(older)
    yield from older
    yield from (name for name in newer if name not in older)


def _label(of: FieldDescriptorProto, is_proto2: bool) -> int | None:
    """The label as written: fields of oneofs have none, and those of proto3 need none."""
    is_written = of.proto3_optional or (is_proto2 and not of.HasField("oneof_index"))
    return of.label if is_written or of.label != FieldDescriptorProto.LABEL_OPTIONAL else None


def _kind(of: FieldDescriptorProto, definitions: dict[str, _Definition]) -> str:
    if of.type in SCALAR_NAMES or of.type == FieldDescriptorProto.TYPE_ENUM:
        return "scalar"
    message = definitions[of.type_name].type
    return "map" if isinstance(message, DescriptorProto) and message.options.map_entry else "message"


def _scalar_kind(of: FieldDescriptorProto) -> str:
    return "varint" if of.type == FieldDescriptorProto.TYPE_ENUM else _SCALAR_KINDS[SCALAR_NAMES[of.type]]
