"""Connections of this agent to one other agent's Kafka listener.

Data path   client -> **connections** -> the other agent's Kafka listener, and back
Owns        frames and correlation ids of a connection (`AgentConnection`); which connection a request uses, how many
            requests are in flight, and when an agent is taken for dead (`AgentConnections`)
Leaves      contents of messages to `writes`, `reads` and `groups`
Invariant   a response goes to the request with its correlation id; any other response closes the connection

Appends, other requests and markers share one connection each. Responses arrive in order, so a read that waits for
records has a connection to itself; if its caller gives up, the connection is closed and the other agent drops the read.
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
from streamhouse.limits import FifoLimiter
from streamhouse.wire.agent_login import NO_LOGIN, OAUTHBEARER, AgentLogin
from streamhouse.wire.kafka.codec import MalformedMessage, decode, encode
from streamhouse.wire.kafka.context import AGENT
from streamhouse.wire.kafka.messages.header import RequestHeader, ResponseHeader
from streamhouse.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from streamhouse.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from streamhouse.wire.kafka.schema import Buffer, Request, Response

MAX_RESPONSE_BYTES: Final = 192 * 1024 * 1024
"""Above the largest fetch response: its limits plus one batch."""

MAX_CORRELATION_ID: Final = 2**31 - 1
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2

_SIZE: Final = struct.Struct(">i")

R = TypeVar("R", bound=Response)


class _PendingRequest(NamedTuple):
    correlation_id: int
    sent_at: float
    response: "asyncio.Future[bytes]"


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
        self._receiving = asyncio.get_running_loop().create_task(self._receive(), name="agent-responses")

    def __repr__(self) -> str:
        return (
            f"<AgentConnection {'open' if self.is_open else 'closed'} waiting={len(self._waiting)} sent={self._sent}>"
        )

    @property
    def is_open(self) -> bool:
        return not self._receiving.done()

    @property
    def oldest_wait_s(self) -> float:
        """How long the oldest request has been without a response, also if its caller gave up."""
        return self._clock.monotonic() - self._waiting[0].sent_at if self._waiting else 0.0

    async def send(self, request: Request, version: int, response_type: type[R]) -> R:
        if not self.is_open or self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        # The buffer also contains requests of callers that gave up.
        if self._writer.transport.get_write_buffer_size() > self._max_unsent_bytes:
            raise ConnectionResetError("the other agent reads nothing")
        correlation_id = self._sent % MAX_CORRELATION_ID + 1
        frame = _frame(request, version, correlation_id)  # raises before a future waits for the response
        pending: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(_PendingRequest(correlation_id, self._clock.monotonic(), pending))
        self._sent += 1
        try:
            self._writer.writelines(frame)
            await self._writer.drain()
        except RuntimeError as error:  # uvloop's error for a transport that has just been closed
            raise ConnectionResetError(str(error)) from error
        body = await pending
        _, position = decode(ResponseHeader, response_type.header_version(version), body)
        response, _ = decode(response_type, version, body, position)
        return response

    async def _receive(self) -> None:
        why: Exception = ConnectionResetError("the connection was closed")
        try:
            while True:
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                if not _SIZE.size <= size <= MAX_RESPONSE_BYTES:
                    raise ConnectionAbortedError(f"a response has an invalid size; bytes={size}")
                self._deliver(await self._reader.readexactly(size))
        except (OSError, EOFError) as error:
            why = error
        finally:
            self._writer.close()
            for waiting in self._waiting:
                if not waiting.response.done():
                    waiting.response.set_exception(why)
                    waiting.response.exception()  # marks it as retrieved: the caller may have gone

    def _deliver(self, body: bytes) -> None:
        """Complete the oldest request; raises `ConnectionAbortedError` if the response belongs to another one."""
        (received,) = _SIZE.unpack_from(body)
        expected = self._waiting[0].correlation_id if self._waiting else None
        if received != expected:
            raise ConnectionAbortedError(
                f"a response belongs to another request; correlation ids: expected={expected} received={received}"
            )
        if not (response := self._waiting.popleft().response).done():
            response.set_result(body)

    def close(self) -> None:
        self._receiving.cancel()

    async def aclose(self) -> None:
        self.close()
        await asyncio.gather(self._receiving, return_exceptions=True)


async def connect(at: Address, *, clock: Clock, max_unsent_bytes: int, login: AgentLogin = NO_LOGIN) -> AgentConnection:
    """A connection on which this agent has logged in; raise `OSError` if there is none."""
    reader, writer = await asyncio.open_connection(at.host, at.port, ssl=login.kafka_tls)
    connection = AgentConnection(reader, writer, clock=clock, max_unsent_bytes=max_unsent_bytes)
    if login.make_token is not None:
        try:
            await _log_in(connection, login)
        except BaseException:
            connection.close()
            raise
    return connection


async def _log_in(connection: AgentConnection, login: AgentLogin) -> None:
    handshake = await connection.send(
        SaslHandshakeRequest(mechanism=OAUTHBEARER), HANDSHAKE_VERSION, SaslHandshakeResponse
    )
    if handshake.error_code:
        raise ConnectionRefusedError(f"the other agent has no SASL {OAUTHBEARER}; code={handshake.error_code}")
    request = SaslAuthenticateRequest(auth_bytes=login.sasl_message())
    response = await connection.send(request, AUTHENTICATE_VERSION, SaslAuthenticateResponse)
    if response.error_code or response.auth_bytes:  # OAUTHBEARER says what is wrong as a challenge
        raise ConnectionRefusedError(
            f"the other agent refused the cluster token; code={response.error_code} "
            f"why={response.error_message or bytes(response.auth_bytes)!r}"
        )


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
    def __init__(self, at: Address, settings: AgentClientSettings, clock: Clock, login: AgentLogin = NO_LOGIN) -> None:
        self.at = at
        self._login = login
        self._settings = settings
        self._clock = clock
        self._shared: dict[str, asyncio.Task[AgentConnection]] = {}
        self._idle: list[AgentConnection] = []
        self._unreachable_since: float | None = None
        self._requests_limiter = FifoLimiter(
            f"requests forwarded to {at}",
            max_items=settings.max_inflight_requests,
            max_bytes=settings.max_inflight_bytes,
            max_waiting=settings.max_waiting,
        )
        self._reads_limiter = FifoLimiter(
            f"reads at {at}", max_items=settings.max_polls, max_bytes=0, max_waiting=settings.max_waiting
        )

    def __repr__(self) -> str:
        return (
            f"<AgentConnections {self.at} connections={self.count} {self._requests_limiter!r} {self._reads_limiter!r}>"
        )

    @property
    def count(self) -> int:
        return len(self._shared) + len(self._idle) + self._reads_limiter.items

    @property
    def is_unused(self) -> bool:
        return not self.count and not self._requests_limiter.items

    async def send(
        self,
        kind: str,
        request: Request,
        version: int,
        response_type: type[R],
        *,
        timeout_s: float,
        size_bytes: int = 0,
    ) -> R:
        """Send a request on the connection that all requests of this kind share."""
        connection: asyncio.Task[AgentConnection] | None = None
        try:
            async with asyncio.timeout(timeout_s), self._requests_limiter.inside(size_bytes):
                connection = self._connection(kind)
                return await (await asyncio.shield(connection)).send(request, version, response_type)
        except TimeoutError as error:
            if connection is not None and self._is_dead(connection):
                self._drop(kind, connection)
            raise self._unavailable(error) from error
        except CONNECTION_ERRORS as error:
            if connection is not None:
                self._drop(kind, connection)
            raise self._unavailable(error) from error

    async def read(self, request: Request, version: int, response_type: type[R], *, timeout_s: float) -> R:
        """Send a request on a connection that no other request uses meanwhile."""
        try:
            async with asyncio.timeout(timeout_s), self._reads_limiter.inside(0):
                connection = self._take_idle() or await self._connect()
                try:
                    response = await connection.send(request, version, response_type)
                except BaseException:
                    connection.close()
                    raise
                self._keep(connection)
                return response
        except CONNECTION_ERRORS as error:
            raise self._unavailable(error) from error

    def _take_idle(self) -> AgentConnection | None:
        while self._idle:
            if (connection := self._idle.pop()).is_open:
                return connection
        return None

    def _keep(self, connection: AgentConnection) -> None:
        if len(self._idle) < self._settings.idle_links and connection.is_open:
            self._idle.append(connection)
        else:
            connection.close()

    def _connection(self, kind: str) -> "asyncio.Task[AgentConnection]":
        connection = self._shared.get(kind)
        if connection is None:
            work = self._connect()
            connection = self._shared[kind] = asyncio.get_running_loop().create_task(work, name="agent-connection")
        return connection

    async def _connect(self) -> AgentConnection:
        """Connect; fails at once if the agent could not be reached a moment ago."""
        since = self._unreachable_since
        if since is not None and self._clock.monotonic() - since < self._settings.reconnect_s:
            raise ConnectionRefusedError("it could not be reached a moment ago")
        try:
            connection = await connect(
                self.at, clock=self._clock, max_unsent_bytes=self._settings.max_inflight_bytes, login=self._login
            )
        except OSError:
            self._unreachable_since = self._clock.monotonic()
            raise
        return connection

    def _is_dead(self, connection: "asyncio.Task[AgentConnection]") -> bool:
        """Whether the agent is taken for dead: the timeout of one caller is no sign of it, a long silence is."""
        if not connection.done():
            return True
        made = not connection.cancelled() and connection.exception() is None
        return not made or connection.result().oldest_wait_s >= self._settings.timeout_s

    def _drop(self, kind: str, connection: "asyncio.Task[AgentConnection]") -> None:
        if self._shared.get(kind) is connection:
            del self._shared[kind]
        connection.add_done_callback(_close)

    def _unavailable(self, error: BaseException) -> Unavailable:
        why = str(error) or type(error).__name__
        return Unavailable(f"another agent doesn't answer; address={self.at} why={why}")

    async def aclose(self) -> None:
        connections, self._shared = list(self._shared.values()), {}
        idle, self._idle = self._idle, []
        for connection in connections:
            connection.cancel()
        for made in await asyncio.gather(*connections, return_exceptions=True):
            if isinstance(made, AgentConnection):
                await made.aclose()
        for each in idle:
            with suppress(asyncio.CancelledError):
                await each.aclose()


def _close(connection: "asyncio.Task[AgentConnection]") -> None:
    """Close the connection; one that is still being opened is closed afterwards: other callers may wait for it."""
    if not connection.cancelled() and connection.exception() is None:
        connection.result().close()
