"""HTTP server: uvicorn on the agent's event loop, and connections with limits that uvicorn does not have.

Data path   sockets -> **server** -> middleware
Owns        the HTTP listeners, with TLS; rejecting or delaying connections by `ConnectionLimits`; timeouts for
            headers and for clients that do not read; turns of connections whose bodies come in chunks; the Date header;
            problem details for what is not HTTP
Leaves      signals to `agent`, routes to `app`, HTTP itself to h11 and uvicorn
"""

import asyncio
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any, Final

import h11
import msgspec
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamhouse.broker.security.quotas import Quotas
from streamhouse.clock import SystemClock
from streamhouse.config import HttpSettings
from streamhouse.config.fields import peer_host
from streamhouse.errors import Stopping
from streamhouse.wire.client_limits import ConnectionLimits, Rejection
from streamhouse.wire.http.errors import PROBLEM_JSON, Problem, ResponseCutError, error_response
from streamhouse.wire.http.middleware import HttpMetrics, RequestLimits
from streamhouse.wire.http.scope import CERTIFIED, LISTENER
from streamhouse.wire.listener import OpenListener
from streamhouse.wire.tls_acceptor import TlsAcceptor

REJECTED: Final = {
    "connections": "too many connections",
    "connections_per_ip": "too many connections of one address",
    "connection_rate": "too many new connections",
}
"""Rejections of `ConnectionLimits`, by the label of this wire's metric."""

NO_HANDSHAKE: Final = "no TLS handshake"
NO_HEADERS: Final = "no headers"
SLOW_READER: Final = "slow reader"

SLICE_BYTES: Final = 8 * 1024
"""Bytes of a body in chunks that are parsed at once: a chunk of one byte takes as long as one of a mebibyte."""

SMALL_BYTES: Final = 512
"""Pieces of such a body up to this size are parsed when they arrive."""


GRACE_S: Final = 2
"""Seconds for which a stop waits for requests; then they are answered with an error."""


class ChunkTurns:
    """Lets connections whose bodies come in chunks parse a slice each in turn, one of them in a turn of the event loop:
    in its usual 256 KiB, a client may send ten thousand chunks."""

    def __init__(self) -> None:
        self._waiting: deque[Connection] = deque()
        self._is_scheduled = False

    def __repr__(self) -> str:
        return f"<ChunkTurns waiting={len(self._waiting)}>"

    def wait(self, connection: "Connection") -> None:
        self._waiting.append(connection)
        if not self._is_scheduled:
            self._is_scheduled = True
            connection.loop.call_soon(self._next)

    def _next(self) -> None:
        connection = self._waiting.popleft()
        try:
            connection.parse_slice()
        finally:
            self._is_scheduled = bool(self._waiting)
            if self._waiting:
                connection.loop.call_soon(self._next)


class _Flow(FlowControl):
    """Flow control that also holds reading back while received bytes wait to be parsed."""

    _is_held = False

    def hold(self) -> None:
        self._is_held = True
        self._transport.pause_reading()

    def release(self) -> None:
        self._is_held = False
        if not self.read_paused:
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        if self._is_held:
            self.read_paused = False
        else:
            super().resume_reading()


