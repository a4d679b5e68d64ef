"""Client throttle: clients of HTTP and gRPC above their quotas are read, and answered, more slowly.

Bytes received count as `producer_byte_rate`, bytes sent as `consumer_byte_rate`, and the time for which a request
occupies the event loop as `request_percentage`; what it waits for doesn't count. A client above a limit waits where it
is: before its request, in the middle of an upload or of a stream, or before its response.
"""

import time
from collections.abc import Awaitable, Generator
from typing import Any, Final, TypeVar

from streamhouse.broker.security.quotas import Quotas
from streamhouse.clock import Clock
from streamhouse.model.access import Caller
from streamhouse.model.quota import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

T = TypeVar("T")
PERCENT: Final = 100.0


class ClientThrottle:
    """The quotas of one caller, with the client id that its request has."""

    def __init__(self, quotas: Quotas, caller: Caller, clock: Clock, *, client_id: str = "") -> None:
        self._quotas = quotas
        self._user = caller.principal.name
        self._client_id = client_id
        self._is_limited = not caller.is_agent
        self._clock = clock

    async def received(self, size_bytes: int) -> None:
        """Count bytes that were received; returns when they may be looked at."""
        await self._wait(max(self._charge(PRODUCER_BYTE_RATE, size_bytes), self._charge(REQUEST_PERCENTAGE, 0)))

    async def sent(self, size_bytes: int) -> None:
        """Count bytes to send; returns when they may be sent."""
        await self._wait(self._charge(CONSUMER_BYTE_RATE, size_bytes))

    async def measured(self, work: Awaitable[T]) -> T:
        """Do the work, and count the time for which it occupied the event loop."""
        if not self._is_limited or not self._quotas.is_active:
            return await work
        measured = _Measured(work)
        try:
            return await measured
        finally:
            self._charge(REQUEST_PERCENTAGE, measured.busy_s * PERCENT)

    def _charge(self, limit: str, amount: float) -> float:
        if not self._is_limited or not self._quotas.is_active:
            return 0.0
        return self._quotas.charge(limit, amount, user=self._user, client_id=self._client_id)

    async def _wait(self, wait_s: float) -> None:
        if wait_s > 0:
            await self._clock.sleep(wait_s)


class _Measured(Awaitable[T]):
    """Runs an awaitable step by step, and adds up the CPU time that the steps took: a user doesn't pay for a machine
    that is busy with something else."""

    def __init__(self, work: Awaitable[T]) -> None:
        self._work = work
        self.busy_s = 0.0

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        error: BaseException | None = None
        while True:
            began = time.thread_time()
            try:
                awaited = next(steps) if error is None else steps.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                self.busy_s += time.thread_time() - began
            error = None
            try:
                yield awaited
            except BaseException as raised:  # noqa: BLE001 (the work has to hear of it)
                error = raised
