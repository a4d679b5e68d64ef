"""Connection: the requests of one client, begun in order and answered in order.

Data path   socket -> framing -> **connection** -> exchange, handler -> **connection** -> socket
Owns        the order of requests and answers, when reading pauses, the two tasks that exist while there is work
Leaves      bytes to `framing`, meaning to the handlers, limits over all connections to `inflight` and `server`

Invariants  one request's first stage at a time, in the order of arrival, also after the client has gone: what it
            sent without waiting for an answer (acks=0, a commit, its leaving of a group) is done all the same
            one second stage at a time, in the same order, and only while the client takes its answers, so that a slow
            reader holds one answer and the write buffer, however much it asked for
            buffers that were handed to the transport are never written again
            however much one client sends, others have their turn after `REQUESTS_PER_TURN` of its requests

An idle connection has no task, no buffer and no timer.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from streamhouse.broker.broker import Broker
from streamhouse.clock import Clock
from streamhouse.config import Address, KafkaSettings
from streamhouse.errors import StreamhouseError
from streamhouse.limits import YieldToLoop
from streamhouse.telemetry import Seldom
from streamhouse.wire.client_limits import ConnectionLimits, Rejection, RejectionBackoff
from streamhouse.wire.kafka.client_software import UNNAMED, ClientSoftware
from streamhouse.wire.kafka.connection_limits import REQUESTS_PER_TURN, ConnectionStats, InflightBytes, PinnedFrames
from streamhouse.wire.kafka.context import Context, HandlerResult, KafkaMetrics, PendingResponse
from streamhouse.wire.kafka.framing import (
    SCRATCH_BYTES,
    BadFrame,
    DecodedRequest,
    FrameReader,
    encode_response,
    is_rejection,
)
from streamhouse.wire.kafka.large_messages import Encoded, LargeMessages, is_large
from streamhouse.wire.kafka.schema import Buffer, Response

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """What all connections of a server share."""

    settings: KafkaSettings
    broker: Broker
    clock: Clock
    metrics: KafkaMetrics
    inflight: InflightBytes
    pinned: PinnedFrames
    large: LargeMessages
    admission: ConnectionLimits
    failures: RejectionBackoff
    advertised: Address | None
    cluster_id: str
    connections: "set[Connection]" = field(default_factory=set)
    scratch: memoryview = field(default_factory=lambda: memoryview(bytearray(SCRATCH_BYTES)))
    fatal: Seldom = field(default_factory=lambda: Seldom(log, "connection refused to go on", level=logging.INFO))
    delayed: Seldom = field(
        default_factory=lambda: Seldom(log, "a client asks for the same without end, its refusals are delayed")
    )


class ReceivedRequest(NamedTuple):
    """A whole request, or why there will be no further one."""

    frame: bytearray | BadFrame
    at: float


class InFlightRequest(NamedTuple):
    """A request whose first stage is over; without an exchange it is the order to close the connection."""

    exchange: DecodedRequest | None
    answer: HandlerResult
    size_bytes: int
    at: float


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_answers",
        "_arrived",
        "_drained",
        "_granted_bytes",
        "_held_bytes",
        "_is_lost",
        "_is_over",
        "_is_reading",
        "_kept_bytes",
        "_loop",
        "_outbox",
        "_reader",
        "_responder",
        "_sent_bytes",
        "_serving",
        "_transport",
        "_unanswered",
        "_vitals",
        "_waits_for_bytes",
        "_waits_for_turn",
        "_worker",
        "advertised",
        "asks_every_agent",
        "host",
        "opened_at",
        "peer",
        "software",
    )
    _transport: asyncio.Transport

    def __init__(self, serving: ServerState) -> None:
        self._serving = serving
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(serving.scratch, max_bytes=serving.settings.max_request_bytes)
        self._arrived: deque[ReceivedRequest] = deque()
        self._answers: deque[InFlightRequest] = deque()
        self._outbox: list[Buffer] = []
        self._worker: asyncio.Task[None] | None = None
        self._responder: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._unanswered = 0
        self._granted_bytes = 0
        self._held_bytes = 0
        self._kept_bytes = 0
        self._sent_bytes = 0
        self._waits_for_bytes = False
        self._waits_for_turn = False
        self._is_reading = True
        self._is_over = False
        self._is_lost = False
        self.opened_at = serving.clock.monotonic()
        self.software = UNNAMED
        self.asks_every_agent = False
        """Whether the last request was one that clients make to every agent."""
        self._vitals = ConnectionStats(active_at=self.opened_at)
        self.advertised = Address("", 0)
        self.host = self.peer = ""

    def __repr__(self) -> str:
        flags = {"paused": not self._is_reading, "over": self._is_over, "lost": self._is_lost}
        state = " ".join(word for word, is_so in flags.items() if is_so)
        return f"<Connection {self.peer} unanswered={self._unanswered} {self._reader!r} {state}>"

    # --- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of `asyncio.Transport` without being one.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        serving = self._serving
        peer = Address(*(transport.get_extra_info("peername") or ("?", 0))[:2])
        self.host, self.peer = peer.host, str(peer)
        self.advertised = serving.advertised or Address(*transport.get_extra_info("sockname")[:2])
        wait_s = serving.admission.enter(self.host, serving.broker.settings.kafka, serving.clock.monotonic())
        if isinstance(wait_s, Rejection):
            self._is_over = True
            serving.metrics.closed(wait_s.why).inc()
            transport.abort()
            return
        transport.set_write_buffer_limits(high=serving.settings.write_buffer_bytes)
        serving.connections.add(self)
        serving.metrics.connections.inc()
        if wait_s:
            self._waits_for_turn = True
            self._follow()
            self._loop.call_later(wait_s, self._has_turn)

    def _has_turn(self) -> None:
        self._waits_for_turn = False
        self._vitals.active_at = self._serving.clock.monotonic()
        self._read_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.received(nbytes)
        self._read_on()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._serving.metrics.paused("slow_reader").inc()
        self._drained = self._loop.create_future()
        self._hold(self._transport.get_write_buffer_size())
        self._read_on()

    def _hold(self, size_bytes: int) -> None:
        """What a slow client has not taken counts among the answers of all, so that those to come are smaller."""
        self._held_bytes = self._serving.broker.reader.answers.resize(self._held_bytes, size_bytes)

    def resume_writing(self) -> None:
        self._hold(0)
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
        self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: what waits for it ends; what it produced is appended all the same."""
        self._is_lost = True
        self._hold(0)
        serving = self._serving
        if self in serving.connections:
            serving.connections.discard(self)
            serving.metrics.connections.dec()
            serving.admission.leave(self.host)
            serving.failures.forget(self.peer)
        held, frame_bytes = self._reader.partial_bytes + self._granted_bytes, self._reader.frame_bytes
        self._reader.drop()
        self._granted_bytes = 0
        if self._responder is not None:
            self._responder.cancel()
        serving.inflight.forget(self)
        serving.inflight.give_back(held, frame_bytes=frame_bytes)
        while self._answers:
            serving.inflight.give_back(self._answers.popleft().size_bytes)

    # --- reading

    def granted(self, size_bytes: int) -> None:
        """Bytes came free for the frame that was held back; only from now on is its client to be waited for."""
        self._waits_for_bytes = False
        self._granted_bytes = size_bytes
        self._read_on()

    def _admit(self, size_bytes: int) -> bool:
        if self._granted_bytes:
            self._granted_bytes = 0
            return True
        frame_bytes, grows = self._reader.frame_bytes, self._reader.is_inside_frame
        if self._serving.inflight.take(size_bytes, self, frame_bytes=frame_bytes, grows=grows):
            return True
        self._waits_for_bytes = True
        return False

    def _may_read(self) -> bool:
        return not (
            self._waits_for_bytes
            or self._waits_for_turn
            or self._drained is not None
            or self._is_over
            or self._is_lost
            or self._unanswered >= self._serving.settings.max_inflight_requests
        )

    def _read_on(self) -> None:
        """Take whole frames out of what was received, as far as the limits allow, and let the socket follow."""
        try:
            while self._may_read() and (frame := self._reader.next_frame(self._admit)) is not None:
                self._serving.inflight.is_whole(self, frame_bytes=len(frame))
                self._arrive(frame)
        except BadFrame as error:
            self._is_over = True
            self._arrive(error)
        self._reader.settle()
        self._follow()

    def _arrive(self, frame: bytearray | BadFrame) -> None:
        now = self._serving.clock.monotonic()
        self._vitals.active_at = now
        self._vitals.has_asked = True
        self._unanswered += 1
        self._arrived.append(ReceivedRequest(frame, now))
        if self._worker is None:
            self._worker = self._loop.create_task(self._work(), name=f"kafka-requests-{self.peer}")

    def _follow(self) -> None:
        """Pause or resume the socket, and note since when the client owes the rest of a frame."""
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
            self._vitals.partial_since = None
        elif self._vitals.partial_since is None:
            self._vitals.partial_since = self._serving.clock.monotonic()

    def _count_pause(self) -> None:
        if self._waits_for_turn:
            self._serving.metrics.paused("connection_rate").inc()
        elif self._waits_for_bytes:
            self._serving.metrics.paused("inflight_bytes").inc()
        elif self._unanswered >= self._serving.settings.max_inflight_requests:
            self._serving.metrics.paused("inflight_requests").inc()

    # --- the first stage

    async def _work(self) -> None:
        try:
            count = 0
            while self._arrived:
                self._owe(await self._begin(self._arrived.popleft()))
                if (count := count + 1) % REQUESTS_PER_TURN == 0:
                    await YieldToLoop()
        except Exception:
            log.exception("answer failed", extra={"peer": self.peer})
            self._fail()
        finally:
            self._worker = None

    async def _begin(self, arrived: ReceivedRequest) -> InFlightRequest:
        """Run a request's first stage; whatever goes wrong with it, later ones are not begun."""
        frame, at = arrived
        size = 0 if isinstance(frame, BadFrame) else len(frame)
        self._serving.metrics.bytes_in.inc(size)
        try:
            if isinstance(frame, BadFrame):
                raise frame
            if (exchange := self._serving.large.open_small(frame)) is not None:
                return await self._handle(exchange, frame, at)
            async with self._serving.large.open(frame) as exchange:
                return await self._handle(exchange, frame, at)
        except StreamhouseError as error:
            self._serving.metrics.closed("bad_request").inc()
            self._serving.fatal.write(self._serving.clock.monotonic(), peer=self.peer, why=str(error))
        except Exception:
            self._serving.metrics.closed("failure").inc()
            log.exception("request failed", extra={"peer": self.peer})
        self._is_over = True
        self._forget_arrived()
        return InFlightRequest(None, None, size, at)

    async def _handle(self, exchange: DecodedRequest, frame: bytearray, at: float) -> InFlightRequest:
        if self._is_lost and not exchange.api.outlives_client:
            return InFlightRequest(exchange, None, len(frame), at)
        self._kept_bytes = 0
        self.asks_every_agent = exchange.api.goes_to_every_agent
        answer = await exchange.api.handle(self._context(exchange), exchange.request)
        is_kept = self._kept_bytes and self._serving.pinned.keep(frame, kept_bytes=self._kept_bytes)
        return InFlightRequest(exchange, answer, 0 if is_kept else len(frame), at)

    def _context(self, exchange: DecodedRequest) -> Context:
        serving = self._serving
        return Context(
            serving.broker,
            exchange.api.name,
            exchange.version,
            exchange.client_id,
            self.host,
            self.advertised,
            serving.cluster_id,
            serving.metrics,
            self._keeps,
            self.software,
            self._set_software,
        )

    def _set_software(self, software: ClientSoftware) -> None:
        self.software = software

    def _keeps(self, size_bytes: int) -> None:
        self._kept_bytes += size_bytes

    def _forget_arrived(self) -> None:
        """Nothing of what was sent after a fatal request is begun."""
        while self._arrived:
            frame = self._arrived.popleft().frame
            self._unanswered -= 1
            self._serving.inflight.give_back(0 if isinstance(frame, BadFrame) else len(frame))

    # --- the second stage

    def _owe(self, begun: InFlightRequest) -> None:
        """Answer at once where nothing is ahead and nothing to wait for; else let the responder do it in its turn."""
        if self._is_lost:
            self._settle(begun)
            return
        self._answers.append(begun)
        waits = begun.exchange is None or self._drained is not None or _may_wait(begun.answer)
        if len(self._answers) == 1 and not waits:
            self._put(begun, _encoded(begun))
            self._answers.popleft()
            self._send()
        elif self._responder is None:
            self._responder = self._loop.create_task(self._respond(), name=f"kafka-answers-{self.peer}")

    async def _respond(self) -> None:
        try:
            while self._answers:
                begun = self._answers[0]
                if begun.exchange is None:
                    break
                response = await self._response(begun.answer)
                buffers, refuses = await self._encode(begun.exchange, response)
                if refuses:
                    await self._hold_back(begun.exchange)
                self._put(self._answers[0], buffers)
                self._answers.popleft()
            self._send()
            if self._answers:
                self._transport.close()
        except Exception:
            log.exception("answer failed", extra={"peer": self.peer})
            self._fail()
        finally:
            self._responder = None

    def _fail(self) -> None:
        """A bug of ours: end the connection, which the client notices."""
        self._serving.metrics.closed("failure").inc()
        self._is_over = True
        self._forget_arrived()
        self._transport.close()

    async def _response(self, answer: HandlerResult) -> Response | None:
        """Wait for an answer; what is ready before it leaves first, and a client that takes nothing gets no more."""
        if isinstance(answer, PendingResponse) and answer.is_ready() and self._drained is None:
            return await answer.respond()
        self._send()
        while (drained := self._drained) is not None:
            await drained
        return await answer.respond() if isinstance(answer, PendingResponse) else answer

    async def _hold_back(self, exchange: DecodedRequest) -> None:
        """Keep a refusal from a client that asks again and again; its request's bytes are free meanwhile."""
        serving, begun, now = self._serving, self._answers[0], self._serving.clock.monotonic()
        delay_s = serving.failures.delay_s(self.peer, asked_at=begun.at, now=now)
        if not delay_s:
            return
        self._send()
        self._answers[0] = begun._replace(size_bytes=0)
        serving.inflight.give_back(begun.size_bytes)
        serving.metrics.delayed(exchange.api.name).inc()
        serving.delayed.write(
            now, peer=self.peer, client=exchange.client_id, api=exchange.api.name, delay_s=round(delay_s, 3)
        )
        await serving.clock.sleep(delay_s)

    async def _encode(self, exchange: DecodedRequest, response: Response | None) -> Encoded:
        if response is None:
            return Encoded([], is_refusal=False)
        if is_large(response):
            return await self._serving.large.encode(exchange, response)
        return Encoded(encode_response(exchange, response), is_rejection(response))

    def _put(self, begun: InFlightRequest, buffers: Sequence[Buffer]) -> None:
        assert begun.exchange is not None
        self._outbox += buffers
        now = self._serving.clock.monotonic()
        self._vitals.active_at = now
        self._serving.metrics.seconds_of(begun.exchange.api.name).observe(now - begun.at)
        self._settle(begun)

    def _settle(self, begun: InFlightRequest) -> None:
        """The request is over; its bytes and its place are free."""
        self._unanswered -= 1
        self._serving.inflight.give_back(begun.size_bytes)
        if not self._is_reading:
            self._read_on()

    def _send(self) -> None:
        if not self._outbox or self._is_lost:
            return
        buffers, self._outbox = self._outbox, []
        size = sum(map(len, buffers))
        self._sent_bytes += size
        self._serving.metrics.bytes_out.inc(size)
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        else:
            self._transport.writelines(buffers)

    # --- the server's side

    def vitals(self) -> ConnectionStats:
        """How the connection does, for whoever decides that it has to go."""
        buffered = self._transport.get_write_buffer_size()
        self._vitals.note(
            taken_bytes=self._sent_bytes - buffered,
            is_blocked=buffered > 0,
            is_busy=self._unanswered > 0 or self._waits_for_turn or self._waits_for_bytes,
            partial_bytes=self._reader.received_bytes,
            is_pressed=self._serving.inflight.is_pressed(self._reader.frame_bytes),
            least_bytes_per_s=self._serving.settings.min_request_bytes_per_s,
            now=self._serving.clock.monotonic(),
        )
        return self._vitals

    @property
    def owes(self) -> bool:
        """Whether an answer is under way that a stopping server waits for."""
        return (
            self._worker is not None
            or bool(self._arrived)
            or any(not isinstance(begun.answer, PendingResponse) or begun.answer.owed for begun in self._answers)
        )

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [task for task in (self._worker, self._responder) if task is not None]

    def finish(self) -> None:
        """Read no further request."""
        self._is_over = True
        self._follow()

    def close(self) -> None:
        """Send what is written, then end."""
        self._transport.close()

    def abort(self, why: str, text: str) -> None:
        """End now, whatever is under way."""
        self._serving.metrics.closed(why).inc()
        log.info("connection closed", extra={"peer": self.peer, "why": text})
        self._transport.abort()


def _may_wait(answer: HandlerResult) -> bool:
    """Whether an answer may not be ready to be sent: it is still owed, takes long to encode, or is a refusal, which may
    have to be held back."""
    return isinstance(answer, PendingResponse) or (answer is not None and (is_large(answer) or is_rejection(answer)))


def _encoded(begun: InFlightRequest) -> list[Buffer]:
    assert begun.exchange is not None
    return encode_response(begun.exchange, begun.answer) if isinstance(begun.answer, Response) else []
