"""Connection: the requests of one client, started in order and answered in order.

Data path   socket -> framing -> **connection** -> framing (decode), handler -> **connection** -> socket
Owns        the order of requests and responses, when reading pauses, the two tasks that exist while there is work
Leaves      bytes to `framing`, meaning to the handlers, limits over all connections to `connection_limits` and `server`

Invariants  the first stage of one request runs at a time, in the order of arrival, also after the client disconnected:
            requests that were sent without waiting for a response (acks=0, an offset commit, LeaveGroup) are handled
            one second stage runs at a time, in the same order, and only while the client reads its responses; a slow
            reader holds one response and the write buffer, however many requests it sent
            buffers that were handed to the transport are never written to again
            after `REQUESTS_PER_TURN` requests of one client the event loop serves other clients

An idle connection has no task, no buffer and no timer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from streamhouse.broker.broker import Broker
from streamhouse.clock import Clock
from streamhouse.config import Address, KafkaSettings
from streamhouse.config.fields import peer_host
from streamhouse.errors import StreamhouseError
from streamhouse.limits import yield_to_loop
from streamhouse.model.access import Caller
from streamhouse.telemetry import RateLimitedLog
from streamhouse.wire.client_limits import ConnectionLimits, FailedLogins, Rejection, RejectionBackoff
from streamhouse.wire.kafka.api_registry import APIS
from streamhouse.wire.kafka.client_software import UNNAMED, ClientSoftware
from streamhouse.wire.kafka.connection_limits import REQUESTS_PER_TURN, ConnectionStats, InflightBytes, PinnedFrames
from streamhouse.wire.kafka.context import (
    CloseConnection,
    Context,
    HandlerResult,
    KafkaMetrics,
    PendingResponse,
    asks_as_agent,
)
from streamhouse.wire.kafka.framing import (
    SCRATCH_BYTES,
    BadFrame,
    DecodedRequest,
    FrameReader,
    encode_response,
    is_rejection,
)
from streamhouse.wire.kafka.large_messages import Encoded, LargeMessages, is_large
from streamhouse.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from streamhouse.wire.kafka.sasl.exchanges import LoginOrigin
from streamhouse.wire.kafka.sasl.login import BEFORE_LOGIN, SASL_AUTHENTICATE, TO_LOG_IN, Login, LoginFailed
from streamhouse.wire.kafka.schema import Buffer, Response
from streamhouse.wire.kafka.tenants import REFUSED, enter, leave
from streamhouse.wire.kafka.throttling import (
    charge_produced,
    charge_request,
    charge_response,
    client_of_produce,
    state_throttle,
)
from streamhouse.wire.listener import OpenListener

log = logging.getLogger(__name__)

NOBODY: Final = Caller()
"""The caller of requests that are served before a login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """State that all connections of a server share."""

    settings: KafkaSettings
    broker: Broker
    clock: Clock
    metrics: KafkaMetrics
    inflight: InflightBytes
    pinned: PinnedFrames
    large: LargeMessages
    limits: ConnectionLimits
    rejections: RejectionBackoff
    failed_logins: FailedLogins
    cluster_id: str
    connections: "dict[Connection, None]" = field(default_factory=dict)
    """In the order in which they were opened."""
    scratch: memoryview = field(default_factory=lambda: memoryview(bytearray(SCRATCH_BYTES)))
    fatal: RateLimitedLog = field(
        default_factory=lambda: RateLimitedLog(log, "connection closed after a fatal request", level=logging.INFO)
    )
    delayed: RateLimitedLog = field(
        default_factory=lambda: RateLimitedLog(log, "a client repeats rejected requests, its responses are delayed")
    )

    def admit(self, host: str) -> float | None:
        """Count a connection; returns how long its first request has to wait, or None if it is refused."""
        wait_s = self.limits.admit(host, self.broker.settings.kafka, self.clock.monotonic())
        if isinstance(wait_s, Rejection):
            self.metrics.closed(wait_s.why).inc()
            return None
        quotas = self.broker.security.quotas
        return max(wait_s, quotas.charge_connection(host)) if quotas.is_active else wait_s


class ReceivedRequest(NamedTuple):
    """A complete frame, or the error after which no further frame is read."""

    frame: bytearray | BadFrame
    at: float


