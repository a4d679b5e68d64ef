"""Failed logins are answered late, those of one address one after the other, and never without limit."""

import pytest

from streamhouse.errors import TooManyLogins
from streamhouse.wire.failed_logins import MAX_ADDRESSES, MAX_WAITING, FailedLogins


class SleepingClock:
    """Notes how long was slept; time stands still."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return 100.0

    def now_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_failures_of_an_address_wait_for_each_other() -> None:
    clock = SleepingClock()
    failed = FailedLogins(0.1, clock)
    for host in ("10.0.0.7", "10.0.0.7", "10.0.0.8"):
        await failed.failed(host)
    assert clock.slept == pytest.approx([0.1, 0.2, 0.1])
    await failed.wait_turn("10.0.0.7")
    assert clock.slept[-1] == pytest.approx(0.2)
    await failed.wait_turn("10.0.0.9")
    assert len(clock.slept) == 4


async def test_an_address_that_fails_without_end_is_refused_and_forgotten_last() -> None:
    clock = SleepingClock()
    failed = FailedLogins(0.1, clock)
    for _ in range(MAX_WAITING + 2):
        await failed.failed("10.0.0.7")
    with pytest.raises(TooManyLogins):
        await failed.wait_turn("10.0.0.7")
    for number in range(MAX_ADDRESSES):
        await failed.failed(str(number))
    await failed.wait_turn("10.0.0.7")  # forgotten
    assert repr(failed) == f"<FailedLogins addresses={MAX_ADDRESSES}>"
