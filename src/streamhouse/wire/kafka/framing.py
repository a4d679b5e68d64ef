"""Framing: from the bytes of a socket to decoded requests, and from responses to bytes.

Data path   socket -> **framing** -> connection -> handler -> **framing** -> connection
Owns        the length in front of every request and where received bytes go (`FrameReader`); headers, correlation ids
            and the version of a response (`decode_request`, `encode_response`); whether a response has only errors
Leaves      how many bytes may be in flight to `connection_limits`, message bodies to `codec`, meaning to the handlers

Invariant   memory for a frame is allocated only after its size was compared with the limit and admitted
            a frame's buffer is at most twice as large as the bytes received for it, or `FIRST_BYTES`
            a frame's buffer belongs to that frame alone: batches in it go into the log without a copy

Between two frames bytes go to a scratch buffer that all connections share (they are taken out of it before another
connection can run), so an idle connection has none, and many small requests arrive with one system call. Once the size
is known, the rest of a large frame is received into its own buffer, which is doubled whenever it is full.

`is_rejection` stops at the first part of a response that succeeded, so it is cheap for large responses.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

from streamhouse.errors import Rejected
from streamhouse.wire.kafka.api_registry import APIS, Api
from streamhouse.wire.kafka.codec import MAX_ELEMENTS, MalformedMessage, decode, encode
from streamhouse.wire.kafka.context import CloseConnection
from streamhouse.wire.kafka.messages.header import RequestHeader
from streamhouse.wire.kafka.schema import API_VERSIONS_KEY, Buffer, Request, Response, fields_of

SIZE_BYTES: Final = 4
SCRATCH_BYTES: Final = 64 * 1024
"""What is copied of a large frame at most, and how many bytes of small ones arrive with one call."""

FIRST_BYTES: Final = 512
"""What a frame's buffer has at least, of which almost nothing came yet."""

_SIZE: Final = struct.Struct(">i")


class BadFrame(Rejected):
    """The first bytes of a frame can't be its size: another protocol, or a request that is too large."""


class FrameReader:
    """The frames of one connection. Without I/O: `space` says where bytes go, `received` that they came."""

    __slots__ = ("_filled", "_frame", "_max_bytes", "_rest", "_scratch", "_view", "frame_bytes")

    def __init__(self, scratch: memoryview, *, max_bytes: int) -> None:
        self._scratch = scratch
        self._max_bytes = max_bytes
        self._rest: memoryview | bytes = b""
        self._frame: bytearray | None = None
        self._view: memoryview | None = None
        self._filled = 0
        self.frame_bytes = 0
        """The size that the frame being received announced, or the last one."""

    def __repr__(self) -> str:
        announced = self.frame_bytes if self._frame is not None else 0
        return f"<FrameReader filled={self._filled} of={announced} rest={len(self._rest)}>"

    @property
    def received_bytes(self) -> int:
        """How much there is of the frame that is not whole yet."""
        return self._filled if self._frame is not None else len(self._rest)

    @property
    def is_between_frames(self) -> bool:
        return self._frame is None and not self._rest

    @property
    def is_inside_frame(self) -> bool:
        """Whether a frame has a buffer and is not whole."""
        return self._frame is not None

    @property
    def partial_bytes(self) -> int:
        """The size of the buffer of the frame that is being received; it was admitted."""
        return len(self._frame) if self._frame is not None else 0

    def space(self) -> memoryview:
        """Where the next bytes go."""
        return self._view[self._filled :] if self._view is not None else self._scratch

    def received(self, count: int) -> None:
        """`count` bytes came to where `space` said."""
        if self._frame is not None:
            self._filled += count
        elif self._rest:
            self._rest = bytes(self._rest) + bytes(self._scratch[:count])
        else:
            self._rest = self._scratch[:count]

    def next_frame(self, admit: Callable[[int], bool]) -> bytearray | None:
        """The next whole frame; None when more bytes are needed, or when `admit` refused what its buffer needs now."""
        if self._frame is not None:
            return self._go_on(self._frame, admit)
        rest = self._rest
        if len(rest) < SIZE_BYTES:
            return None
        (size,) = _SIZE.unpack_from(rest)
        if not 0 < size <= self._max_bytes:
            raise BadFrame(
                f"not a request, or too large; size={size} limit={self._max_bytes} began={bytes(rest[:8])!r}"
            )
        self.frame_bytes = size
        end = SIZE_BYTES + size
        is_whole = end <= len(rest)
        buffer_bytes = size if is_whole else min(size, max(2 * (len(rest) - SIZE_BYTES), FIRST_BYTES))
        if not admit(buffer_bytes):
            return None
        if is_whole:
            self._rest = rest[end:]
            return bytearray(rest[SIZE_BYTES:end])
        self._fill(bytearray(buffer_bytes), rest[SIZE_BYTES:])
        self._rest = b""
        return None

    def settle(self) -> None:
        """Take what is left out of the scratch buffer, before somebody else receives into it."""
        if not isinstance(self._rest, bytes):
            self._rest = bytes(self._rest)

    def drop(self) -> None:
        """Forget everything received so far."""
        self._rest, self._frame, self._view, self._filled = b"", None, None, 0

    def _fill(self, buffer: bytearray, first: memoryview | bytes | bytearray) -> None:
        self._frame = buffer
        self._view = memoryview(buffer)
        self._filled = len(first)
        self._view[: self._filled] = first

    def _go_on(self, frame: bytearray, admit: Callable[[int], bool]) -> bytearray | None:
        if self._filled < len(frame):
            return None
        if len(frame) == self.frame_bytes:
            self._frame = self._view = None
            self._filled = 0
            return frame
        more = min(len(frame), self.frame_bytes - len(frame))
        if admit(more):
            # The transport still holds a view of the buffer, so it can't be made longer in its place.
            self._fill(bytearray(len(frame) + more), frame)
        return None


