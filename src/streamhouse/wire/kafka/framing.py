"""Framing: from the bytes of a socket to decoded requests, and from responses to bytes.

Data path   socket -> **framing** -> connection -> handler -> **framing** -> connection
Owns        the length prefix and the buffers of received bytes (`FrameReader`); headers, correlation ids and the
            version of a response (`decode_request`, `encode_response`); whether a response has only errors
Leaves      how many bytes may be in flight to `connection_limits`, message bodies to `codec`, meaning to the handlers

Invariant   memory for a frame is allocated only after its size was compared with the limit and admitted
            a frame's buffer is at most twice as large as the bytes received for it, or `FIRST_BYTES`, or, while there
            is room, as large as the frame before it was, up to `PROVEN_BYTES`
            a frame's buffer belongs to that frame alone: batches in it go into the log without a copy

Between two frames bytes go to a scratch buffer that all connections share (they are taken out of it before another
connection can run), so an idle connection has none, and many small requests arrive with one system call. Once the size
is known, the rest of a large frame is received into its own buffer, which is doubled whenever it is full. A client that
sends large frames one after the other gets whole buffers from the second on: each doubling clears and copies memory.

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
"""Size of the scratch buffer: the most that is copied of a large frame, and that is received in one call."""

FIRST_BYTES: Final = 512
"""Minimum size of a frame's buffer."""

PROVEN_BYTES: Final = 1024 * 1024
"""Maximum size of a buffer that a frame gets at once because the frame before it was as large: what librdkafka and Java
producers send at most, by default."""

_SIZE: Final = struct.Struct(">i")


class BadFrame(Rejected):
    """The length prefix of a frame is invalid: another protocol, or a request that is too large."""


class FrameReader:
    """The frames of one connection, without I/O: receive into `space`, then call `received`."""

    __slots__ = ("_filled", "_frame", "_max_bytes", "_proven_bytes", "_rest", "_scratch", "_view", "frame_bytes")

    def __init__(self, scratch: memoryview, *, max_bytes: int) -> None:
        self._scratch = scratch
        self._max_bytes = max_bytes
        self._rest: memoryview | bytes = b""
        self._frame: bytearray | None = None
        self._view: memoryview | None = None
        self._filled = 0
        self._proven_bytes = FIRST_BYTES
        """How much the next frame's buffer may have before its bytes are there."""
        self.frame_bytes = 0
        """The announced size of the current frame, or of the last one."""

    def __repr__(self) -> str:
        announced = self.frame_bytes if self._frame is not None else 0
        return f"<FrameReader filled={self._filled} of={announced} rest={len(self._rest)}>"

    def set_limit(self, max_bytes: int) -> None:
        """From the next frame on, refuse those that are larger."""
        self._max_bytes = max_bytes

    @property
    def received_bytes(self) -> int:
        """Received bytes of the incomplete frame."""
        return self._filled if self._frame is not None else len(self._rest)

    @property
    def is_between_frames(self) -> bool:
        return self._frame is None and not self._rest

    @property
    def is_inside_frame(self) -> bool:
        """Whether an incomplete frame has a buffer."""
        return self._frame is not None

    @property
    def partial_bytes(self) -> int:
        """The admitted buffer size of the incomplete frame."""
        return len(self._frame) if self._frame is not None else 0

    def space(self) -> memoryview:
        """The buffer for the next bytes."""
        return self._view[self._filled :] if self._view is not None else self._scratch

    def received(self, count: int) -> None:
        """`count` bytes were received into `space`."""
        if self._frame is not None:
            self._filled += count
        elif self._rest:
            self._rest = bytes(self._rest) + bytes(self._scratch[:count])
        else:
            self._rest = self._scratch[:count]

    def next_frame(self, admit: Callable[[int], bool], *, has_room: bool = True) -> bytearray | None:
        """The next complete frame; None if more bytes are needed, or if `admit` rejected the bytes for its buffer.
        `has_room`: there is memory for bytes that were only announced."""
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
        at_once = self._proven_bytes if has_room else FIRST_BYTES
        buffer_bytes = size if is_whole else min(size, max(2 * (len(rest) - SIZE_BYTES), at_once))
        if not admit(buffer_bytes):
            return None
        if is_whole:
            self._rest = rest[end:]
            return bytearray(rest[SIZE_BYTES:end])
        self._fill(bytearray(buffer_bytes), rest[SIZE_BYTES:])
        self._rest = b""
        return None

    def settle(self) -> None:
        """Move the remaining bytes out of the scratch buffer, before another connection receives into it."""
        if not isinstance(self._rest, bytes):
            self._rest = bytes(self._rest)

    def drop(self) -> None:
        """Discard everything received so far."""
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
            self._proven_bytes = max(FIRST_BYTES, min(len(frame), PROVEN_BYTES))
            return frame
        more = min(len(frame), self.frame_bytes - len(frame))
        if admit(more):
            # The transport still holds a view of the buffer, so it can't be resized in place.
            self._fill(bytearray(len(frame) + more), frame)
        return None