class Connection(H11Protocol):
    settings: HttpSettings  # set by `connection_class`
    metrics: HttpMetrics
    limits: ConnectionLimits
    quotas: Quotas
    listener: OpenListener
    turns: ChunkTurns
    clock = SystemClock()
    is_admitted = False
    """Whether the connection was counted, and has waited for its turn, before its TLS handshake."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = self._serve
        self._application = self.config.loaded_app
        self._certified: str | None = None
        self._waiting_for_headers: asyncio.TimerHandle | None = None
        self._waiting_for_reader: asyncio.TimerHandle | None = None
        self._unread_bytes = 0
        self._unparsed = b""
        self._is_in_turn = False
        self._dated_s = 0
        self._entered = ""

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        scope[LISTENER] = self.listener.spec
        scope[CERTIFIED] = self._certified
        try:
            await self._application(scope, receive, send)
        except ResponseCutError:
            self.cycle.disconnected = True
            self.transport.close()  # what was sent so far arrives
        except asyncio.CancelledError:  # the agent stops, and waits no longer
            if self.cycle.response_started:
                self.cycle.disconnected = True  # the client sees an incomplete response
                self.transport.abort()
            else:
                await error_response(Stopping("the agent is stopping; the request was not completed"))(
                    scope, receive, send
                )

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow: _Flow = _Flow(transport)
        transport.set_write_buffer_limits(high=self.settings.write_buffer_bytes)
        # TCP keep-alive detects clients whose machine is gone.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if (tls := transport.get_extra_info("ssl_object")) is not None:
            self._certified = self.listener.user_of(tls.getpeercert())
        if self.client is not None:
            self.client = peer_host(self.client[0]), self.client[1]
        host = self.client[0] if self.client else "?"
        wait_s = 0.0 if self.is_admitted else admit(host, self.settings, self.metrics, self.limits, self.quotas)
        if wait_s is None:
            transport.abort()
            return
        self._entered = host
        if wait_s:
            self.metrics.delayed_connections.inc()
            transport.pause_reading()
            self.loop.call_later(wait_s, self._has_turn)
        else:
            self._expect_headers()

    def _has_turn(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()
            self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._entered:
            self.limits.leave(self._entered)
        self._expect_no_headers()
        self._expect_no_reader()
        self._unparsed = b""
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._unparsed:
            self._unparsed += data
            self.flow.hold()
            return
        if self.conn.their_state is h11.IDLE:  # the headers say what follows
            self._parse(data[:SLICE_BYTES])
            data = data[SLICE_BYTES:]
        if not data or self.transport.is_closing():
            return
        if self._has_length or len(data) <= SMALL_BYTES:
            self._parse(data)
            return
        self._unparsed = data
        self.flow.hold()
        self._wait_for_turn()

    def _wait_for_turn(self) -> None:
        if not self._is_in_turn:
            self._is_in_turn = True
            self.turns.wait(self)

    def parse_slice(self) -> None:
        """Parse the next received bytes; called in turn."""
        self._is_in_turn = False
        if self.transport.is_closing():
            self._unparsed = b""
        if not self._unparsed or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            return  # in the second case the next request waits for the response to this one
        size = len(self._unparsed) if self._has_length else SLICE_BYTES
        data, self._unparsed = self._unparsed[:size], self._unparsed[size:]
        self._parse(data)
        if self._unparsed:
            self._wait_for_turn()
        elif not self.transport.is_closing():
            self.flow.release()

    @property
    def _has_length(self) -> bool:
        """Whether the client is sending a body of a length that it has said."""
        is_sending = self.conn.their_state is h11.SEND_BODY
        return is_sending and not any(name == b"transfer-encoding" for name, _ in self.headers)

    def _parse(self, data: bytes) -> None:
        super().data_received(data)
        if self._owes_headers:
            self._expect_headers()
        else:
            self._expect_no_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._unparsed:
            self._wait_for_turn()
        if self.conn.their_state is h11.SEND_BODY:
            # A rejected client may still be sending: if the socket were closed at once, the response would be lost.
            self._expect_headers()

    @property
    def _owes_headers(self) -> bool:
        """Whether the next bytes of the client are headers; the rest of an unread body is discarded."""
        return self.conn.their_state is h11.IDLE or (self.cycle is not None and self.cycle.response_complete)

    def handle_events(self) -> None:
        self._date()
        super().handle_events()

    def _expect_headers(self) -> None:
        if self._waiting_for_headers is None:
            self._waiting_for_headers = self.loop.call_later(self.settings.header_timeout_s, self._no_headers)

    def _expect_no_headers(self) -> None:
        if self._waiting_for_headers is not None:
            self._waiting_for_headers.cancel()
            self._waiting_for_headers = None

    def _no_headers(self) -> None:
        self._waiting_for_headers = None
        if self._owes_headers:
            self._cut(NO_HEADERS)

    # --- readers

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._expect_no_reader()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():  # closing waits until the client has read the response
            self._expect_reader()

    def _expect_reader(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        if self._waiting_for_reader is None:
            self._waiting_for_reader = self.loop.call_later(self.settings.slow_reader_timeout_s, self._look_at_reader)

    def _expect_no_reader(self) -> None:
        if self._waiting_for_reader is not None:
            self._waiting_for_reader.cancel()
            self._waiting_for_reader = None

    def _look_at_reader(self) -> None:
        """Close the connection if the client has read nothing since the last check."""
        self._waiting_for_reader = None
        if self.transport.get_write_buffer_size() >= self._unread_bytes:
            self._cut(SLOW_READER)
        else:
            self._expect_reader()

    def _cut(self, why: str) -> None:
        self.metrics.cut(why).inc()
        self.transport.abort()

    # --- responses

    def _date(self) -> None:
        """The Date header, formatted when it is needed instead of once a second."""
        now_s = self.clock.now_ms() // 1000
        if now_s != self._dated_s:
            self._dated_s = now_s
            self.server_state.default_headers = [(b"date", formatdate(now_s, usegmt=True).encode())]

    def send_400_response(self, msg: str) -> None:
        problem = Problem(
            type="about:blank", title="Bad Request", status=400, detail=f"this is not HTTP; why={msg[:200]}"
        )
        body = msgspec.json.encode(problem)
        headers = [
            (b"content-type", PROBLEM_JSON.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (h11.Response(status_code=400, headers=headers, reason=b"Bad Request"), h11.Data(data=body)):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.write(self.conn.send(h11.EndOfMessage()) or b"")
        self.transport.close()


def admit(
    host: str, settings: HttpSettings, metrics: HttpMetrics, limits: ConnectionLimits, quotas: Quotas
) -> float | None:
    """Count a connection; returns how long its first request has to wait, or None if it is refused."""
    wait_s = limits.admit(host, settings, Connection.clock.monotonic())
    if isinstance(wait_s, Rejection):
        metrics.cut(REJECTED[wait_s.why]).inc()
        return None
    return max(wait_s, quotas.charge_connection(host)) if quotas.is_active else wait_s


def connection_class(
    settings: HttpSettings,
    metrics: HttpMetrics,
    limits: ConnectionLimits,
    quotas: Quotas,
    listener: OpenListener,
    turns: ChunkTurns,
) -> type[Connection]:
    """The connection class of one listener, with its settings and metrics: uvicorn creates connections from a class."""
    attributes = {
        "settings": settings,
        "metrics": metrics,
        "limits": limits,
        "quotas": quotas,
        "listener": listener,
        "turns": turns,
    }
    return type("Connection", (Connection,), attributes)


class _Uvicorn(uvicorn.Server):
    """Uvicorn without signal handlers, which the agent has, and without a tick every 0.1 s."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.exit = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def make_connection(self) -> Connection:
        """The protocol of a connection that something else has accepted and admitted."""
        made = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        assert isinstance(made, Connection)
        made.is_admitted = True
        return made

    async def main_loop(self) -> None:
        await self.exit.wait()


