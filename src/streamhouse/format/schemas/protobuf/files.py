"""Files: a schema and all that it imports become one pool that native code can work with.

Data path   text or serialised descriptor, and references -> **files** -> linked descriptors and a pool
Owns        the two forms that clients send; the order of imports, and cycles among them; what a file can see
Leaves      the grammar to `statements`; meaning to `linking`, `checking` and `interpreting`
Invariant   the pool, which is native and trusts its input, only gets what was checked
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from streamhouse.errors import InvalidSchema
from streamhouse.format.schemas.base import References
from streamhouse.format.schemas.protobuf.builtin import builtin_text, library_file
from streamhouse.format.schemas.protobuf.checking import check_file
from streamhouse.format.schemas.protobuf.interpreting import interpret_custom, interpret_plain
from streamhouse.format.schemas.protobuf.linking import Linker
from streamhouse.format.schemas.protobuf.source import MAX_REASON, Source
from streamhouse.format.schemas.protobuf.statements import MAX_IMPORTS, read_text
from streamhouse.format.schemas.protobuf.symbols import PACKAGE, Symbols, packages_of, symbols_of

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
    """Whether all strings are UTF-8. The library gives those that aren't as bytes, where nobody expects them."""
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
