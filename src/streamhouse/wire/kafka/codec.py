"""Codec: messages to bytes and back.

Data path   framing -> **codec** -> messages -> handlers, and back again
Owns        the compiled functions, one per message class, version and direction; errors of malformed messages
Leaves      frames, sizes and the order of headers to `framing`; generating the functions to `compiler`
Invariant   a message that does not decode raises `MalformedMessage` and nothing else, whatever its bytes

`records` of a request are a view into the buffer that was given, not a copy; `records` of a response go into the
result unchanged. The owner of a buffer must not change it while the message, or the response, is in use.
"""

import struct
from types import TracebackType
from typing import Final, TypeVar

from streamhouse.errors import Internal, Rejected
from streamhouse.wire.kafka.compiler import Compiled, compile_decoder, compile_encoder
from streamhouse.wire.kafka.primitives import TooManyElements
from streamhouse.wire.kafka.schema import Buffer, Message

MAX_ELEMENTS: Final = 1_000_000
"""Maximum array elements of a message: a small struct takes a hundred bytes of memory and only three on the wire."""

MAX_TAGGED_FIELDS: Final = 10_000
"""Maximum tagged fields of a message, known or unknown, as in Kafka."""

MAX_ERROR_TEXT: Final = 200

M = TypeVar("M", bound=Message)


class MalformedMessage(Rejected):
    """The bytes are not a message of this type and version."""


class MessageTooLong(MalformedMessage):
    """The message has more array elements than allowed."""


class UnencodableMessage(Internal):
    """A message can't be encoded in this version: a value is out of range, or a field does not exist in it."""


_decoders: Final[dict[tuple[type[Message], int], Compiled]] = {}
_encoders: Final[dict[tuple[type[Message], int], Compiled]] = {}


def decode(
    cls: type[M],
    version: int,
    buffer: Buffer,
    offset: int = 0,
    *,
    strict: bool = False,
    max_elements: int = MAX_ELEMENTS,
    max_tagged_fields: int = MAX_TAGGED_FIELDS,
) -> tuple[M, int]:
    """Decode a message that starts at `offset`; returns it and the offset after it. With `strict` it must end at the
    end of the buffer.
    """
    compiled = _decoders.get((cls, version)) or _compile_decoder(cls, version)
    view = memoryview(buffer)
    size = len(view)
    try:
        message, end = compiled.run(view, offset, size, max_elements, max_tagged_fields)
    except TooManyElements as error:
        raise MessageTooLong(
            f"{_describe('malformed message', cls, version, compiled, error)} limit={max_elements}"
        ) from None
    except (ValueError, IndexError, struct.error) as error:
        raise MalformedMessage(_describe("malformed message", cls, version, compiled, error)) from None
    if strict and end != size:
        raise MalformedMessage(_text("malformed message", cls, version, "-", f"{size - end} bytes too many"))
    return message, end


def encode(message: Message, version: int) -> list[Buffer]:
    """Encode a message to buffers; its records are among them and are not copied."""
    cls = type(message)
    compiled = _encoders.get((cls, version)) or _compile_encoder(cls, version)
    try:
        buffers: list[Buffer] = compiled.run(message)
    except (ValueError, TypeError, AttributeError, struct.error) as error:
        raise UnencodableMessage(_describe("unencodable message", cls, version, compiled, error)) from error
    return buffers


def encode_bytes(message: Message, version: int) -> bytes:
    """Encode a message to one `bytes`, for small messages and tests."""
    return b"".join(encode(message, version))


def _compile_decoder(cls: type[Message], version: int) -> Compiled:
    if not cls.min_version <= version <= cls.max_version:
        raise MalformedMessage(_text("malformed message", cls, version, "-", "no such version"))
    return _decoders.setdefault((cls, version), compile_decoder(cls, version))


def _compile_encoder(cls: type[Message], version: int) -> Compiled:
    if not cls.min_version <= version <= cls.max_version:
        raise UnencodableMessage(_text("unencodable message", cls, version, "-", "no such version"))
    return _encoders.setdefault((cls, version), compile_encoder(cls, version))


def _describe(what: str, cls: type[Message], version: int, compiled: Compiled, error: Exception) -> str:
    """Name the field where decoding or encoding failed: the line of the compiled function determines it."""
    line = _line_in(compiled, error.__traceback__)
    field = compiled.fields[line - 1] if line else "-"
    match error:
        case UnicodeDecodeError():
            problem = "not UTF-8"
        case IndexError():
            problem = "ends too early"
        case struct.error() if what.startswith("malformed"):
            problem = "ends too early"
        case _:
            problem = str(error)
    return _text(what, cls, version, field, problem)


def _line_in(compiled: Compiled, traceback: TracebackType | None) -> int | None:
    while traceback is not None:
        if traceback.tb_frame.f_code is compiled.run.__code__:
            return traceback.tb_lineno
        traceback = traceback.tb_next
    return None


def _text(what: str, cls: type[Message], version: int, field: str, problem: str) -> str:
    text = f"{what}; message={cls.__name__} version={version} field={field} problem={problem}"
    return text if len(text) <= MAX_ERROR_TEXT else text[: MAX_ERROR_TEXT - 1] + "…"
