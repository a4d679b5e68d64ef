"""Protobuf schema: a .proto file that was understood, as the registry knows schemas.

Data path   registry, HTTP and client -> **ProtobufSchema** -> payload: message indexes, then the message
Owns        what the registry calls: canonical and normalised text, the serialised form, records, compatibility
Leaves      reading to `files`, printing to `printing`, comparing to `differences`, messages to `records`
"""

import base64
from functools import cached_property

from google.protobuf.descriptor import Descriptor, FileDescriptor

from streamhouse.errors import InvalidRecordValue, InvalidSchema
from streamhouse.format.schemas.base import (
    MAX_INCOMPATIBILITIES,
    Incompatibility,
    ParsedSchema,
    References,
    SchemaType,
    different_languages,
)
from streamhouse.format.schemas.protobuf.differences import incompatible_changes
from streamhouse.format.schemas.protobuf.files import LinkedFiles, link_files
from streamhouse.format.schemas.protobuf.json_form import Forms
from streamhouse.format.schemas.protobuf.option_printing import OptionPrinter
from streamhouse.format.schemas.protobuf.printing import Printer
from streamhouse.format.schemas.protobuf.records import MessageCodec, message_at, read_indexes


def parse(text: str, references: References) -> "ProtobufSchema":
    """Understand a .proto text, or a serialised file descriptor in base64; raises `InvalidSchema`."""
    schema = ProtobufSchema(text, link_files(text, references))
    if not schema.files.was_text:
        _check_text(schema, references)
    return schema


def _check_text(schema: "ProtobufSchema", references: References) -> None:
    """What is kept of a descriptor is its text: one that no text can say is refused while its owner is there."""
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
        """The file descriptor in base64: what `format=serialized` asks for."""
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
        """The file whose messages records are: a file that only passes on another one stands for it."""
        own, main = self._descriptor, self.files.main
        only_passes_on = len(main.dependency) == 1 and len(main.public_dependency) == 1
        if not own.message_types_by_name and not own.enum_types_by_name and only_passes_on:
            return own.dependencies[0]
        return own
