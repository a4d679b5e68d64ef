"""Protobuf schema: what the registry, HTTP and the client use. A payload is message indexes, then the message."""

import base64
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from streamhouse.errors import InvalidRecordValue, InvalidSchema
from streamhouse.format.record_scanner import BadVarint, append_varint, read_varint
from streamhouse.schemas.base import (
    MAX_INCOMPATIBILITIES,
    Incompatibility,
    ParsedSchema,
    References,
    SchemaType,
    different_languages,
)
from streamhouse.schemas.protobuf.compatibility import incompatible_changes
from streamhouse.schemas.protobuf.descriptors import message_class
from streamhouse.schemas.protobuf.imports import LinkedFiles, link_files
from streamhouse.schemas.protobuf.printer import OptionPrinter, Printer
from streamhouse.schemas.protobuf.proto_json import FieldError, Forms

MAX_INDEXES: Final = 33
"""Messages nest no deeper than this, so that no list of indexes is longer."""

_FIRST: Final = (0,)


class MessageCodec:
    """One message of a schema: its class, its JSON mapping, and the prefix of its payloads."""

    __slots__ = ("_class", "_form", "_name", "prefix")

    def __init__(self, message: Descriptor, forms: Forms) -> None:
        self._class: Any = message_class(message)
        self._form = forms.of(message)
        self._name = message.full_name
        self.prefix = write_indexes(indexes_of(message))

    def encode(self, value: object) -> bytes:
        """The message's bytes behind its indexes."""
        message = self._class()
        try:
            self._form.fill(message, value, 0)
        except FieldError as error:
            raise error.as_error() from None
        _check_required(message)
        return self.prefix + bytes(message.SerializeToString())

    def decode(self, body: bytes | memoryview) -> object:
        """The value of a message's bytes, with all fields that have a default."""
        message = self._class()
        try:
            message.ParseFromString(bytes(body))
        except DecodeError:
            raise InvalidRecordValue(f"the bytes are no {self._name}") from None
        _check_required(message)
        try:
            return self._form.read(message)
        except FieldError as error:
            raise error.as_error() from None
        except ValueError as error:
            raise InvalidRecordValue(str(error)) from None


def _check_required(message: Any) -> None:
    if not message.IsInitialized():
        # The library lists the paths: a.b[0].c
        missing = str(message.FindInitializationErrors()[0])
        path = "/" + missing.replace("[", "/").replace("]", "").replace(".", "/")
        raise InvalidRecordValue("the field is required", path=path)


def indexes_of(message: Descriptor) -> list[int]:
    """The path of a message in its file: its index among its siblings, and those of the enclosing messages."""
    indexes: list[int] = []
    current: Descriptor | None = message
    while current is not None:
        around = current.containing_type
        siblings = list(current.file.message_types_by_name.values()) if around is None else list(around.nested_types)
        indexes.append(siblings.index(current))
        current = around
    return indexes[::-1]


def write_indexes(indexes: Sequence[int]) -> bytes:
    """How many, then each; the first message of a file, which is what most are, is a single zero."""
    if list(indexes) == [0]:
        return b"\0"
    out = bytearray()
    append_varint(out, len(indexes))
    for index in indexes:
        append_varint(out, index)
    return bytes(out)


def read_indexes(payload: bytes | memoryview) -> tuple[tuple[int, ...], int]:
    """The indexes at the beginning of a payload, and where the message begins."""
    if payload and payload[0] == 0:
        return _FIRST, 1
    try:
        count, at = read_varint(payload, 0, len(payload))
        if not 0 <= count <= MAX_INDEXES:
            raise InvalidRecordValue(f"{count} message indexes; limit={MAX_INDEXES}")
        if count == 0:
            return _FIRST, at
        indexes = []
        for _ in range(count):
            index, at = read_varint(payload, at, len(payload))
            indexes.append(index)
    except BadVarint:
        raise InvalidRecordValue("the bytes end inside the message indexes") from None
    return tuple(indexes), at