MAX_NAME: Final = 100
"""Characters of a client's id that are kept, for logs."""

_HEAD: Final = struct.Struct(">hhi")
_RESPONSE_HEADS: Final = (struct.Struct(">ii"), struct.Struct(">iix"))  # by header version: size, correlation id, tags
_SIZE_BYTES: Final = 4


class DecodedRequest(NamedTuple):
    """A request that was understood; `version` is the one that was asked in, `answer_version` the answer's."""

    api: Api
    version: int
    answer_version: int
    correlation_id: int
    client_id: str
    request: Request


def decode_request(frame: bytearray, *, max_elements: int = MAX_ELEMENTS) -> DecodedRequest:
    """Read a frame; raises `MalformedMessage` or `CloseConnection` when there is no way to answer it."""
    if len(frame) < _HEAD.size:
        raise MalformedMessage(f"malformed message; message=RequestHeader problem=only {len(frame)} bytes")
    key, version, correlation_id = _HEAD.unpack_from(frame)
    api = APIS.get(key)
    if api is None:
        raise CloseConnection(f"API is not served; key={key} version={version}")
    if not api.handles(version):
        return _unsupported(api, version, correlation_id)
    header, position = decode(RequestHeader, api.request.header_version(version), frame)
    # What follows the request is not looked at, as in Kafka: librdkafka's request for all topics has three bytes more.
    request, _ = decode(api.request, version, frame, position, max_elements=max_elements)
    return DecodedRequest(api, version, version, correlation_id, (header.client_id or "")[:MAX_NAME], request)


def _unsupported(api: Api, version: int, correlation_id: int) -> DecodedRequest:
    """Whoever asks which versions there are can't know in which one to ask, and gets the oldest answer; others close,
    because the shape of their answer is as unknown as that of the request."""
    if api.key != API_VERSIONS_KEY:
        raise CloseConnection(f"version is not served; api={api.name} version={version} served={api.first}-{api.last}")
    return DecodedRequest(api, version, 0, correlation_id, "", api.request())


def encode_response(exchange: DecodedRequest, response: Response) -> list[Buffer]:
    """An answer as buffers, its size in front; records in it are not copied."""
    buffers = encode(response, exchange.answer_version)
    head = _RESPONSE_HEADS[response.header_version(exchange.answer_version)]
    size = head.size - _SIZE_BYTES + sum(map(len, buffers))
    # The first buffer is the encoder's own, never records: in one piece with the head, small answers are one write.
    buffers[0] = head.pack(size, exchange.correlation_id) + buffers[0]
    return buffers


CODE = "error_code"


class _ErrorFields(NamedTuple):
    """Whether a struct has a code of its own, and which of its fields are lists of structs that say more."""

    has_code: bool
    parts: tuple[str, ...]


def is_rejection(response: Response) -> bool:
    return _has_error(response) is True


def _has_error(struct: Any) -> bool | None:
    """None: it says neither."""
    kind: type = type(struct)
    has_code, parts = _error_fields(kind)
    if has_code and struct.error_code:
        return True
    refused: bool | None = None
    for part in parts:
        for each in getattr(struct, part) or ():
            reported = _has_error(each)
            if reported is False:
                return False
            refused = reported or refused
    return False if has_code and refused is None else refused


@cache
def _error_fields(struct: type) -> _ErrorFields:
    fields = fields_of(struct)
    lists = [(each.name, each.type[0]) for each in fields if isinstance(each.type, list)]
    parts = tuple(name for name, kind in lists if isinstance(kind, type) and any(_error_fields(kind)))
    return _ErrorFields(any(each.name == CODE for each in fields), parts)
