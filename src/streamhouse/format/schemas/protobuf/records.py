"""Records: JSON-like values and Protobuf payloads, each in front with the indexes of its message.

Data path   registry's readers and writers -> **records** -> bytes after the magic byte and the id
Owns        which message of a file a payload is; that required fields are there
Leaves      the bytes of messages to the native library, their JSON form to `json_form`
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from streamhouse.errors import InvalidRecordValue
from streamhouse.format.schemas.protobuf.classes import message_class
from streamhouse.format.schemas.protobuf.json_form import Forms, Misfit
from streamhouse.format.varint import BadVarint, append_varint, read_varint

MAX_INDEXES: Final = 33
"""Messages nest no deeper than this, so that no list of indexes is longer."""

_FIRST: Final = (0,)


class MessageCodec:
    """One message of a schema: its class, its form in JSON, and what stands in front of its payloads."""

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
        except Misfit as misfit:
            raise misfit.as_error() from None
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
        except Misfit as misfit:
            raise misfit.as_error() from None
        except ValueError as error:
            raise InvalidRecordValue(str(error)) from None


def _check_required(message: Any) -> None:
    if not message.IsInitialized():
        # The library lists the paths: a.b[0].c
        missing = str(message.FindInitializationErrors()[0])
        path = "/" + missing.replace("[", "/").replace("]", "").replace(".", "/")
        raise InvalidRecordValue("the field is required", path=path)


def indexes_of(message: Descriptor) -> list[int]:
    """Where a message stands in its file: its place among its siblings, and those of the messages around it."""
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
    """The message at an index. Some clients don't count the entries of maps, which nobody writes as records."""
    messages = list(siblings)
    if not 0 <= index < len(messages):
        return None
    if not messages[index].GetOptions().map_entry:
        return messages[index]
    plain = [message for message in messages if not message.GetOptions().map_entry]
    return plain[index] if index < len(plain) else None