def message_at(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor:
    """The message that indexes lead to."""
    message: Descriptor | None = None
    for index in indexes:
        message = _among(_siblings(file, message), index)
        if message is None:
            raise InvalidRecordValue(f"the schema has no message at indexes {list(indexes)}")
    assert message is not None
    return message


def _siblings(file: FileDescriptor, around: Descriptor | None) -> Iterator[Descriptor]:
    return iter(file.message_types_by_name.values() if around is None else around.nested_types)


def _among(siblings: Iterator[Descriptor], index: int) -> Descriptor | None:
    """The message at an index. Some clients don't count the entries of maps, which are never written as records."""
    messages = list(siblings)
    if not 0 <= index < len(messages):
        return None
    if not messages[index].GetOptions().map_entry:
        return messages[index]
    plain = [message for message in messages if not message.GetOptions().map_entry]
    return plain[index] if index < len(plain) else None


def parse(text: str, references: References) -> "ProtobufSchema":
    """Understand a .proto text, or a serialised file descriptor in base64; raises `InvalidSchema`."""
    schema = ProtobufSchema(text, link_files(text, references))
    if not schema.files.was_text:
        _check_text(schema, references)
    return schema


def _check_text(schema: "ProtobufSchema", references: References) -> None:
    """Only the text of a descriptor is stored, so one that can't be expressed as text is rejected at registration."""
    try:
        again = link_files(schema.text, references)
    except InvalidSchema as error:
        raise InvalidSchema(f"the descriptor can't be written as text: {error.reason}") from None
    if Printer(file=again.main, options=OptionPrinter(again.pool)).text() != schema.text:
        raise InvalidSchema("the descriptor can't be written as text")


class ProtobufSchema(ParsedSchema):
    """A .proto file with everything it imports. Its messages' classes are made once, when first needed."""

    type: SchemaType = "PROTOBUF"

    def __init__(self, text: str, files: LinkedFiles) -> None:
        self.files = files
        self._forms = Forms(files.pool)
        self._by_indexes: dict[tuple[int, ...], MessageCodec] = {}
        self._by_name: dict[str, MessageCodec] = {}
        # Who registers a descriptor reads it back as text, as with Confluent's registry.
        self.text = text if files.was_text else self.canonical()

    @cached_property
    def _canonical(self) -> str:
        return Printer(file=self.files.main, options=OptionPrinter(self.files.pool)).text()

    @cached_property
    def _descriptor(self) -> FileDescriptor:
        return self.files.pool.FindFileByName(self.files.main.name)

    def canonical(self) -> str:
        """The file as text with full names: equal for a text and its descriptor, whatever the spaces and comments."""
        return self._canonical

    def normalized(self) -> str:
        """The same with imports, fields and values in order of their numbers; messages keep theirs."""
        printer = Printer(file=self.files.main, options=OptionPrinter(self.files.pool), is_normalized=True)
        return printer.text()

    def serialized(self) -> str:
        """The file descriptor in base64: as `format=serialized` returns it."""
        return base64.b64encode(self.files.main.SerializeToString(deterministic=True)).decode()

    def incompatibilities(self, older: ParsedSchema) -> list[Incompatibility]:
        """Why a reader with this schema can't read what was written with `older`."""
        if not isinstance(older, ProtobufSchema):
            return different_languages(self, older)
        return incompatible_changes(older.files, self.files)[:MAX_INCOMPATIBILITIES]

    def encode(self, value: object, *, message: str | None = None) -> bytes:
        """The payload of a value: of the file's first message, or of the one with this full name."""
        return self._codec(message).encode(value)

    def decode(self, payload: bytes | memoryview) -> object:
        """The value of a payload, whose indexes say which message it is."""
        indexes, start = read_indexes(payload)
        codec = self._by_indexes.get(indexes)
        if codec is None:
            codec = MessageCodec(message_at(self._home, indexes), self._forms)
            self._by_indexes[indexes] = codec
        return codec.decode(payload[start:])

    def message_names(self) -> list[str]:
        """The full names of the file's own messages, those inside of others left out; the first is the default."""
        return [message.full_name for message in self._home.message_types_by_name.values()]

    def _codec(self, name: str | None) -> MessageCodec:
        codec = self._by_name.get(name or "")
        if codec is None:
            codec = MessageCodec(self._message(name), self._forms)
            self._by_name[name or ""] = codec
        return codec

    def _message(self, name: str | None) -> Descriptor:
        if name is None:
            return message_at(self._home, (0,))
        try:
            message = self.files.pool.FindMessageTypeByName(name)
        except KeyError:
            message = None
        if message is None or message.file.name != self._home.name or message.GetOptions().map_entry:
            raise InvalidRecordValue(f"the schema has no message {name[:120]!r}")
        return message

    @cached_property
    def _home(self) -> FileDescriptor:
        """The file whose messages are records; a file that only re-exports another one is replaced by that one."""
        own, main = self._descriptor, self.files.main
        only_passes_on = len(main.dependency) == 1 and len(main.public_dependency) == 1
        if not own.message_types_by_name and not own.enum_types_by_name and only_passes_on:
            return own.dependencies[0]
        return own
