"""Link: one connection to another agent; many requests may be under way, answers come in the order of the requests.

Data path   peer -> **link** -> another agent's Kafka listener, and back
Owns        frames and correlation ids, who waits for which answer
Leaves      which link to use, and for how long to wait, to `peer`; bytes of messages to `codec`
Invariant   an answer goes to the request whose correlation id it carries; any other answer ends the link

Peer: one other agent, the connections to it, and how much of it is asked at once.

Data path   peers -> **peer** -> link
Owns        a shared connection for appends, one for questions, one for markers, one per read; limits; when an agent is
            taken for gone
Leaves      bytes to `link`, what is asked to `appends`, `reads`, `groups` and `markers`

Answers come in order, so a read that waits for records has a connection to itself: nothing waits behind it. When its
reader gives up the connection is closed, and the other agent forgets the read.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar, cast

from streamhouse.clock import Clock
from streamhouse.config import AgentClientSettings
from streamhouse.config.fields import Address
from streamhouse.errors import Unavailable
from streamhouse.limits import Gate
from streamhouse.wire.kafka.codec import MalformedMessage, decode, encode
from streamhouse.wire.kafka.handlers.produce import AGENT
from streamhouse.wire.kafka.messages.header import RequestHeader, ResponseHeader
from streamhouse.wire.kafka.schema import Buffer, Request, Response

MAX_RESPONSE_BYTES: Final = 192 * 1024 * 1024
"""More than a fetch with its limits and one batch above them."""

MAX_CORRELATION_ID: Final = 2**31 - 1

_SIZE: Final = struct.Struct(">i")

R = TypeVar("R", bound=Response)


class _PendingRequest(NamedTuple):
    correlation_id: int
    sent_at: float
    answered: "asyncio.Future[bytes]"


class AgentConnection:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, clock: Clock, max_unsent_bytes: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._max_unsent_bytes = max_unsent_bytes
        self._sent = 0
        self._waiting: deque[_PendingRequest] = deque()
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
        self._waiting.append(_PendingRequest(correlation_id, self._clock.monotonic(), answered))
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
                if not _SIZE.size <= size <= MAX_RESPONSE_BYTES:
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


async def connect(at: Address, *, clock: Clock, max_unsent_bytes: int) -> AgentConnection:
    reader, writer = await asyncio.open_connection(at.host, at.port)
    return AgentConnection(reader, writer, clock=clock, max_unsent_bytes=max_unsent_bytes)


def _frame(request: Request, version: int, correlation_id: int) -> list[Buffer]:
    header = RequestHeader(
        request_api_key=request.api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=AGENT,
    )
    buffers = [*encode(header, request.header_version(version)), *encode(request, version)]
    return [cast(Buffer, _SIZE.pack(sum(map(len, buffers)))), *buffers]


CONNECTION_ERRORS: Final = (OSError, EOFError, TimeoutError, MalformedMessage)

Connect = Callable[[], Awaitable[AgentConnection]]


class AgentConnections:
    def __init__(self, at: Address, settings: AgentClientSettings, clock: Clock) -> None:
        self.at = at
        self._settings = settings
        self._clock = clock
        self._shared: dict[str, asyncio.Task[AgentConnection]] = {}
        self._idle: list[AgentConnection] = []
        self._away_since: float | None = None
        self._gate = Gate(
            f"requests forwarded to {at}",
            max_items=settings.max_inflight_requests,
            max_bytes=settings.max_inflight_bytes,
            max_waiting=settings.max_waiting,
        )
        self._reads = Gate(
            f"reads at {at}", max_items=settings.max_polls, max_bytes=0, max_waiting=settings.max_waiting
        )

    def __repr__(self) -> str:
        return f"<Peer {self.at} links={self.links} {self._gate!r} {self._reads!r}>"

    @property
    def links(self) -> int:
        return len(self._shared) + len(self._idle) + self._reads.items

    @property
    def is_unused(self) -> bool:
        return not self.links and not self._gate.items

    async def ask(
        self, kind: str, request: Request, version: int, answer: type[R], *, timeout_s: float, size_bytes: int = 0
    ) -> R:
        """On the connection that all requests of this kind share."""
        link: asyncio.Task[AgentConnection] | None = None
        try:
            async with asyncio.timeout(timeout_s), self._gate.inside(size_bytes):
                link = self._link(kind)
                return await (await asyncio.shield(link)).ask(request, version, answer)
        except TimeoutError as error:
            if link is not None and self._is_gone(link):
                self._drop(kind, link)
            raise self._no_answer(error) from error
        except CONNECTION_ERRORS as error:
            if link is not None:
                self._drop(kind, link)
            raise self._no_answer(error) from error

    async def read(self, request: Request, version: int, answer: type[R], *, timeout_s: float) -> R:
        """On a connection of its own."""
        try:
            async with asyncio.timeout(timeout_s), self._reads.inside(0):
                link = self._take_idle() or await self._connect()
                try:
                    response = await link.ask(request, version, answer)
                except BaseException:
                    link.close()
                    raise
                self._keep(link)
                return response
        except CONNECTION_ERRORS as error:
            raise self._no_answer(error) from error

    def _take_idle(self) -> AgentConnection | None:
        while self._idle:
            if (link := self._idle.pop()).is_open:
                return link
        return None

    def _keep(self, link: AgentConnection) -> None:
        if len(self._idle) < self._settings.idle_links and link.is_open:
            self._idle.append(link)
        else:
            link.close()

    def _link(self, kind: str) -> "asyncio.Task[AgentConnection]":
        link = self._shared.get(kind)
        if link is None:
            work = self._connect()
            link = self._shared[kind] = asyncio.get_running_loop().create_task(work, name="peer")
        return link

    async def _connect(self) -> AgentConnection:
        """One that could not be reached a moment ago is not tried by everybody who wants something of it."""
        if self._away_since is not None and self._clock.monotonic() - self._away_since < self._settings.reconnect_s:
            raise ConnectionRefusedError("it could not be reached a moment ago")
        try:
            link = await connect(self.at, clock=self._clock, max_unsent_bytes=self._settings.max_inflight_bytes)
        except OSError:
            self._away_since = self._clock.monotonic()
            raise
        self._away_since = None
        return link

    def _is_gone(self, link: "asyncio.Task[AgentConnection]") -> bool:
        """A caller with little time says nothing about the agent; a long silence does."""
        if not link.done():
            return True
        made = not link.cancelled() and link.exception() is None
        return not made or link.result().silent_s >= self._settings.timeout_s

    def _drop(self, kind: str, link: "asyncio.Task[AgentConnection]") -> None:
        if self._shared.get(kind) is link:
            del self._shared[kind]
        link.add_done_callback(_close)

    def _no_answer(self, error: BaseException) -> Unavailable:
        why = str(error) or type(error).__name__
        return Unavailable(f"another agent doesn't answer; address={self.at} why={why}")

    async def aclose(self) -> None:
        links, self._shared = list(self._shared.values()), {}
        idle, self._idle = self._idle, []
        for link in links:
            link.cancel()
        for made in await asyncio.gather(*links, return_exceptions=True):
            if isinstance(made, AgentConnection):
                await made.aclose()
        for each in idle:
            with suppress(asyncio.CancelledError):
                await each.aclose()


def _close(link: "asyncio.Task[AgentConnection]") -> None:
    """Also one that is only being made: others may wait for it, so it is closed when it is there."""
    if not link.cancelled() and link.exception() is None:
        link.result().close()