MAX_NAME: Final = 100
"""Maximum length of a client id in logs."""

_HEAD: Final = struct.Struct(">hhi")
_RESPONSE_HEADS: Final = (struct.Struct(">ii"), struct.Struct(">iix"))  # by header version: size, correlation id, tags
_SIZE_BYTES: Final = 4


class DecodedRequest(NamedTuple):
    """A decoded request; `version` is the version of the request, `answer_version` that of the response."""

    api: Api
    version: int
    answer_version: int
    correlation_id: int
    client_id: str
    request: Request


def decode_request(frame: bytearray, *, max_elements: int = MAX_ELEMENTS) -> DecodedRequest:
    """Decode a frame; raises `MalformedMessage` or `CloseConnection` if no response is possible."""
    if len(frame) < _HEAD.size:
        raise MalformedMessage(f"malformed message; message=RequestHeader problem=only {len(frame)} bytes")
    key, version, correlation_id = _HEAD.unpack_from(frame)
    api = APIS.get(key)
    if api is None:
        raise CloseConnection(f"API is not served; key={key} version={version}")
    if not api.handles(version):
        return _unsupported(api, version, correlation_id)
    header, position = decode(RequestHeader, api.request.header_version(version), frame)
    # Bytes after the request are ignored, as in Kafka: librdkafka's request for all topics has three extra bytes.
    request, _ = decode(api.request, version, frame, position, max_elements=max_elements)
    return DecodedRequest(api, version, version, correlation_id, (header.client_id or "")[:MAX_NAME], request)


def _unsupported(api: Api, version: int, correlation_id: int) -> DecodedRequest:
    """An unserved version. ApiVersions gets a response in version 0, because a client can't know the served versions
    before; for other APIs the connection is closed, because the format of the response is unknown."""
    if api.key != API_VERSIONS_KEY:
        raise CloseConnection(f"version is not served; api={api.name} version={version} served={api.first}-{api.last}")
    return DecodedRequest(api, version, 0, correlation_id, "", api.request())


def encode_response(decoded: DecodedRequest, response: Response) -> list[Buffer]:
    """Encode a response with its length prefix to buffers; records are not copied."""
    buffers = encode(response, decoded.answer_version)
    head = _RESPONSE_HEADS[response.header_version(decoded.answer_version)]
    size = head.size - _SIZE_BYTES + sum(map(len, buffers))
    # The first buffer never contains records: joined with the header, a small response is a single write.
    buffers[0] = head.pack(size, decoded.correlation_id) + buffers[0]
    return buffers


CODE = "error_code"


class _ErrorFields(NamedTuple):
    """Whether a struct has an error code, and which of its fields are lists of structs with error codes."""

    has_code: bool
    parts: tuple[str, ...]


def is_rejection(response: Response) -> bool:
    return _has_error(response) is True


def _has_error(struct: Any) -> bool | None:
    """Whether the struct has an error; None if it has neither a success nor an error."""
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
