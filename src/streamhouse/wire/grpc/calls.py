"""Call runner: what surrounds every gRPC method, so that methods are plain functions.

Deadlines (also for the first message of a call), errors as status codes, limits on bytes being appended, on the rate of
calls and on concurrent calls, delayed rejections for clients that keep calling, slow readers, and the end of streams
when the agent stops. A unary method is a stream to grpc, of which one message is read: grpc itself would wait for the
message without limit, while the call counts as concurrent.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import Message

from streamhouse.clock import Clock, Ids
from streamhouse.config import GrpcSettings, is_loopback
from streamhouse.config.fields import peer_host
from streamhouse.errors import Overloaded, Rejected, Stopping, StreamhouseError, TooFast
from streamhouse.model.needs import Needs
from streamhouse.model.tenant import without_tenant
from streamhouse.telemetry import REQUEST_ID, RateLimitedLog, is_request_id, request_id
from streamhouse.tracing import HEADER, SpanKind, Tracer, parse_traceparent
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.client_limits import RejectionBackoff, TokenBuckets
from streamhouse.wire.client_throttle import ClientThrottle
from streamhouse.wire.grpc import tenants
from streamhouse.wire.grpc.decoding import decode
from streamhouse.wire.grpc.errors import code_of, metadata_of
from streamhouse.wire.grpc.metrics import GrpcMetrics

log = logging.getLogger(__name__)

REQUEST_ID_CHARS: Final = 16
RETRY_AFTER_S: Final = 0.1
"""When a call that was rejected for too many bytes in flight may be retried."""

_PER_IP: Final = "setting=grpc.max_requests_per_ip"

Q = TypeVar("Q", bound=Message)


class Call(NamedTuple):
    """Deadline and size of a message, and what its sender may do."""

    timeout_s: float
    size_bytes: int
    access: RequestAccess


class CallStatus(NamedTuple):
    """Status of a failed call."""

    code: Any
    text: str
    metadata: tuple[tuple[str, str], ...] = ()


Unary = Callable[[Q, Call], Awaitable[Message]]
"""A method with one request and one response."""

Send = Callable[[bytes], Awaitable[None]]
"""Sends one message of a stream; returns when the connection has taken it."""

Stream = Callable[[AsyncIterator[tuple[Q, Call]], Send], Awaitable[None]]
"""A method with a stream on both sides."""

Watch = Callable[[Q, Send], Awaitable[None]]
"""A method with one request and many responses."""


LogIn = Callable[[Any], Awaitable[RequestAccess]]
"""The rights of the call with this context of grpc; raises `NotAuthenticated`."""


class SlowReaderError(Exception):
    """The client did not read its messages in time."""


class LateMessageError(Exception):
    """A call has started and its message did not arrive in time."""


class TooManyCallsError(Exception):
    """The client's address has too many calls in flight."""


