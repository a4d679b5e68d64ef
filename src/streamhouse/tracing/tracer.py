"""Tracer: begins spans, decides which are recorded, and queues ended ones for the exporter."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from streamhouse.clock import Clock, Ids
from streamhouse.config import TracingSettings
from streamhouse.tracing.span import Attribute, Span, SpanContext, SpanKind

MAX_CLOCK_DRIFT_NS: Final = 50_000_000
_SPAN_CHARS: Final = 16

_active: ContextVar[Span | None] = ContextVar("active_span", default=None)


def active_span() -> Span | None:
    """The span of the request that the current task works for."""
    return _active.get()


def current_context() -> SpanContext | None:
    span = _active.get()
    return None if span is None else span.context


class Tracer:
    """Spans wait in a queue of `tracing.max_queued` for the exporter; what doesn't fit, and what exceeds
    `tracing.max_spans_per_s`, is dropped and counted."""

    def __init__(self, settings: TracingSettings, *, clock: Clock, ids: Ids) -> None:
        self.settings = settings
        self.exported = 0
        self.dropped = 0
        self._clock = clock
        self._ids = ids
        self._ended: deque[Span] = deque()
        self._offset_ns = self._wall_ns()
        self._tokens = float(settings.max_spans_per_s)
        self._refilled_at = clock.monotonic()

    def __repr__(self) -> str:
        return f"<Tracer queued={len(self._ended)} exported={self.exported} dropped={self.dropped}>"

    def begin(
        self,
        name: str,
        parent: SpanContext | None = None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Attribute] | None = None,
        links: Sequence[SpanContext] = (),
        start_ns: int | None = None,
    ) -> Span | None:
        """A span, or None if it isn't recorded. A parent decides for its children; without one `tracing.sample_ratio`
        does."""
        if parent is None:
            if not self._is_chosen():
                return None
            trace_id, parent_id = self._ids.token(), ""
        elif not parent.is_sampled:
            return None
        else:
            trace_id, parent_id = parent.trace_id, parent.span_id
        if not self._take():
            self.dropped += 1
            return None
        return Span(
            name=name,
            context=SpanContext(trace_id, self._ids.token()[:_SPAN_CHARS]),
            parent_id=parent_id,
            kind=kind,
            start_ns=self.now_ns() if start_ns is None else start_ns,
            attributes=dict(attributes or {}),
            links=tuple(links),
        )

    def end(self, span: Span | None, *, error: str = "") -> None:
        """Queue a span for the exporter."""
        if span is None:
            return
        span.end_ns = max(span.start_ns, self.now_ns())
        span.error = error
        if len(self._ended) >= self.settings.max_queued:
            self.dropped += 1
        else:
            self._ended.append(span)

    @contextmanager
    def span(
        self,
        name: str,
        parent: SpanContext | None = None,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Attribute] | None = None,
    ) -> Iterator[Span | None]:
        """A span around the block, which is the active one of its task meanwhile."""
        span = self.begin(name, parent, kind=kind, attributes=attributes)
        token = _active.set(span)
        error = ""
        try:
            yield span
        except BaseException as failure:
            error = type(failure).__name__
            raise
        finally:
            _active.reset(token)
            self.end(span, error=error or ("" if span is None else span.error))

    def take(self, limit: int) -> list[Span]:
        """Take ended spans out of the queue, oldest first; also from another thread."""
        taken: list[Span] = []
        while len(taken) < limit:
            try:
                taken.append(self._ended.popleft())
            except IndexError:
                break
        return taken

    def now_ns(self) -> int:
        """The wall clock, finer than a millisecond: it follows the monotonic clock until the wall clock jumps."""
        now = self._offset_ns + int(self._clock.monotonic() * 1e9)
        if abs(self._clock.now_ms() * 1_000_000 - now) > MAX_CLOCK_DRIFT_NS:
            self._offset_ns = self._wall_ns()
            now = self._offset_ns + int(self._clock.monotonic() * 1e9)
        return now

    def _wall_ns(self) -> int:
        return self._clock.now_ms() * 1_000_000 - int(self._clock.monotonic() * 1e9)

    def _is_chosen(self) -> bool:
        ratio = self.settings.sample_ratio
        return ratio > 0 and int(self._ids.token()[:8], 16) < ratio * 2**32

    def _take(self) -> bool:
        """Whether the rate allows one more span now."""
        now, rate = self._clock.monotonic(), self.settings.max_spans_per_s
        self._tokens = min(float(rate), self._tokens + (now - self._refilled_at) * rate)
        self._refilled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
