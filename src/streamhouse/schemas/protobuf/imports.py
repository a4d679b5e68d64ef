"""Imports: a schema and all files that it imports, linked and checked, in one descriptor pool.

Decides the order of imports, finds cycles, and provides Google's common types. Invariant: the pool is native code that
trusts its input, so it only gets files that were checked.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from streamhouse.errors import InvalidSchema
from streamhouse.schemas.base import References
from streamhouse.schemas.protobuf.checker import check_file
from streamhouse.schemas.protobuf.descriptors import MAX_REASON, Source
from streamhouse.schemas.protobuf.file_parser import MAX_IMPORTS, read_text
from streamhouse.schemas.protobuf.linker import PACKAGE, Linker, Symbols, packages_of, symbols_of
from streamhouse.schemas.protobuf.option_values import interpret_custom, interpret_plain

_GOOGLE: Final = {
    "calendar_period": """enum CalendarPeriod {
        CALENDAR_PERIOD_UNSPECIFIED = 0; DAY = 1; WEEK = 2; FORTNIGHT = 3; MONTH = 4; QUARTER = 5; HALF = 6; YEAR = 7;
    }""",
    "color": """import "google/protobuf/wrappers.proto";
        message Color { float red = 1; float green = 2; float blue = 3; google.protobuf.FloatValue alpha = 4; }""",
    "date": "message Date { int32 year = 1; int32 month = 2; int32 day = 3; }",
    "datetime": """import "google/protobuf/duration.proto";
        message DateTime {
            int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes = 5; int32 seconds = 6;
            int32 nanos = 7;
            oneof time_offset { google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9; }
        }
        message TimeZone { string id = 1; string version = 2; }""",
    "dayofweek": """enum DayOfWeek {
        DAY_OF_WEEK_UNSPECIFIED = 0; MONDAY = 1; TUESDAY = 2; WEDNESDAY = 3; THURSDAY = 4; FRIDAY = 5; SATURDAY = 6;
        SUNDAY = 7;
    }""",
    "decimal": "message Decimal { string value = 1; }",
    "expr": "message Expr { string expression = 1; string title = 2; string description = 3; string location = 4; }",
    "fraction": "message Fraction { int64 numerator = 1; int64 denominator = 2; }",
    "interval": """import "google/protobuf/timestamp.proto";
        message Interval { google.protobuf.Timestamp start_time = 1; google.protobuf.Timestamp end_time = 2; }""",
    "latlng": "message LatLng { double latitude = 1; double longitude = 2; }",
    "localized_text": "message LocalizedText { string text = 1; string language_code = 2; }",
    "money": "message Money { string currency_code = 1; int64 units = 2; int32 nanos = 3; }",
    "month": """enum Month {
        MONTH_UNSPECIFIED = 0; JANUARY = 1; FEBRUARY = 2; MARCH = 3; APRIL = 4; MAY = 5; JUNE = 6; JULY = 7; AUGUST = 8;
        SEPTEMBER = 9; OCTOBER = 10; NOVEMBER = 11; DECEMBER = 12;
    }""",
    "phone_number": """message PhoneNumber {
        message ShortCode { string region_code = 1; string number = 2; }
        oneof kind { string e164_number = 1; ShortCode short_code = 2; }
        string extension = 3;
    }""",
    "postal_address": """message PostalAddress {
        int32 revision = 1; string region_code = 2; string language_code = 3; string postal_code = 4;
        string sorting_code = 5; string administrative_area = 6; string locality = 7; string sublocality = 8;
        repeated string address_lines = 9; repeated string recipients = 10; string organization = 11;
    }""",
    "quaternion": "message Quaternion { double x = 1; double y = 2; double z = 3; double w = 4; }",
    "timeofday": "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
}

_CONFLUENT: Final = {
    "confluent/meta.proto": """package confluent;
        import "google/protobuf/descriptor.proto";
        message Meta {
            string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4;
        }
        message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }""",
    "confluent/type/decimal.proto": """package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
    "confluent/type/variant.proto": "package confluent.type; message Variant { bytes metadata = 1; bytes value = 2; }",
    # Where the decimal was before; older generated code still imports it.
    "confluent/types/decimal.proto": 'import public "confluent/type/decimal.proto";',
}

COMMON_TYPES: Final = {
    **{
        f"google/type/{name}.proto": f'syntax = "proto3"; package google.type; {text}' for name, text in _GOOGLE.items()
    },
    **{name: f'syntax = "proto3"; {text}' for name, text in _CONFLUENT.items()},
}


_LIBRARY: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2,
        timestamp_pb2, type_pb2, wrappers_pb2,
    )
}  # fmt: skip


@cache
def library_file(name: str) -> FileDescriptorProto | None:
    """A well-known file as the library has it; these stay as they are, whatever a reference says."""
    if name not in _LIBRARY:
        return None
    file = FileDescriptorProto()
    file.ParseFromString(_LIBRARY[name].serialized_pb)
    return file


def builtin_text(name: str) -> str | None:
    """A placeholder for an import without a reference."""
    return COMMON_TYPES.get(name)


MAX_FILES: Final = MAX_IMPORTS
"""Files that one schema may pull in; each costs time for all that it makes visible."""
MAIN_NAME: Final = "default.proto"

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]++={0,2}+\s*+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedFiles:
    """A schema that was understood: its own file, all files it needs (imports first), and the pool of them."""

    main: FileDescriptorProto
    by_name: Mapping[str, FileDescriptorProto]
    pool: DescriptorPool
    was_text: bool


