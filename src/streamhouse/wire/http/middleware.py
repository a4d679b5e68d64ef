"""Middleware of the HTTP port: request limits, the rules for browsers, and metrics.

Data path   server -> **middleware** -> router of the app
Owns        the limits of concurrent requests and of requests per second, delays of repeated errors, metrics, the id
            and the span of a request
Leaves      single operations to `endpoint`

A page of another site must not use a browser to reach an agent on its user's machine or network:
 - a request that changes something and names an Origin must come from the agent's own pages;
 - on a loopback address only names of this machine are accepted, so that no other name can be made to point here
   (DNS rebinding). `http.allowed_hosts` adds further names.
"""

import ipaddress
import logging
import math
from collections.abc import Awaitable, Callable, Collection
from functools import cache, lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamhouse.clock import Clock, Ids, SystemClock
from streamhouse.config import HttpSettings
from streamhouse.telemetry import REQUEST_ID, RateLimitedLog, is_request_id, request_id
from streamhouse.tracing import HEADER, Span, SpanKind, Tracer, parse_traceparent
from streamhouse.wire.client_limits import RejectionBackoff, TokenBuckets
from streamhouse.wire.http.errors import AmbiguousLength, ForeignOrigin, TooManyRequests, error_response
from streamhouse.wire.http.request_body import RequestBodies

_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class HttpMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        requests = Counter(
            "streamhouse_http_requests", "requests answered", ["method", "route", "status"], registry=registry
        )
        self.bytes_in = Counter("streamhouse_http_received_bytes", "bytes of bodies of requests", registry=registry)
        self.bytes_out = Counter("streamhouse_http_sent_bytes", "bytes of bodies of answers", registry=registry)
        self.busy = Gauge("streamhouse_http_requests_active", "requests being answered, streams too", registry=registry)
        self.streams = Gauge("streamhouse_http_streams", "open streams of records", registry=registry)
        self.delayed_connections = Counter(
            "streamhouse_http_delayed_connections", "connections that waited for their turn", registry=registry
        )
        self.delayed = Counter(
            "streamhouse_http_delayed_refusals",
            "refusals that were held back because the client retries without a pause",
            registry=registry,
        )
        self.seconds = Histogram(
            "streamhouse_http_request_seconds",
            "time from a request to the start of its answer, long polls included",
            ["method"],
            registry=registry,
            buckets=_BUCKETS_S,
        )
        cut = Counter("streamhouse_http_cut", "clients that were cut off", ["why"], registry=registry)
        self.answered = cache(lambda method, route, status: requests.labels(method, route, status))
        self.cut = cache(lambda why: cut.labels(why))


log = logging.getLogger(__name__)

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
METHODS: Final = SAFE | {"POST", "PUT", "PATCH", "DELETE"}
UNMATCHED: Final = "unmatched"
REJECTED: Final = 400
SERVER_ERROR: Final = 500
REQUEST_ID_CHARS: Final = 16
PROBES: Final = frozenset({"/health/live", "/health/ready"})
"""Answered however many requests there are: what restarts agents that don't answer would otherwise do so for slow
clients."""
TOO_MANY_REQUESTS: Final = 429
"""Never delayed: there are too many concurrent requests already, and the response says when to retry."""


