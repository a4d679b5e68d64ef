"""AuditLog: logins, refusals and administrative acts, to the log and to an append-only topic.

Recording never waits and never fails a request. Equal events of one second become one line with a count. More than
`security.audit_events_per_s` different events in a second are counted, not written. Refusals and failed logins, which
need no rights, have a smaller limit of their own, so that they can't fill a disk or hide other events.
The topic is kept for `security.audit_retention_s` and `security.audit_retention_bytes`. While it can't be written, at
most `security.audit_buffer_events` wait; the log has every line.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Final, NamedTuple

from streamhouse.clock import Clock
from streamhouse.config import SecuritySettings
from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Caller
from streamhouse.model.audit import AuditEvent, AuditKind, Outcome, event_of
from streamhouse.telemetry import RateLimitedLog

log = logging.getLogger("streamhouse.audit")

INTERVAL_S: Final = 1.0
BATCH_EVENTS: Final = 500
MAX_REQUEST_CHARS: Final = 200
MAX_DETAILS_CHARS: Final = 1000
SUPPRESSED: Final = AuditEvent(kind=AuditKind.SUPPRESSED, outcome=Outcome.ALLOWED, principal="")

SettingsChange = Callable[[Mapping[str, str]], Mapping[str, str]]
Publish = Callable[[Sequence[bytes]], Awaitable[None]]
"""Appends records to the audit topic; raises `StreamhouseError`."""


class _Line(NamedTuple):
    event: AuditEvent
    at_ms: int
    times: int


class Acts:
    """The administrative operations of one request, each with the name of its resource."""

    def __init__(self, record: Callable[[AuditEvent], None], request: str = "") -> None:
        self._record = record
        self._request = request[:MAX_REQUEST_CHARS]
        self._details = ""
        self.events: dict[AuditEvent, str] = {}
        self.is_over = False

    def describe(self, details: Iterable[object]) -> None:
        for each in details:
            if len(self._details) > MAX_DETAILS_CHARS:
                break
            self._details += f"; {each}" if self._details else str(each)

    def end(self, has_failed: Callable[[str], bool] = lambda _: False) -> None:
        """Record the outcomes of the acts; `has_failed` is called with the name of each."""
        self.is_over = True
        details = self._details
        if len(details) > MAX_DETAILS_CHARS:
            details = f"{details[:MAX_DETAILS_CHARS]}…"
        for event, name in self.events.items():
            outcome = Outcome.FAILED if has_failed(name) else Outcome.SUCCEEDED
            self._record(replace(event, outcome=outcome, request=self._request, details=details))


_acts_of_request: Final[ContextVar[Acts | None]] = ContextVar("acts_of_request", default=None)


def describe_acts(*details: object) -> None:
    """Add details of the change to the audit event of the current request; never a secret."""
    if (acts := _acts_of_request.get()) is not None:
        acts.describe(details)


def describing(owner: str, change: SettingsChange) -> SettingsChange:
    """A change of the settings of a topic or of agents that says which settings it changes: their names, not their
    values."""

    def described(before: Mapping[str, str]) -> Mapping[str, str]:
        after = change(before)
        if names := sorted(name for name in {*before, *after} if before.get(name) != after.get(name)):
            describe_acts(f"{owner}: {', '.join(names)}")
        return after

    return described


class AuditLog:
    def __init__(self, settings: SecuritySettings, *, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._recorded = asyncio.Event()
        self._counts: Counter[AuditEvent] = Counter()
        self._different: Counter[bool] = Counter()
        """How many different events were counted of those that need no rights, and of the others."""
        self._first_at_ms: dict[AuditEvent, int] = {}
        self._unpublished: deque[_Line] = deque(maxlen=settings.audit_buffer_events)
        self._failure = RateLimitedLog(log, "the audit topic can't be written; events wait", level=logging.WARNING)

    def __repr__(self) -> str:
        return f"<AuditLog {'on' if self.is_enabled else 'off'} pending={len(self._counts)}>"

    @property
    def is_enabled(self) -> bool:
        """Whether anything is recorded: only if access control is on."""
        return self._settings.audit != "off" and self._settings.authorization == "acls"

    # --- recording

    def login(self, caller: Caller, mechanism: str) -> None:
        """A caller has logged in."""
        self._record(event_of(caller, AuditKind.LOGIN, Outcome.ALLOWED, mechanism))

    def failed_login(self, name: str, mechanism: str, *, host: str, listener: str) -> None:
        """A login as this user failed."""
        self._record(
            AuditEvent(
                kind=AuditKind.LOGIN,
                outcome=Outcome.FAILED,
                principal=name[:200],
                host=host,
                listener=listener,
                operation=mechanism,
            )
        )

    def refused(self, caller: Caller, operation: str, resource: str) -> None:
        """A caller was denied an operation."""
        self._record(event_of(caller, AuditKind.REFUSAL, Outcome.DENIED, operation, resource))

    def administered(self, caller: Caller, operation: str, resource: str = "", *, name: str = "") -> None:
        """A caller is allowed to change something, and is about to: the outcome is recorded when its request ends."""
        event = event_of(caller, AuditKind.ADMINISTRATION, Outcome.ALLOWED, operation, resource)
        acts = _acts_of_request.get()
        if acts is None or acts.is_over or len(acts.events) >= self._settings.audit_events_per_s:
            self._record(event)
        else:
            acts.events[event] = name

    @contextmanager
    def acts(self, request: str) -> Iterator["Acts"]:
        """Collect the administrative acts of a request; they have failed if the body raises. `request` is
        the interface's own name of it."""
        acts = Acts(self._record, request)
        token = _acts_of_request.set(acts)
        try:
            yield acts
        except BaseException:
            acts.end(lambda _: True)
            raise
        finally:
            _acts_of_request.reset(token)

    def _record(self, event: AuditEvent) -> None:
        if not self.is_enabled:
            return
        if event not in self._counts:
            event = self._within_limits(event)
        self._counts[event] += 1
        self._first_at_ms.setdefault(event, self._clock.now_ms())
        self._recorded.set()

    def _within_limits(self, event: AuditEvent) -> AuditEvent:
        """Count a different event; returns `SUPPRESSED` for one above its limit."""
        settings, kind = self._settings, event.needs_no_rights
        if self._different[kind] >= (settings.audit_refusals_per_s if kind else settings.audit_events_per_s):
            return SUPPRESSED
        self._different[kind] += 1
        return event

    # --- writing

    async def run(self, publish: Publish, *, agent: str) -> None:
        """Write what is recorded, at most once a second, until cancelled."""
        while self.is_enabled:
            await self._recorded.wait()
            await self._clock.sleep(INTERVAL_S)
            self._recorded.clear()
            await self.flush(publish, agent=agent)
            if self._unpublished:
                self._recorded.set()

    async def flush(self, publish: Publish, *, agent: str) -> None:
        """Write what was recorded: to the log, and with `audit=topic` to the topic as well."""
        lines = [_Line(event, self._first_at_ms[event], count) for event, count in self._counts.items()]
        self._counts.clear()
        self._different.clear()
        self._first_at_ms.clear()
        for line in lines:
            log.info("audit", extra={**line.event.fields(), "count": line.times})
        if self._settings.audit != "topic":
            return
        self._unpublished.extend(lines)
        while self._unpublished:
            batch = [self._unpublished[n] for n in range(min(BATCH_EVENTS, len(self._unpublished)))]
            try:
                await publish([each.event.as_json(at_ms=each.at_ms, count=each.times, agent=agent) for each in batch])
            except StreamhouseError as error:
                self._failure.write(self._clock.monotonic(), why=str(error), waiting=len(self._unpublished))
                return
            for _ in batch:
                self._unpublished.popleft()