def link_files(text: str, references: References) -> LinkedFiles:
    """Understand a schema with everything it imports; raises `InvalidSchema`."""
    name = MAIN_NAME
    while name in references or library_file(name) is not None:
        name = f"_{name}"
    main = _read(text, name=name, where="")
    pool = DescriptorPool()
    exported: dict[str, Symbols] = {}
    ordered = _imports_first(main, references)
    for source in ordered:
        exported[source.file.name] = _add(source, exported, pool)
    by_name = {source.file.name: source.file for source in ordered}
    return LinkedFiles(main=main.file, by_name=by_name, pool=pool, was_text=main.cursor is not None)


def _read(text: str, *, name: str, where: str) -> Source:
    """Either form: a .proto text, or a descriptor in base64, which no .proto text can be mistaken for."""
    if _BASE64.fullmatch(text):
        return _read_serialized(text, name=name, where=where)
    if not text.strip():
        raise InvalidSchema("the text is empty", path=where)
    return read_text(text, name=name, where=where)


def _read_serialized(text: str, *, name: str, where: str) -> Source:
    file = FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode("".join(text.split()), validate=True))
    except (binascii.Error, DecodeError, ValueError):
        raise InvalidSchema("neither a .proto text nor a file descriptor in base64", path=where) from None
    if not file.IsInitialized() or not _is_all_text(file):
        raise InvalidSchema("the file descriptor has names that are not UTF-8, or options without one", path=where)
    file.name = name
    file.ClearField("source_code_info")
    if file.syntax == "proto2":
        file.ClearField("syntax")
    if file.syntax not in ("", "proto3", "editions"):
        raise InvalidSchema(f"unknown syntax {file.syntax[:40]!r}", path=where)
    if len(set(file.dependency)) != len(file.dependency):
        raise InvalidSchema("a file is imported twice", path=where)
    for index in (*file.public_dependency, *file.weak_dependency):
        if not 0 <= index < len(file.dependency):
            raise InvalidSchema(f"there is no import {index}", path=where)
    return Source(file=file, name=where)


def _is_all_text(file: FileDescriptorProto) -> bool:
    """Whether all strings are UTF-8. The library returns others as bytes, which callers do not expect."""
    waiting: list[Any] = [file]
    while waiting:
        for field, value in waiting.pop().ListFields():
            values = value if field.is_repeated else (value,)
            if field.message_type is not None:
                waiting.extend(values)
            elif field.type == FieldDescriptor.TYPE_STRING and any(isinstance(each, bytes) for each in values):
                return False
    return True


def _imports_first(main: Source, references: References) -> list[Source]:
    """All files that are needed, each behind what it imports."""
    read: dict[str, Source] = {main.file.name: main}
    done: list[Source] = []
    finished: set[str] = set()
    # Names that wait; one that comes up again with its imports behind it is finished.
    waiting = [(main.file.name, False)]
    open_files: set[str] = set()
    while waiting:
        name, is_closing = waiting.pop()
        if is_closing:
            open_files.discard(name)
            finished.add(name)
            done.append(read[name])
        elif name in open_files:
            raise InvalidSchema(f"{name[:120]!r} imports itself, perhaps through others")
        elif name not in finished:
            open_files.add(name)
            waiting.append((name, True))
            for path in read[name].file.dependency:
                if path not in read:
                    read[path] = _read_import(path, read[name], references, count=len(read))
                waiting.append((path, False))
    return done


def _read_import(path: str, importer: Source, references: References, *, count: int) -> Source:
    if count >= MAX_FILES:
        raise InvalidSchema(f"too many imports; limit={MAX_FILES}")
    library = library_file(path)
    if library is not None:
        return Source(file=library, name=f"{path}: ")
    text = references.get(path, builtin_text(path))
    if text is None:
        raise InvalidSchema(f"import {path[:120]!r} is neither a reference nor known", path=importer.name)
    return _read(text, name=path, where=f"{path}: ")


def _add(source: Source, exported: Mapping[str, Symbols], pool: DescriptorPool) -> Symbols:
    """Link, check and pool one file whose imports are there already; what others see by importing it."""
    file = source.file
    if library_file(file.name) is file:
        pool.AddSerializedFile(file.SerializeToString())
        return _library_symbols(file.name)
    own = symbols_of(source)
    own_and_packages = {**dict.fromkeys(packages_of(file), PACKAGE), **own}
    visible = _merged(own_and_packages, (exported[path] for path in file.dependency))
    custom = interpret_plain(source)
    Linker(source=source, symbols=visible).link()
    check_file(source)
    _pool(source, pool)
    interpret_custom(source, custom, visible, pool)
    return _merged(own_and_packages, (exported[file.dependency[index]] for index in file.public_dependency))


@cache
def _library_symbols(name: str) -> Symbols:
    file = library_file(name)
    assert file is not None
    return {**dict.fromkeys(packages_of(file), PACKAGE), **symbols_of(Source(file=file))}


def _merged(own: Symbols, others: Iterable[Symbols]) -> Symbols:
    everything: Symbols = {}
    for other in others:
        everything.update(other)
    everything.update(own)
    return everything


def _pool(source: Source, pool: DescriptorPool) -> None:
    try:
        pool.AddSerializedFile(source.file.SerializeToString())
    except TypeError as error:
        raise InvalidSchema(str(error)[:MAX_REASON], path=source.name) from None