class CallRunner:
    """The calls of one server."""

    def __init__(
        self,
        settings: GrpcSettings,
        metrics: GrpcMetrics,
        clock: Clock,
        log_in: LogIn,
        *,
        tracer: Tracer | None = None,
    ) -> None:
        self.settings = settings
        self._tracer = tracer
        self._ids = Ids()
        self._log_in = log_in
        self.needs: dict[str, Needs] = {}
        """The rights that each method needs, by its name."""
        self._clock = clock
        self._buckets = TokenBuckets(settings.calls_per_s, clients=settings.rate_clients)
        self._rejections = RejectionBackoff(
            settings.failures_per_s, max_delay_s=settings.max_failure_delay_s, clients=settings.rate_clients
        )
        self._refused = RateLimitedLog(log, "gRPC calls refused")
        self._delayed = RateLimitedLog(log, "gRPC client keeps sending rejected calls; its rejections are delayed")
        self._by_address: Counter[str] = Counter()
        self._metrics = metrics
        self._streams: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self._inflight_bytes = 0

    def __repr__(self) -> str:
        return f"<CallRunner streams={len(self._streams)} inflight={self._inflight_bytes}>"

    def stop(self) -> None:
        """End open and new streams with `Stopping`."""
        self._stopping = True
        for task in self._streams:
            task.cancel()

    @contextmanager
    def admitted(self, size_bytes: int) -> Iterator[None]:
        """Count bytes while they are being appended; raise `Overloaded` beyond `grpc.max_inflight_bytes`."""
        limit = self.settings.max_inflight_bytes
        if self._inflight_bytes and self._inflight_bytes + size_bytes > limit:
            raise Overloaded("gRPC requests being appended", limit_bytes=limit, retry_after_s=RETRY_AFTER_S)
        self._inflight_bytes += size_bytes
        try:
            yield
        finally:
            self._inflight_bytes -= size_bytes

    # --- unary calls

    def unary(self, name: str, request_type: type[Q], method: Unary[Q], needs: Needs) -> Any:
        """A handler for grpc."""
        self.needs[name] = needs

        async def answered(messages: AsyncIterator[bytes], context: Any, timeout_s: float) -> bytes:
            # The message is in this frame alone: grpc keeps the frames of a call that failed for a while.
            access = await self._log_in(context)
            raw = await self.first_message(messages)
            throttle = self._throttle(access)
            await throttle.received(len(raw))
            request = await decode(raw, request_type)
            if tenant := access.caller.tenant:
                tenants.require_served(access.caller, name)
                tenants.enter(tenant, request)
            with access.acts(name) as acts:
                access.require_early(needs, partial(getattr, request))
                async with access.watched():
                    message = await throttle.measured(method(request, Call(timeout_s, len(raw), access)))
                acts.end()
            response = message.SerializeToString()
            if tenant:
                response = tenants.leave(tenant, name, response)
            await throttle.sent(len(response))
            return response

        async def respond(messages: AsyncIterator[bytes], context: Any) -> bytes:
            received_at, timeout_s = self._clock.monotonic(), self._timeout_s(context)
            self._identify(context)
            try:
                self._take_token(context)
                with self._counted(context), self._traced(name, context):
                    async with asyncio.timeout(timeout_s) as timer:
                        response = await answered(messages, context, timeout_s)
            except TimeoutError as error:
                status = _timed_out(timeout_s) if timer.expired() else _status_of(error, name)
            except Exception as error:  # noqa: BLE001 (_status_of logs unexpected errors)
                status = _status_of(error, name)
            else:
                self._metrics.ended(name, grpc.StatusCode.OK)
                return self._count_sent(response)
            await self._abort(context, name, status, received_at)
            raise AssertionError("an aborted call goes no further")

        return grpc.stream_unary_rpc_method_handler(respond)

    async def first_message(self, messages: AsyncIterator[bytes]) -> bytes:
        """Return the first message; raise `LateMessageError` after `grpc.default_timeout_s`, even before the client's
        deadline."""
        try:
            async with asyncio.timeout(self.settings.default_timeout_s) as timer:
                iterator = aiter(messages)
                raw = await anext(iterator, None)
                if isinstance(iterator, AsyncGenerator):
                    await iterator.aclose()  # its frame has the message, and grpc keeps it
        except TimeoutError:
            if timer.expired():
                raise LateMessageError from None
            raise
        if raw is None:
            raise Rejected("the call has no message")
        self._metrics.received_bytes.inc(len(raw))
        return raw

    def _timeout_s(self, context: Any) -> float:
        """Return what is left of the client's deadline, or `grpc.default_timeout_s`."""
        remaining: float | None = context.time_remaining()
        return self.settings.default_timeout_s if remaining is None else max(0.0, remaining)

    # --- streams

    def stream(self, name: str, request_type: type[Q], method: Stream[Q], needs: Needs) -> Any:
        """A handler for grpc. The method checks the rights that each message needs."""
        self.needs[name] = needs

        async def run(requests: AsyncIterator[bytes], context: Any) -> None:
            async def work() -> None:
                async with asyncio.timeout(self.settings.default_timeout_s):
                    access = await self._log_in(context)
                throttle = self._throttle(access)
                async with access.watched():
                    received = self._received(requests, context, request_type, access, throttle)
                    send = self._sender(context, throttle)
                    if tenant := access.caller.tenant:
                        send = _sender_in_tenant(tenant, name, send)
                    await throttle.measured(method(received, send))

            await self._run(name, context, work)

        return grpc.stream_stream_rpc_method_handler(run)

    def watch(self, name: str, request_type: type[Q], method: Watch[Q]) -> Any:
        """A handler for grpc, of a method with one request and many responses."""

        async def run(messages: AsyncIterator[bytes], context: Any) -> None:
            async def work() -> None:
                self._take_token(context)
                request = await decode(await self.first_message(messages), request_type)
                await method(request, self._sender(context, None))

            await self._run(name, context, work)

        return grpc.stream_stream_rpc_method_handler(run)

    async def _run(self, name: str, context: Any, work: Callable[[], Awaitable[None]]) -> None:
        task, received_at = asyncio.current_task(), self._clock.monotonic()
        assert task is not None
        self._identify(context)
        self._streams.add(task)
        self._metrics.streams.inc()
        try:
            if self._stopping:
                raise Stopping("the agent is stopping")
            with self._counted(context), self._traced(name, context):
                await work()
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            task.uncancel()
            status = _status_of(Stopping("the agent is stopping"), name)
        except Exception as error:  # noqa: BLE001 (_status_of logs unexpected errors)
            status = _status_of(error, name)
        else:
            return self._metrics.ended(name, grpc.StatusCode.OK)
        finally:
            self._streams.discard(task)
            self._metrics.streams.dec()
        await self._abort(context, name, status, received_at)

    async def _received(
        self,
        requests: AsyncIterator[bytes],
        context: Any,
        request_type: type[Q],
        access: RequestAccess,
        throttle: ClientThrottle,
    ) -> AsyncIterator[tuple[Q, Call]]:
        limit_s = self.settings.default_timeout_s
        async for raw in requests:
            self._metrics.received_bytes.inc(len(raw))
            while wait_s := self._wait_s(context):
                await self._clock.sleep(wait_s)
            await throttle.received(len(raw))
            remaining: float | None = context.time_remaining()
            timeout_s = limit_s if remaining is None else max(0.0, min(limit_s, remaining))
            request = await decode(raw, request_type)
            if tenant := access.caller.tenant:
                tenants.enter(tenant, request)
            yield request, Call(timeout_s, len(raw), access)

    def _sender(self, context: Any, throttle: ClientThrottle | None) -> Send:
        sending = asyncio.Lock()

        async def send(message: bytes) -> None:
            if throttle is not None:
                await throttle.sent(len(message))
            try:
                async with sending, asyncio.timeout(self.settings.slow_reader_timeout_s):
                    await context.write(self._count_sent(message))
            except TimeoutError:
                raise SlowReaderError from None

        return send

    # --- both

    def _throttle(self, access: RequestAccess) -> ClientThrottle:
        return ClientThrottle(access.quotas, access.caller, self._clock, client_id=access.client_id)

    @contextmanager
    def _counted(self, context: Any) -> Iterator[None]:
        """Count a call in flight; raise `TooManyCallsError` if its address has too many."""
        client, limit = client_of(context.peer()), self.settings.max_requests_per_ip
        if self._by_address[client] >= limit and not is_loopback(host_of(client)):
            self._refused.write(self._clock.monotonic(), client=client, why=f"limit={limit} {_PER_IP}")
            raise TooManyCallsError
        self._by_address[client] += 1
        try:
            yield
        finally:
            self._by_address[client] -= 1
            if not self._by_address[client]:
                del self._by_address[client]

    def _identify(self, context: Any) -> None:
        """Give the call an id, the client's if it sent one."""
        known = metadata_value(context, REQUEST_ID)
        request_id.set(known if is_request_id(known) else self._ids.token()[:REQUEST_ID_CHARS])

    @contextmanager
    def _traced(self, name: str, context: Any) -> Iterator[None]:
        """A span for the call, below the client's."""
        if self._tracer is None:
            yield
            return
        attributes = {"rpc.system": "grpc", "rpc.method": name, "streamhouse.request_id": request_id.get()}
        parent = parse_traceparent(metadata_value(context, HEADER))
        with self._tracer.span(f"streamhouse.v1/{name}", parent, kind=SpanKind.SERVER, attributes=attributes):
            yield

    def _wait_s(self, context: Any) -> float:
        """Return how long until the client may call; 0 takes a token."""
        return self._buckets.take(client_of(context.peer()), self._clock.monotonic())

    def _take_token(self, context: Any) -> None:
        if wait_s := self._wait_s(context):
            raise TooFast("gRPC calls", per_s=self.settings.calls_per_s, retry_after_s=wait_s)

    async def _delay_rejection(self, context: Any, name: str, received_at: float) -> None:
        """Delay the rejection of a client that keeps sending rejected calls."""
        peer, now = context.peer(), self._clock.monotonic()
        if not self._stopping and (delay_s := self._rejections.delay_s(peer, received_at=received_at, now=now)):
            self._metrics.delayed.inc()
            self._delayed.write(now, peer=peer, method=name, delay_s=round(delay_s, 3))
            await self._clock.sleep(delay_s)

    def _count_sent(self, message: bytes) -> bytes:
        self._metrics.sent_bytes.inc(len(message))
        return message

    async def _abort(self, context: Any, name: str, status: CallStatus, received_at: float) -> None:
        self._metrics.ended(name, status.code)
        await self._delay_rejection(context, name, received_at)
        text = without_tenant(tenant, status.text) if (tenant := tenants.TENANT.get()) else status.text
        await context.abort(status.code, text, (*status.metadata, (REQUEST_ID, request_id.get())))


