"""Patience: a deadline, and the waits between tries.

Data path   whoever must reach a leader asks **patience** after each try that failed for now
Owns        how long the next wait is: it doubles, with jitter, so that callers don't come back all at once
Leaves      what is tried to the caller

Waiting for a store that doesn't answer while an agent starts.

Data path   none; whoever starts -> **waiting** -> opening the store, the first session
Owns        how often and how long a step of the start is tried again, and the words for giving up
Leaves      which failures may pass to the engines, the steps themselves to whoever starts
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from streamhouse.clock import Clock, Ids
from streamhouse.config import AgentClientSettings
from streamhouse.errors import NotUpYet, Retriable, StreamhouseError, Unavailable


class Patience:
    def __init__(self, clock: Clock, ids: Ids, settings: AgentClientSettings, timeout_s: float) -> None:
        self._clock = clock
        self._ids = ids
        self._max_wait_s = settings.retry_max_s
        self._wait_s = settings.retry_s
        self._deadline = clock.monotonic() + timeout_s

    def __repr__(self) -> str:
        return f"<Patience left={self.left_s:.3f}s next_wait={self._wait_s:g}s>"

    @property
    def left_s(self) -> float:
        return max(0.0, self._deadline - self._clock.monotonic())

    async def pause(self, why: Retriable) -> None:
        """Wait before the next try; raise `why` when no time is left for one."""
        if self.left_s <= 0:
            raise why.with_traceback(None)
        await self._clock.sleep(self.next_wait_s())

    def next_wait_s(self) -> float:
        """How long to wait before the next try, for whoever has something else to do meanwhile."""
        wait_s = min(self._ids.jitter(self._wait_s), self.left_s)
        self._wait_s = min(self._wait_s * 2, self._max_wait_s)
        return wait_s


log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_S: Final = 0.1
"""Before the second try; doubled at each failure …"""
PAUSE_MAX_S: Final = 2.0
"""… up to this."""


async def patiently(step: Callable[[], Awaitable[T]], *, clock: Clock, ids: Ids, limit_s: float) -> T:
    """Do a step of the start, again while it fails in a way that may pass; gives up at the first failure that comes
    `limit_s` or more after the first one.

    What no waiting cures, such as a wrong password, is raised at once.
    """
    give_up_at: float | None = None
    pause_s = PAUSE_S
    while True:
        try:
            return await step()
        except (Retriable, NotUpYet) as error:
            now = clock.monotonic()
            give_up_at = now + limit_s if give_up_at is None else give_up_at
            left_s = give_up_at - now
            if left_s <= 0:
                raise given_up(error, limit_s) from error
            log.warning(
                "a store doesn't answer, the start waits", extra={"why": str(error), "left_s": round(left_s, 1)}
            )
        await clock.sleep(ids.jitter(pause_s))
        pause_s = min(2 * pause_s, PAUSE_MAX_S)


def given_up(error: StreamhouseError, limit_s: float) -> StreamhouseError:
    """The last failure, and how long it was waited for."""
    waited = f"waited_s={limit_s:g} setting=metadata.start_wait_s"
    if isinstance(error, NotUpYet):
        return NotUpYet(f"{error} {waited}")
    return Unavailable(f"the agent can't start; {waited} why={error}")