class HttpServer:
    """One application on several listeners, whose connections count together."""

    def __init__(
        self, settings: HttpSettings, app: RequestLimits, listeners: Sequence[OpenListener], *, quotas: Quotas
    ) -> None:
        self._listeners = listeners
        self._app = app
        limits, turns = ConnectionLimits(settings, section="http"), ChunkTurns()
        self._servers = [
            _server(app, connection_class(settings, app.metrics, limits, quotas, listener, turns), settings)
            for listener in listeners
        ]
        self._acceptors = [
            _tls_acceptor(server, listener, settings, app.metrics, limits, quotas)
            for server, listener in zip(self._servers, listeners, strict=True)
            if listener.tls is not None
        ]
        self._serving: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        return f"<HttpServer {', '.join(map(repr, self._listeners))}>"

    def start(self) -> None:
        self._serving = [
            asyncio.get_running_loop().create_task(
                server.serve(sockets=[listener.listening] if listener.tls is None else []),
                name=f"http-server-{listener.spec.name}",
            )
            for server, listener in zip(self._servers, self._listeners, strict=True)
        ]
        for acceptor in self._acceptors:
            acceptor.start()

    async def stop(self) -> None:
        for acceptor in self._acceptors:
            await acceptor.close()
        self._app.stop()
        for server in self._servers:
            server.should_exit = True
            server.exit.set()
        await asyncio.gather(*self._serving)


def _tls_acceptor(
    server: _Uvicorn,
    listener: OpenListener,
    settings: HttpSettings,
    metrics: HttpMetrics,
    limits: ConnectionLimits,
    quotas: Quotas,
) -> TlsAcceptor:
    def leave(host: str) -> None:
        metrics.cut(NO_HANDSHAKE).inc()
        limits.leave(host)

    return TlsAcceptor(
        listener,
        admit=lambda host: admit(host, settings, metrics, limits, quotas),
        leave=leave,
        make=server.make_connection,
        timeout_s=settings.header_timeout_s,
        clock=Connection.clock,
    )


def _server(app: RequestLimits, connection: type[Connection], settings: HttpSettings) -> _Uvicorn:
    config = uvicorn.Config(
        app,
        http=connection,
        ws="none",
        proxy_headers=False,  # any client could claim another address
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
        timeout_keep_alive=round(settings.idle_timeout_s),
        h11_max_incomplete_event_size=settings.max_header_bytes,
        timeout_graceful_shutdown=GRACE_S,
    )
    config.load()
    return _Uvicorn(config)