def _sender_in_tenant(tenant: str, name: str, send: Send) -> Send:
    """Sends messages of a stream as the tenant's users see them."""

    async def send_shown(message: bytes) -> None:
        await send(tenants.leave(tenant, name, message))

    return send_shown


def metadata_value(context: Any, name: str) -> str:
    """The first value of the client's metadata with this name; empty without one."""
    for key, value in context.invocation_metadata() or ():
        if key == name and isinstance(value, str):
            return value
    return ""


def client_of(peer: str) -> str:
    """The address in grpc's `ipv4:127.0.0.1:5000` or `ipv6:[::1]:5000`, without the port."""
    return peer.rpartition(":")[0]


def host_of(client: str) -> str:
    """The same without the kind of address; newer versions of grpc percent-encode the brackets."""
    return peer_host(unquote(client.partition(":")[2]).strip("[]"))


def _timed_out(timeout_s: float) -> CallStatus:
    return CallStatus(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer in time; timeout_s={timeout_s:g}")


def _status_of(error: BaseException, name: str) -> CallStatus:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, StreamhouseError):
        return CallStatus(code_of(error), str(error), metadata_of(error))
    if isinstance(error, SlowReaderError):
        return CallStatus(
            grpc.StatusCode.RESOURCE_EXHAUSTED, "the client took nothing for too long; see grpc.slow_reader_timeout_s"
        )
    if isinstance(error, TooManyCallsError):
        return CallStatus(grpc.StatusCode.RESOURCE_EXHAUSTED, f"too many calls of one address at once; {_PER_IP}")
    if isinstance(error, LateMessageError):
        return CallStatus(
            grpc.StatusCode.DEADLINE_EXCEEDED, "the call's message did not come; see grpc.default_timeout_s"
        )
    log.error("call failed", extra={"method": name, "why": repr(error)}, exc_info=error)
    return CallStatus(grpc.StatusCode.INTERNAL, "the agent failed; see its log")
