"""Retries: deadlines, exponential backoff with jitter, and the loop that starts an agent before its stores answer.

`Backoff` has the pauses between attempts: each is twice as long as the one before, up to a limit, with jitter so that
clients do not come back all at once. `Deadline` is the end of an operation. `RetryDeadline` has both, for calls to
leaders. `retry` repeats one call; `retry_start` repeats a step of the start.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from streamhouse.clock import Clock, Ids
from streamhouse.config import AgentClientSettings
from streamhouse.errors import NotUpYet, Retriable, StreamhouseError, Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

START_RETRY_S: Final = 0.1
"""Pause before the second attempt of a start; it doubles at each failure."""
START_RETRY_MAX_S: Final = 2.0
"""Longest pause between attempts of a start."""


class Backoff:
    """Pauses between attempts: `first_s`, then twice as long each time, at most `max_s`."""

    def __init__(self, clock: Clock, ids: Ids, *, first_s: float, max_s: float) -> None:
        self._clock = clock
        self._ids = ids
        self._wait_s = first_s
        self._max_s = max_s

    def __repr__(self) -> str:
        return f"<Backoff next={self._wait_s:g}s max={self._max_s:g}s>"

    @property
    def upcoming_s(self) -> float:
        """The next pause without its jitter."""
        return self._wait_s

    def next_s(self) -> float:
        """The next pause. The one after it is twice as long."""
        wait_s = self._ids.jitter(self._wait_s)
        self._wait_s = min(self._wait_s * 2, self._max_s)
        return wait_s

    async def wait(self) -> None:
        await self._clock.sleep(self.next_s())


class Deadline:
    """The moment at which an operation ends."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._at = clock.monotonic() + timeout_s

    def __repr__(self) -> str:
        return f"<{type(self).__name__} left={self.left_s:.3f}s>"

    @property
    def left_s(self) -> float:
        return max(0.0, self._at - self._clock.monotonic())

    @property
    def is_over(self) -> bool:
        return self.left_s <= 0


class RetryDeadline(Deadline):
    """A deadline for calls to leaders, with the pauses between their attempts."""

    def __init__(self, clock: Clock, ids: Ids, settings: AgentClientSettings, timeout_s: float) -> None:
        super().__init__(clock, timeout_s)
        self._backoff = Backoff(clock, ids, first_s=settings.retry_s, max_s=settings.retry_max_s)

    async def wait_to_retry(self, error: Retriable) -> None:
        """Wait before the next attempt; raise `error` when no time is left for one."""
        if self.is_over:
            raise error.with_traceback(None)
        await self._clock.sleep(self.next_wait_s())

    def next_wait_s(self) -> float:
        """The pause before the next attempt, for callers that do something else meanwhile."""
        return min(self._backoff.next_s(), self.left_s)


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    on: type[E],
    backoff: Backoff,
    before_retry: Callable[[E], None] | None = None,
) -> T:
    """Call until it succeeds or raises an error other than `on`. `before_retry` is called with each error."""
    while True:
        try:
            return await call()
        except on as error:
            if before_retry is not None:
                before_retry(error)
        await backoff.wait()


async def retry_start(step: Callable[[], Awaitable[T]], *, clock: Clock, ids: Ids, limit_s: float) -> T:
    """Repeat a step of the start while it fails with an error that may pass.

    Raises at the first failure that comes `limit_s` or more after the first one. Errors that no waiting cures, such as
    a wrong password, are raised at once.
    """
    deadline: Deadline | None = None
    backoff = Backoff(clock, ids, first_s=START_RETRY_S, max_s=START_RETRY_MAX_S)
    while True:
        try:
            return await step()
        except (Retriable, NotUpYet) as error:
            deadline = deadline or Deadline(clock, limit_s)
            if deadline.is_over:
                raise start_timed_out(error, limit_s) from error
            log.warning(
                "a store doesn't answer, the start waits",
                extra={"why": str(error), "left_s": round(deadline.left_s, 1)},
            )
        await backoff.wait()


def start_timed_out(error: StreamhouseError, limit_s: float) -> StreamhouseError:
    """The last error, with how long the start waited."""
    waited = f"waited_s={limit_s:g} setting=metadata.start_wait_s"
    if isinstance(error, NotUpYet):
        return NotUpYet(f"{error} {waited}")
    return Unavailable(f"the agent can't start; {waited} why={error}")
