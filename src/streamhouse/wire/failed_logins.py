"""Failed logins: each is answered late, and those of one address one after the other, on every interface.

A password can be guessed `1 / delay_s` times a second from one address. More than `MAX_WAITING` failures of an address
that wait for their answers are refused as too many logins.
"""

from collections import OrderedDict
from typing import Final

from streamhouse.clock import Clock
from streamhouse.errors import TooManyLogins

MAX_WAITING: Final = 20
"""Answers of one address that wait."""
MAX_ADDRESSES: Final = 10_000
"""Addresses that are remembered; those that failed longest ago are forgotten."""


class FailedLogins:
    def __init__(self, delay_s: float, clock: Clock) -> None:
        self._delay_s = delay_s
        self._clock = clock
        self._due: OrderedDict[str, float] = OrderedDict()

    def __repr__(self) -> str:
        return f"<FailedLogins addresses={len(self._due)}>"

    async def wait_turn(self, host: str) -> None:
        """Wait until the failures of this address are answered; its next password is checked then."""
        wait_s = self._due.get(host, 0.0) - self._clock.monotonic()
        if wait_s > self._delay_s * MAX_WAITING:
            raise TooManyLogins(limit=MAX_WAITING)
        if wait_s > 0:
            await self._clock.sleep(wait_s)

    async def failed(self, host: str) -> None:
        """Return when the failure may be answered."""
        now = self._clock.monotonic()
        due = max(now, self._due.pop(host, 0.0)) + self._delay_s
        self._due[host] = due
        while len(self._due) > MAX_ADDRESSES:
            self._due.popitem(last=False)
        await self._clock.sleep(due - now)
