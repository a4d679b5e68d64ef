"""Link: one connection to another agent; many requests may be under way, answers come in the order of the requests.

Data path   peer -> **link** -> another agent's Kafka listener, and back
Owns        frames and correlation ids, who waits for which answer
Leaves      which link to use, and for how long to wait, to `peer`; bytes of messages to `codec`
Invariant   an answer goes to the request whose correlation id it carries; any other answer ends the link
"""

import asyncio
import struct
from collections import deque
from typing import Final, NamedTuple, TypeVar, cast

from streamhouse.clock import Clock
from streamhouse.model.lease import Address
from streamhouse.wire.kafka.codec import decode, encode
from streamhouse.wire.kafka.handlers.produce import AGENT
from streamhouse.wire.kafka.messages.header import RequestHeader, ResponseHeader
from streamhouse.wire.kafka.schema import Buffer, Request, Response

MAX_ANSWER_BYTES: Final = 192 * 1024 * 1024
"""More than a fetch with its limits and one batch above them."""

MAX_CORRELATION_ID: Final = 2**31 - 1

_SIZE: Final = struct.Struct(">i")

R = TypeVar("R", bound=Response)


class _Waiting(NamedTuple):
    correlation_id: int
    sent_at: float
    answered: "asyncio.Future[bytes]"


class Link:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, clock: Clock, max_unsent_bytes: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._max_unsent_bytes = max_unsent_bytes
        self._sent = 0
        self._waiting: deque[_Waiting] = deque()
        self._receiving = asyncio.get_running_loop().create_task(self._receive(), name="peer-answers")

    def __repr__(self) -> str:
        return f"<Link {'open' if self.is_open else 'closed'} waiting={len(self._waiting)} sent={self._sent}>"

    @property
    def is_open(self) -> bool:
        return not self._receiving.done()

    @property
    def silent_s(self) -> float:
        """For how long the oldest request has been without an answer, whether or not somebody still waits for it."""
        return self._clock.monotonic() - self._waiting[0].sent_at if self._waiting else 0.0

    async def ask(self, request: Request, version: int, answer: type[R]) -> R:
        if not self.is_open or self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        # Whoever gave up waiting has left its bytes here.
        if self._writer.transport.get_write_buffer_size() > self._max_unsent_bytes:
            raise ConnectionResetError("the other side takes nothing")
        correlation_id = self._sent % MAX_CORRELATION_ID + 1
        frame = _frame(request, version, correlation_id)  # raises before anybody waits for its answer
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(correlation_id, self._clock.monotonic(), answered))
        self._sent += 1
        try:
            self._writer.writelines(frame)
            await self._writer.drain()
        except RuntimeError as error:  # what uvloop says of a transport that has just been closed
            raise ConnectionResetError(str(error)) from error
        body = await answered
        _, position = decode(ResponseHeader, answer.header_version(version), body)
        response, _ = decode(answer, version, body, position)
        return response

    async def _receive(self) -> None:
        why: Exception = ConnectionResetError("the connection was closed")
        try:
            while True:
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                if not _SIZE.size <= size <= MAX_ANSWER_BYTES:
                    raise ConnectionAbortedError(f"an answer has an impossible size; bytes={size}")
                self._deliver(await self._reader.readexactly(size))
        except (OSError, EOFError) as error:
            why = error
        finally:
            self._writer.close()
            for waiting in self._waiting:
                if not waiting.answered.done():
                    waiting.answered.set_exception(why)
                    waiting.answered.exception()  # whoever waited may have gone

    def _deliver(self, body: bytes) -> None:
        """Give an answer to the oldest request; raises `ConnectionAbortedError` when it is an answer to another one."""
        (received,) = _SIZE.unpack_from(body)
        expected = self._waiting[0].correlation_id if self._waiting else None
        if received != expected:
            raise ConnectionAbortedError(
                f"an answer belongs to another request; correlation ids: expected={expected} received={received}"
            )
        if not (answered := self._waiting.popleft().answered).done():
            answered.set_result(body)

    def close(self) -> None:
        self._receiving.cancel()

    async def aclose(self) -> None:
        self.close()
        await asyncio.gather(self._receiving, return_exceptions=True)


async def connect(at: Address, *, clock: Clock, max_unsent_bytes: int) -> Link:
    reader, writer = await asyncio.open_connection(at.host, at.port)
    return Link(reader, writer, clock=clock, max_unsent_bytes=max_unsent_bytes)


def _frame(request: Request, version: int, correlation_id: int) -> list[Buffer]:
    header = RequestHeader(
        request_api_key=request.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=AGENT,
    )
    buffers = [*encode(header, request.header_version(version)), *encode(request, version)]
    return [cast(Buffer, _SIZE.pack(sum(map(len, buffers)))), *buffers]