class InFlightRequest(NamedTuple):
    """A request whose first stage is over; without a decoded request it is the order to close the connection."""

    decoded: DecodedRequest | None
    result: HandlerResult
    size_bytes: int
    at: float
    tenant: str = ""
    """The tenant of the caller, in whose names the response is to be."""


class RawReply(Response):
    """A message of a mechanism that goes out without a header."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def frame(self) -> bytes:
        return len(self.data).to_bytes(4, "big") + self.data


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_drained",
        "_granted_bytes",
        "_in_flight",
        "_is_admitted",
        "_is_finished",
        "_is_lost",
        "_is_reading",
        "_listener",
        "_logged_in_at",
        "_loop",
        "_outbox",
        "_reader",
        "_received",
        "_responder",
        "_retained_bytes",
        "_sent_bytes",
        "_server",
        "_stats",
        "_throttled_until",
        "_transport",
        "_unanswered",
        "_unsent_bytes",
        "_waits_for_admission",
        "_waits_for_bytes",
        "_worker",
        "advertised",
        "host",
        "login",
        "opened_at",
        "peer",
        "sends_to_every_agent",
        "software",
    )
    _transport: asyncio.Transport
    login: Login

    def __init__(self, server: ServerState, listener: OpenListener, *, is_admitted: bool = False) -> None:
        """An admitted connection was counted, and has waited for its turn, before its TLS handshake."""
        self._server = server
        self._is_admitted = is_admitted
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(server.scratch, max_bytes=server.settings.max_request_bytes)
        self._received: deque[ReceivedRequest] = deque()
        self._in_flight: deque[InFlightRequest] = deque()
        self._outbox: list[Buffer] = []
        self._worker: asyncio.Task[None] | None = None
        self._responder: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._unanswered = 0
        self._granted_bytes = 0
        self._unsent_bytes = 0
        self._retained_bytes = 0
        self._sent_bytes = 0
        self._waits_for_bytes = False
        self._waits_for_admission = False
        self._throttled_until = 0.0
        """When a client above its quota is read again, by the monotonic clock; 0: it isn't above."""
        self._logged_in_at = 0.0
        self._is_reading = True
        self._is_finished = False
        self._is_lost = False
        self.opened_at = server.clock.monotonic()
        self.software = UNNAMED
        self.sends_to_every_agent = False
        """Whether the last request was of a kind that clients send to every agent."""
        self._stats = ConnectionStats(active_at=self.opened_at)
        self.advertised = Address("", 0)
        self.host = self.peer = ""

    def __repr__(self) -> str:
        flags = {"paused": not self._is_reading, "over": self._is_finished, "lost": self._is_lost}
        state = " ".join(word for word, is_so in flags.items() if is_so)
        return f"<Connection {self.peer} unanswered={self._unanswered} {self._reader!r} {state}>"

    # --- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of `asyncio.Transport` without being one.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        server = self._server
        host, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        peer = Address(peer_host(host), port)
        self.host, self.peer = peer.host, str(peer)
        self.advertised = self._listener.spec.advertised or Address(*transport.get_extra_info("sockname")[:2])
        self.login = self._new_login(transport)
        wait_s = 0.0 if self._is_admitted else server.admit(self.host)
        if wait_s is None:
            self._is_finished = True
            transport.abort()
            return
        transport.set_write_buffer_limits(high=server.settings.write_buffer_bytes)
        server.connections[self] = None
        server.metrics.connections.inc()
        if wait_s:
            self._waits_for_admission = True
            self._update_reading()
            self._loop.call_later(wait_s, self._on_admitted)

    def _new_login(self, transport: asyncio.Transport) -> Login:
        server, spec = self._server, self._listener.spec
        login = Login(
            LoginOrigin(security=server.broker.security, host=self.host, listener=spec.name),
            server.broker.settings.security,
            server.clock,
            caller=self._unproven_caller(transport),
            is_required=spec.protocol.has_login,
        )
        if login.caller is None:
            self._reader.set_limit(server.broker.settings.security.login_request_bytes)
        return login

    @property
    def caller(self) -> Caller:
        """Who sends the requests, as far as that is known."""
        return self.login.caller or NOBODY

    def _unproven_caller(self, transport: asyncio.Transport) -> Caller:
        """Who is there without a login: the user of the client's certificate, or ANONYMOUS."""
        security, listener = self._server.broker.security, self._listener.spec.name
        encrypted = transport.get_extra_info("ssl_object")
        user = self._listener.user_of(encrypted.getpeercert()) if encrypted is not None else None
        if user is None:
            return security.anonymous(host=self.host, listener=listener)
        return security.certified(user, host=self.host, listener=listener)

    def _on_admitted(self) -> None:
        self._waits_for_admission = False
        self._stats.active_at = self._server.clock.monotonic()
        self._read_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.received(nbytes)
        self._read_on()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._server.metrics.paused("slow_reader").inc()
        self._drained = self._loop.create_future()
        self._account_unsent(self._transport.get_write_buffer_size())
        self._read_on()

    def _account_unsent(self, size_bytes: int) -> None:
        """Count bytes that a slow client has not read yet in the response budget of all clients."""
        self._unsent_bytes = self._server.broker.reader.response_budget.resize(self._unsent_bytes, size_bytes)

    def resume_writing(self) -> None:
        self._account_unsent(0)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
        self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection holds. Requests that were received and outlive their client are still handled."""
        self._is_lost = True
        self._account_unsent(0)
        server = self._server
        if self in server.connections:
            del server.connections[self]
            server.metrics.connections.dec()
            server.limits.leave(self.host)
            server.rejections.forget(self.peer)
        held, frame_bytes = self._reader.partial_bytes + self._granted_bytes, self._reader.frame_bytes
        self._reader.drop()
        self._granted_bytes = 0
        if self._responder is not None:
            self._responder.cancel()
        server.inflight.cancel(self)
        server.inflight.release(held, frame_bytes=frame_bytes)
        while self._in_flight:
            server.inflight.release(self._in_flight.popleft().size_bytes)

    # --- reading

    def granted(self, size_bytes: int) -> None:
        """Continue with the frame that waited for in-flight bytes; timeouts for the client start now."""
        self._waits_for_bytes = False
        self._granted_bytes = size_bytes
        self._read_on()

    def _admit(self, size_bytes: int) -> bool:
        if self._granted_bytes:
            self._granted_bytes = 0
            return True
        frame_bytes, grows = self._reader.frame_bytes, self._reader.is_inside_frame
        if self._server.inflight.reserve(size_bytes, self, frame_bytes=frame_bytes, grows=grows):
            return True
        self._waits_for_bytes = True
        return False

    def _may_read(self) -> bool:
        return not (
            self._waits_for_bytes
            or self._waits_for_admission
            or self._throttled_until
            or self._drained is not None
            or self._is_finished
            or self._is_lost
            or self._unanswered >= self._server.settings.max_inflight_requests
        )

    def _read_on(self) -> None:
        """Take whole frames out of the received bytes as far as the limits allow; pause or resume the socket."""
        try:
            inflight = self._server.inflight
            while (
                self._may_read()
                and (frame := self._reader.next_frame(self._admit, has_room=inflight.has_room)) is not None
            ):
                inflight.is_whole(self, frame_bytes=len(frame))
                self._enqueue_request(frame)
        except BadFrame as error:
            self._is_finished = True
            self._enqueue_request(error)
        self._reader.settle()
        self._update_reading()

    def _enqueue_request(self, frame: bytearray | BadFrame) -> None:
        now = self._server.clock.monotonic()
        self._stats.active_at = now
        self._stats.has_sent_request = True
        self._unanswered += 1
        self._received.append(ReceivedRequest(frame, now))
        if not isinstance(frame, BadFrame) and self.login.caller is not None:
            self._charge_produced(frame)
        if self._worker is None:
            self._worker = self._loop.create_task(self._process_requests(), name=f"kafka-requests-{self.peer}")

    def _charge_produced(self, frame: bytearray) -> None:
        """Count a Produce request when it has arrived: a client above its quota may have sent the next ones already,
        which must not be read."""
        security = self._server.broker.security
        if not security.quotas.is_active or (client_id := client_of_produce(frame)) is None:
            return
        if not asks_as_agent(self.caller, client_id, security):
            self._throttle(charge_produced(security.quotas, self.caller, client_id, size_bytes=len(frame)))

    def _throttle(self, wait_s: float) -> None:
        """Read nothing of the client for this long."""
        until = self._server.clock.monotonic() + wait_s
        if wait_s > 0 and until > self._throttled_until:
            if not self._throttled_until:
                self._server.metrics.paused("quota").inc()
            self._throttled_until = until
            self._loop.call_later(wait_s, self._end_throttle, until)
            self._update_reading()

    def _end_throttle(self, until: float) -> None:
        if self._throttled_until == until:
            self._throttled_until = 0.0
            self._stats.active_at = self._server.clock.monotonic()
            self._read_on()

    def _charge_response(self, decoded: DecodedRequest, response: Response) -> None:
        """Count the records of a response, and set the throttle time."""
        if (quotas := self._server.broker.security.quotas).is_active and not self._context(decoded).is_agent:
            self._throttle(charge_response(quotas, self.caller, decoded, response))
            state_throttle(response, self._throttled_until - self._server.clock.monotonic())

    def _update_reading(self) -> None:
        """Pause or resume the socket, and note since when a frame is incomplete."""
        if self._is_lost:
            return
        reading = self._may_read()
        if reading != self._is_reading:
            self._is_reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._count_pause()
                self._transport.pause_reading()
        if not reading or self._reader.is_between_frames:
            self._stats.partial_since = None
        elif self._stats.partial_since is None:
            self._stats.partial_since = self._server.clock.monotonic()

    def _count_pause(self) -> None:
        if self._waits_for_admission:
            self._server.metrics.paused("connection_rate").inc()
        elif self._waits_for_bytes:
            self._server.metrics.paused("inflight_bytes").inc()
        elif self._unanswered >= self._server.settings.max_inflight_requests:
            self._server.metrics.paused("inflight_requests").inc()

    # --- the first stage

    async def _process_requests(self) -> None:
        try:
            count = 0
            while self._received:
                self._enqueue_response(await self._start(self._received.popleft()))
                if self.login.is_over and not self._is_finished:
                    self._end_after_response()
                if (count := count + 1) % REQUESTS_PER_TURN == 0:
                    await yield_to_loop()
        except Exception:
            log.exception("response failed", extra={"peer": self.peer})
            self._fail()
        finally:
            self._worker = None

    def _end_after_response(self) -> None:
        """A login failed: close the connection once that is said."""
        self._server.metrics.closed("login_failed").inc()
        self._is_finished = True
        self._discard_received()
        self._unanswered += 1
        self._enqueue_response(InFlightRequest(None, None, 0, self._server.clock.monotonic()))

    async def _start(self, received: ReceivedRequest) -> InFlightRequest:
        """Run a request's first stage; after a fatal error no later request is started."""
        frame, at = received
        size = 0 if isinstance(frame, BadFrame) else len(frame)
        self._server.metrics.bytes_in += size
        try:
            if isinstance(frame, BadFrame):
                raise frame
            if self.login.expects_raw:
                return await self._log_in_raw(frame, at)
            self._check_logged_in(frame)
            if (decoded := self._server.large.decode_small(frame)) is not None:
                return await self._handle(decoded, frame, at)
            async with self._server.large.decode(frame) as decoded:
                return await self._handle(decoded, frame, at)
        except StreamhouseError as error:
            self._server.metrics.closed("bad_request").inc()
            self._server.fatal.write(self._server.clock.monotonic(), peer=self.peer, why=str(error))
        except Exception:
            self._server.metrics.closed("failure").inc()
            log.exception("request failed", extra={"peer": self.peer})
        self._is_finished = True
        self._discard_received()
        return InFlightRequest(None, None, size, at)

    async def _handle(self, decoded: DecodedRequest, frame: bytearray, at: float) -> InFlightRequest:
        if self._is_lost and not decoded.api.outlives_client:
            return InFlightRequest(decoded, None, len(frame), at)
        self._retained_bytes = 0
        self.sends_to_every_agent = decoded.api.goes_to_every_agent
        began = self._server.clock.monotonic()
        context = self._context(decoded)
        if tenant := context.caller.tenant:
            context = context.in_tenant(is_refused=decoded.api.key in REFUSED)
            await self._server.large.translate(enter, tenant, decoded.request)
        result = await decoded.api.handle(context, decoded.request)
        if tenant and isinstance(result, Response):
            await self._server.large.translate(leave, tenant, result)
        if decoded.api.key == SASL_AUTHENTICATE:
            self._on_login_advanced()
        if (quotas := self._server.broker.security.quotas).is_active and not context.is_agent:
            busy_s = self._server.clock.monotonic() - began
            self._throttle(charge_request(quotas, context.caller, decoded, busy_s=busy_s))
            if at < self._logged_in_at:  # it was sent before the login was over
                self._charge_produced(frame)
        is_retained = self._retained_bytes and self._server.pinned.pin(frame, retained_bytes=self._retained_bytes)
        return InFlightRequest(decoded, result, 0 if is_retained else len(frame), at, tenant)

    def _check_logged_in(self, frame: bytearray) -> None:
        """Raise before a request is decoded that the client may not send now."""
        login, key = self.login, int.from_bytes(frame[:2], "big", signed=True)
        if login.caller is None and key not in BEFORE_LOGIN:
            raise CloseConnection(f"client has not logged in; key={key}")
        if login.is_expired() and key not in TO_LOG_IN:
            raise CloseConnection(f"session has ended, client has not logged in again; key={key}")

    def _on_login_advanced(self) -> None:
        if self.login.caller is not None:
            self._reader.set_limit(self._server.settings.max_request_bytes)
            self._logged_in_at = self._logged_in_at or self._server.clock.monotonic()

    async def _log_in_raw(self, frame: bytearray, at: float) -> InFlightRequest:
        """Take a message of the mechanism that came without a header, after SaslHandshake v0."""
        decoded = DecodedRequest(APIS[SASL_AUTHENTICATE], 0, 0, 0, "", SaslAuthenticateRequest())
        try:
            reply = await self.login.advance(bytes(frame))
        except LoginFailed:
            await self._delay_failed_login()
            raise
        self._on_login_advanced()
        return InFlightRequest(decoded, RawReply(reply), len(frame), at)

    async def _delay_failed_login(self) -> None:
        server = self._server
        log.info("login failed", extra={"peer": self.peer, "mechanism": self.login.mechanism})
        await server.clock.sleep(server.failed_logins.wait_s(self.host, server.clock.monotonic()))

    def _context(self, decoded: DecodedRequest) -> Context:
        server = self._server
        return Context(
            server.broker,
            decoded.api.name,
            decoded.version,
            decoded.client_id,
            self.host,
            self.caller,
            self._listener,
            self.advertised,
            server.cluster_id,
            server.metrics,
            self._retain,
            self.software,
            self._set_software,
            self.login,
            self._delay_failed_login,
        )

    def _set_software(self, software: ClientSoftware) -> None:
        self.software = software

    def _retain(self, size_bytes: int) -> None:
        self._retained_bytes += size_bytes

    def _discard_received(self) -> None:
        """Discard all requests received after a fatal one."""
        while self._received:
            frame = self._received.popleft().frame
            self._unanswered -= 1
            self._server.inflight.release(0 if isinstance(frame, BadFrame) else len(frame))

    # --- the second stage

    def _enqueue_response(self, in_flight: InFlightRequest) -> None:
        """Send the response now if none is ahead of it and it is ready; otherwise leave it to the responder task."""
        if self._is_lost:
            self._complete(in_flight)
            return
        self._in_flight.append(in_flight)
        waits = in_flight.decoded is None or self._drained is not None or _may_wait(in_flight.result)
        if len(self._in_flight) == 1 and not waits:
            if isinstance(in_flight.result, Response) and in_flight.decoded is not None:
                self._charge_response(in_flight.decoded, in_flight.result)
            self._finish(in_flight, _encoded(in_flight))
            self._in_flight.popleft()
            self._send()
        elif self._responder is None:
            self._responder = self._loop.create_task(self._respond(), name=f"kafka-answers-{self.peer}")

    async def _respond(self) -> None:
        try:
            while self._in_flight:
                in_flight = self._in_flight[0]
                if in_flight.decoded is None:
                    break
                response = await self._response(in_flight.result)
                if in_flight.tenant and response is not None and response is not in_flight.result:
                    await self._server.large.translate(leave, in_flight.tenant, response)
                buffers, is_rejected = await self._encode(in_flight.decoded, response)
                if is_rejected:
                    await self._delay_rejection(in_flight.decoded)
                self._finish(self._in_flight[0], buffers)
                self._in_flight.popleft()
            self._send()
            if self._in_flight:
                self._transport.close()
        except Exception:
            log.exception("response failed", extra={"peer": self.peer})
            self._fail()
        finally:
            self._responder = None

    def _fail(self) -> None:
        """Close the connection after an unexpected error of the server."""
        self._server.metrics.closed("failure").inc()
        self._is_finished = True
        self._discard_received()
        self._transport.close()

    async def _response(self, result: HandlerResult) -> Response | None:
        """Wait for a response. Sends finished responses first, and waits while the client does not read."""
        if isinstance(result, PendingResponse) and result.is_ready() and self._drained is None:
            return await result.respond()
        self._send()
        while (drained := self._drained) is not None:
            await drained
        return await result.respond() if isinstance(result, PendingResponse) else result

    async def _delay_rejection(self, decoded: DecodedRequest) -> None:
        """Delay an error response to a client that repeats its request; the request's bytes are released meanwhile."""
        server, in_flight, now = self._server, self._in_flight[0], self._server.clock.monotonic()
        delay_s = server.rejections.delay_s(self.peer, received_at=in_flight.at, now=now)
        if not delay_s:
            return
        self._send()
        self._in_flight[0] = in_flight._replace(size_bytes=0)
        server.inflight.release(in_flight.size_bytes)
        server.metrics.delayed(decoded.api.name).inc()
        server.delayed.write(
            now, peer=self.peer, client=decoded.client_id, api=decoded.api.name, delay_s=round(delay_s, 3)
        )
        await server.clock.sleep(delay_s)

    async def _encode(self, decoded: DecodedRequest, response: Response | None) -> Encoded:
        if response is None:
            return Encoded([], is_rejection=False)
        if isinstance(response, RawReply):
            return Encoded([response.frame()], is_rejection=False)
        self._charge_response(decoded, response)
        if is_large(response):
            return await self._server.large.encode(decoded, response)
        return Encoded(encode_response(decoded, response), is_rejection(response))

    def _finish(self, in_flight: InFlightRequest, buffers: Sequence[Buffer]) -> None:
        assert in_flight.decoded is not None
        self._outbox += buffers
        now = self._server.clock.monotonic()
        self._stats.active_at = now
        self._server.metrics.observe(in_flight.decoded.api.name, now - in_flight.at)
        self._complete(in_flight)

    def _complete(self, in_flight: InFlightRequest) -> None:
        """Release the bytes and the slot of a request."""
        self._unanswered -= 1
        self._server.inflight.release(in_flight.size_bytes)
        if not self._is_reading:
            self._read_on()

    def _send(self) -> None:
        if not self._outbox or self._is_lost:
            return
        buffers, self._outbox = self._outbox, []
        size = sum(map(len, buffers))
        self._sent_bytes += size
        self._server.metrics.bytes_out += size
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        else:
            self._transport.writelines(buffers)

    # --- the server's side

    def stats(self) -> ConnectionStats:
        """Statistics by which the server decides whether to close the connection."""
        buffered = self._transport.get_write_buffer_size()
        self._stats.note(
            taken_bytes=self._sent_bytes - buffered,
            is_blocked=buffered > 0,
            is_busy=self._unanswered > 0
            or self._waits_for_admission
            or self._waits_for_bytes
            or self._throttled_until > 0,
            partial_bytes=self._reader.received_bytes,
            is_pressed=self._server.inflight.is_pressed(self._reader.frame_bytes),
            least_bytes_per_s=self._server.settings.min_request_bytes_per_s,
            now=self._server.clock.monotonic(),
        )
        return self._stats

    @property
    def has_pending_responses(self) -> bool:
        """Whether a stopping server has to wait for a response."""
        return (
            self._worker is not None
            or bool(self._received)
            or any(
                not isinstance(in_flight.result, PendingResponse) or in_flight.result.drain_on_stop
                for in_flight in self._in_flight
            )
        )

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [task for task in (self._worker, self._responder) if task is not None]

    def finish(self) -> None:
        """Read no further request."""
        self._is_finished = True
        self._update_reading()

    def close(self) -> None:
        """Send what is buffered, then close."""
        self._transport.close()

    def abort(self, why: str, text: str) -> None:
        """Close now, without sending what is buffered."""
        self._server.metrics.closed(why).inc()
        log.info("connection closed", extra={"peer": self.peer, "why": text})
        self._transport.abort()


def _may_wait(result: HandlerResult) -> bool:
    """Whether a result cannot be sent at once: it is pending, slow to encode, or an error that may be delayed."""
    return isinstance(result, PendingResponse) or (result is not None and (is_large(result) or is_rejection(result)))


def _encoded(in_flight: InFlightRequest) -> list[Buffer]:
    assert in_flight.decoded is not None
    if isinstance(in_flight.result, RawReply):
        return [in_flight.result.frame()]
    return encode_response(in_flight.decoded, in_flight.result) if isinstance(in_flight.result, Response) else []
