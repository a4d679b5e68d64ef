"""Records: JSON-like values and Protobuf payloads, each in front with the indexes of its message.

Data path   registry's readers and writers -> **records** -> bytes after the magic byte and the id
Owns        which message of a file a payload is; the path and the reason when a value doesn't fit
Leaves      the bytes of messages to the native library, their JSON form to its `json_format`
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from streamhouse.errors import InvalidRecordValue
from streamhouse.format.varint import BadVarint, append_varint, read_varint

MAX_INDEXES: Final = 33
"""Messages nest no deeper than this, so that no list of indexes is longer."""
MAX_VALUE_DEPTH: Final = 100
"""Messages inside of messages in one record: what the native library allows as well."""

_PLACE: Final = re.compile(r"(?: at |Failed to parse )(?P<path>[\w.\[\]]+)")


class MessageCodec:
    """One message of a schema: its class, and what stands in front of its payloads."""

    __slots__ = ("_class", "_name", "_pool", "prefix")

    def __init__(self, message: Descriptor, pool: DescriptorPool) -> None:
        self._class: Any = GetMessageClass(message)
        self._name, self._pool = message.name, pool
        self.prefix = write_indexes(indexes_of(message))

    def encode(self, value: object) -> bytes:
        """The message's bytes behind its indexes."""
        if not isinstance(value, dict) and not _is_plain_in_json(self._class.DESCRIPTOR):
            raise InvalidRecordValue(f"expected an object, got {type(value).__name__}")
        message = self._class()
        try:
            json_format.ParseDict(
                cast(dict[str, Any], value), message, descriptor_pool=self._pool, max_recursion_depth=MAX_VALUE_DEPTH
            )
            return self.prefix + bytes(message.SerializeToString())
        except json_format.ParseError as error:
            raise self._misfit(str(error)) from None
        except (EncodeError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InvalidRecordValue(str(error)) from None

    def decode(self, body: bytes | memoryview) -> object:
        """The value of a message's bytes, with all fields that have a default."""
        message = self._class()
        try:
            message.ParseFromString(bytes(body))
            self._check_required(message)
            return json_format.MessageToDict(
                message, always_print_fields_with_no_presence=True, descriptor_pool=self._pool
            )
        except DecodeError:
            raise InvalidRecordValue(f"the bytes are no {self._name}") from None
        except (json_format.SerializeToJsonError, ValueError, TypeError, RecursionError) as error:
            raise InvalidRecordValue(str(error)) from None

    def _check_required(self, message: Message) -> None:
        if not message.IsInitialized():
            raise InvalidRecordValue("a required field is missing")

    def _misfit(self, text: str) -> InvalidRecordValue:
        """The library's complaint, in two parts: where, and why."""
        found = _PLACE.search(text)
        path = found["path"].rstrip(".") if found else ""
        return InvalidRecordValue(text, path="/" + path.removeprefix(f"{self._name}.").replace(".", "/"))


def _is_plain_in_json(message: Descriptor) -> bool:
    """Whether JSON has the message as something else than an object: times, wrappers, lists."""
    return message.full_name.startswith("google.protobuf.")


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
    try:
        count, at = read_varint(payload, 0, len(payload))
        if not 0 <= count <= MAX_INDEXES:
            raise InvalidRecordValue(f"{count} message indexes; limit={MAX_INDEXES}")
        if count == 0:
            return (0,), at
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
