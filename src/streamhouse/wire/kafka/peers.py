"""Peers: this agent as a Kafka client of the others.

Data path   broker.returns -> **peers** -> another agent's Kafka listener
Owns        one connection per agent, requests in flight on it, what an error code means to whoever must try again
Leaves      who leads to the broker, bytes of messages to `codec`

Topics are named by id, so that a topic created anew under the same name gets nothing of the old one.
"""

import asyncio
import struct
from collections import deque
from typing import Final

from streamhouse import errors
from streamhouse.errors import Rejected, StreamhouseError, Unavailable
from streamhouse.model.lease import Address
from streamhouse.model.names import PartitionId

from .codec import MalformedMessage, decode, encode
from .errors import CODES, ErrorCode
from .messages.header import RequestHeader, ResponseHeader
from .messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from .schema import Buffer

VERSION: Final = 13
ACKS_ALL: Final = -1
CLIENT_ID: Final = "streamhouse-agent"
TIMEOUT_S: Final = 30.0
MAX_ANSWER_BYTES: Final = 1024 * 1024

_SIZE: Final = struct.Struct(">i")
_AWAY: Final = (OSError, EOFError, TimeoutError, MalformedMessage)
_RETRIABLE: Final = frozenset(
    code
    for kind, code in CODES.items()
    if issubclass(kind, (errors.Retriable, errors.UnknownTopic, errors.UnknownTopicId))
)
"""An agent that doesn't know a topic may only not have heard of it yet."""


class KafkaPeers:
    """Implements `broker.doors.Peers`."""

    def __init__(self, *, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._links: dict[Address, asyncio.Task[_Link]] = {}

    def __repr__(self) -> str:
        return f"<KafkaPeers links={len(self._links)}>"

    async def append(self, at: Address, partition: PartitionId, batch: Buffer) -> int:
        part = PartitionProduceData(index=partition.partition, records=batch)
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=round(self._timeout_s * 1000),
            topic_data=[TopicProduceData(name="", topic_id=partition.topic_id, partition_data=[part])],
        )
        link = self._links.get(at)
        if link is None:
            link = self._links[at] = asyncio.get_running_loop().create_task(_connect(at), name="peer")
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await (await asyncio.shield(link)).produce(request)
            (told,) = answer.responses[0].partition_responses
        except (*_AWAY, IndexError, ValueError) as error:
            self._drop(at, link)
            why = str(error) or type(error).__name__
            raise Unavailable(f"another agent doesn't answer; address={at} why={why}") from error
        if told.error_code != ErrorCode.NONE:
            raise _refusal(told.error_code, told.error_message, at, partition)
        return told.base_offset

    def _drop(self, at: Address, link: "asyncio.Task[_Link]") -> None:
        if self._links.get(at) is link:
            del self._links[at]
        link.add_done_callback(_close)

    async def aclose(self) -> None:
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.cancel()
        for made in await asyncio.gather(*links, return_exceptions=True):
            if isinstance(made, _Link):
                await made.aclose()


class _Link:
    """One connection; answers come in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sent = 0
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._receiving = asyncio.get_running_loop().create_task(self._receive(), name="peer-answers")

    async def produce(self, request: ProduceRequest) -> ProduceResponse:
        if self._receiving.done():
            raise ConnectionResetError("the connection is closed")
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        self._sent += 1
        self._writer.writelines(_frame(request, self._sent))
        await self._writer.drain()
        answer = await answered
        _, position = decode(ResponseHeader, ProduceResponse.header_version(VERSION), answer)
        response, _ = decode(ProduceResponse, VERSION, answer, position)
        return response

    async def _receive(self) -> None:
        why: Exception = ConnectionResetError("the connection was closed")
        try:
            while True:
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                if not 0 < size <= MAX_ANSWER_BYTES:
                    raise ConnectionAbortedError(f"an answer has an impossible size; bytes={size}")
                body = await self._reader.readexactly(size)
                if self._waiting and not (answered := self._waiting.popleft()).done():
                    answered.set_result(body)
        except (OSError, EOFError) as error:
            why = error
        finally:
            self._writer.close()
            for answered in self._waiting:
                if not answered.done():
                    answered.set_exception(why)
                    answered.exception()  # whoever waited may have gone

    def close(self) -> None:
        self._receiving.cancel()

    async def aclose(self) -> None:
        self.close()
        await asyncio.gather(self._receiving, return_exceptions=True)


async def _connect(at: Address) -> _Link:
    return _Link(*await asyncio.open_connection(at.host, at.port))


def _close(link: "asyncio.Task[_Link]") -> None:
    """Also one that is only being made: others may wait for it, so it is closed when it is there."""
    if not link.cancelled() and link.exception() is None:
        link.result().close()


def _frame(request: ProduceRequest, correlation_id: int) -> list[Buffer]:
    header = RequestHeader(
        request_api_key=request.api_key,
        request_api_version=VERSION,
        correlation_id=correlation_id,
        client_id=CLIENT_ID,
    )
    buffers = [*encode(header, request.header_version(VERSION)), *encode(request, VERSION)]
    return [_SIZE.pack(sum(map(len, buffers))), *buffers]


def _refusal(code: int, text: str | None, at: Address, partition: PartitionId) -> StreamhouseError:
    name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
    said = f"another agent refused; address={at} partition={partition} code={name} why={text}"
    return Unavailable(said) if code in _RETRIABLE else Rejected(said)
