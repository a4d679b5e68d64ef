"""Exchange: one request and its answer, between the bytes of a frame and the classes of `messages`.

Data path   connection -> **exchange** (header, API, version, body) -> handler -> **exchange** -> connection
Owns        headers, correlation ids, which version an answer is written in
Leaves      bytes of messages to `codec`, meaning to the handlers
"""

import struct
from typing import Final, NamedTuple

from streamhouse.wire.kafka.answer import CloseConnection
from streamhouse.wire.kafka.codec import MAX_ELEMENTS, MalformedMessage, decode, encode
from streamhouse.wire.kafka.messages.header import RequestHeader
from streamhouse.wire.kafka.schema import API_VERSIONS_KEY, Buffer, Request, Response
from streamhouse.wire.kafka.support import APIS, Api

MAX_NAME: Final = 100
"""Characters of a client's id that are kept, for logs."""

_HEAD: Final = struct.Struct(">hhi")
_ANSWER_HEADS: Final = (struct.Struct(">ii"), struct.Struct(">iix"))  # by header version: size, correlation id, tags
_SIZE_BYTES: Final = 4


class Exchange(NamedTuple):
    """A request that was understood; `version` is the one that was asked in, `answer_version` the answer's."""

    api: Api
    version: int
    answer_version: int
    correlation_id: int
    client_id: str
    request: Request


def open_request(frame: bytearray, *, max_elements: int = MAX_ELEMENTS) -> Exchange:
    """Read a frame; raises `MalformedMessage` or `CloseConnection` when there is no way to answer it."""
    if len(frame) < _HEAD.size:
        raise MalformedMessage(f"malformed message; message=RequestHeader problem=only {len(frame)} bytes")
    key, version, correlation_id = _HEAD.unpack_from(frame)
    api = APIS.get(key)
    if api is None:
        raise CloseConnection(f"API is not served; key={key} version={version}")
    if not api.serves(version):
        return _unserved(api, version, correlation_id)
    header, position = decode(RequestHeader, api.request.header_version(version), frame)
    # What follows the request is not looked at, as in Kafka: librdkafka's request for all topics has three bytes more.
    request, _ = decode(api.request, version, frame, position, max_elements=max_elements)
    return Exchange(api, version, version, correlation_id, (header.client_id or "")[:MAX_NAME], request)


def _unserved(api: Api, version: int, correlation_id: int) -> Exchange:
    """Whoever asks which versions there are can't know in which one to ask, and gets the oldest answer; others close,
    because the shape of their answer is as unknown as that of the request."""
    if api.key != API_VERSIONS_KEY:
        raise CloseConnection(f"version is not served; api={api.name} version={version} served={api.first}-{api.last}")
    return Exchange(api, version, 0, correlation_id, "", api.request())


def close_request(exchange: Exchange, response: Response) -> list[Buffer]:
    """An answer as buffers, its size in front; records in it are not copied."""
    buffers = encode(response, exchange.answer_version)
    head = _ANSWER_HEADS[response.header_version(exchange.answer_version)]
    size = head.size - _SIZE_BYTES + sum(map(len, buffers))
    # The first buffer is the encoder's own, never records: in one piece with the head, small answers are one write.
    buffers[0] = head.pack(size, exchange.correlation_id) + buffers[0]
    return buffers