class RequestLimits:
    def __init__(
        self,
        app: ASGIApp,
        settings: HttpSettings,
        metrics: HttpMetrics,
        *,
        bodies: RequestBodies,
        clock: Clock | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self.app = app
        self._bodies = bodies
        self._ids = Ids()
        self._tracer = tracer
        self.clock = clock or SystemClock()
        self._rejections = RejectionBackoff(
            settings.failures_per_s, max_delay_s=settings.max_failure_delay_s, clients=settings.rate_clients
        )
        self._delayed = RateLimitedLog(
            log, "a client repeats a rejected request without a pause, its error responses are delayed"
        )
        self._limit = settings.max_requests
        self.metrics = metrics
        self._hosts = frozenset(part.strip().lower() for part in settings.allowed_hosts.split(",") if part.strip())
        if settings.advertise:
            self._hosts |= {host_of(settings.advertise)}
        self._per_s = settings.requests_per_s
        self._buckets = TokenBuckets(settings.requests_per_s, clients=settings.rate_clients)
        self._busy = 0

    def __repr__(self) -> str:
        return f"<RequestLimits busy={self._busy}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        received_at = self.clock.monotonic()
        known = header_of(scope, REQUEST_ID)
        request_id.set(known if is_request_id(known) else self._ids.token()[:REQUEST_ID_CHARS])

        async def refuse() -> None:
            await self._hold_back(scope, received_at)

        seen = _RequestMeter(scope, receive, send, self.metrics, refuse, self.clock)
        self._busy += 1
        self.metrics.busy.set(self._busy)
        try:
            await (self._admit(scope, seen) if self._tracer is None else self._traced(self._tracer, scope, seen))
        finally:
            self._busy -= 1
            self.metrics.busy.set(self._busy)
            seen.count()

    def stop(self) -> None:
        """Respond to requests whose bodies aren't complete, instead of waiting for the rest."""
        self._bodies.stop()

    async def _traced(self, tracer: Tracer, scope: Scope, seen: "_RequestMeter") -> None:
        parent = parse_traceparent(header_of(scope, HEADER))
        with tracer.span(scope["method"], parent, kind=SpanKind.SERVER) as span:
            seen.span = span
            await self._admit(scope, seen)
            if span is not None:
                route = route_of(scope.get("endpoint"))
                span.name = f"{scope['method']} {route}"
                span.attributes = {
                    "http.request.method": scope["method"],
                    "http.route": route,
                    "http.response.status_code": seen.status,
                    "streamhouse.request_id": request_id.get(),
                }
                span.error = f"HTTP {seen.status}" if seen.status >= SERVER_ERROR else ""

    async def _admit(self, scope: Scope, seen: "_RequestMeter") -> None:
        try:
            if scope["path"] not in PROBES:
                self._check_concurrency()
                self._check_rate(scope)
            check_framing(scope)
            check_browser(scope, self._hosts)
        except (TooManyRequests, AmbiguousLength, ForeignOrigin) as refused:
            await error_response(refused)(scope, seen.receive, seen.send)
        else:
            await self.app(scope, seen.receive, seen.send)

    async def _hold_back(self, scope: Scope, received_at: float) -> None:
        """Delay an error response to a client that retries without a pause."""
        if (client := scope.get("client")) is None:
            return
        peer, now = f"{client[0]}:{client[1]}", self.clock.monotonic()
        if delay_s := self._rejections.delay_s(peer, received_at=received_at, now=now):
            self.metrics.delayed.inc()
            self._delayed.write(now, peer=peer, method=scope["method"], path=scope["path"], delay_s=round(delay_s, 3))
            await self.clock.sleep(delay_s)

    def _check_concurrency(self) -> None:
        if self._busy > self._limit:
            raise TooManyRequests(f"too many requests at once; limit={self._limit} setting=http.max_requests")

    def _check_rate(self, scope: Scope) -> None:
        client = scope.get("client")
        wait_s = self._buckets.take(client[0], self.clock.monotonic()) if client else 0.0
        if wait_s:
            raise TooManyRequests(
                f"too many requests in a second; limit={self._per_s:g} setting=http.requests_per_s",
                retry_after_s=math.ceil(wait_s),
            )


class _RequestMeter:
    """Counts bytes and status of one request."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        metrics: HttpMetrics,
        refuse: Callable[[], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._scope, self._receive, self._send, self._refuse = scope, receive, send, refuse
        self._metrics = metrics
        self._clock = clock
        self._began_at = clock.monotonic()
        self.span: Span | None = None
        self.status = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if body := message.get("body"):
            self._metrics.bytes_in.inc(len(body))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._observe()
            message["headers"] = [*message.get("headers", ()), (REQUEST_ID.encode(), request_id.get().encode())]
            if self.status >= REJECTED and self.status != TOO_MANY_REQUESTS:
                await self._refuse()
        elif body := message.get("body"):
            self._metrics.bytes_out.inc(len(body))
        await self._send(message)

    def _observe(self) -> None:
        exemplar = None if self.span is None else {"trace_id": self.span.context.trace_id}
        seconds = self._clock.monotonic() - self._began_at
        self._metrics.seconds.labels(self._method).observe(seconds, exemplar)

    @property
    def _method(self) -> str:
        method = self._scope["method"]
        return method if method in METHODS else "other"

    def count(self) -> None:
        route = route_of(self._scope.get("endpoint"))
        self._metrics.answered(self._method, route, self.status).inc()


def header_of(scope: Scope, name: str) -> str:
    """The first value of a header; empty without one."""
    raw_name = name.encode()
    return next((value.decode("latin-1") for known, value in scope["headers"] if known == raw_name), "")


def route_of(endpoint: Any) -> str:
    """The metric label of a request: the declared path, never the requested one."""
    return str(getattr(endpoint, "path", None) or getattr(endpoint, "__name__", UNMATCHED))


def check_framing(scope: Scope) -> None:
    """Raise `AmbiguousLength` if two headers give the length of the body: a proxy could use the other one and take the
    rest of the body for another client's request (request smuggling)."""
    names = [name for name, _ in scope["headers"]]
    if b"content-length" in names and b"transfer-encoding" in names:
        raise AmbiguousLength("a body has a content-length or a transfer-encoding, not both")


def check_browser(scope: Scope, hosts: Collection[str]) -> None:
    """Raise `ForeignOrigin` for requests that a page of another site may have sent."""
    host = origin = None
    for name, value in scope["headers"]:
        if name == b"host":
            host = value.decode("latin-1").lower()
        elif name == b"origin":
            origin = value.decode("latin-1").lower()
    if host is not None and _is_loopback(scope) and not _is_ours(host_of(host), hosts):
        raise ForeignOrigin(f"unknown host name; host={host[:100]!r} setting=http.allowed_hosts")
    if origin is not None and scope["method"] not in SAFE and not _is_from(origin, host):
        raise ForeignOrigin(f"pages of other sites may not send this request; origin={origin[:100]!r}")


def _is_from(origin: str, host: str | None) -> bool:
    """Whether an Origin is the requested host; false if it can't be parsed."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def host_of(text: str) -> str:
    """The host of `host:port` or `[::1]:port`, with or without a port."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] or text


def _is_loopback(scope: Scope) -> bool:
    server = scope.get("server")
    return server is not None and _is_loopback_address(server[0])


@lru_cache(maxsize=64)
def _is_loopback_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def _is_ours(host: str, hosts: Collection[str]) -> bool:
    if host == "localhost" or host.endswith(".localhost") or host in hosts:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
