"""FairLimiter: a limit at once, partitions in turn, and no waiter is lost."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.limits import FairLimiter
from tests.broker.support import settle


class Crowd:
    """Waiters of a limiter; each holds its slot until it is released."""

    def __init__(self, limit: int) -> None:
        self.turns = FairLimiter(limit)
        self.served: list[str] = []
        self.going: list[asyncio.Event] = []

    def come(self, whose: str) -> "asyncio.Task[None]":
        return asyncio.get_running_loop().create_task(self._wait(whose))

    async def _wait(self, whose: str) -> None:
        async with self.turns.slot(whose):
            self.served.append(whose)
            self.going.append(asyncio.Event())
            await self.going[-1].wait()

    async def go(self) -> None:
        """Release the slot that was granted first."""
        next(event for event in self.going if not event.is_set()).set()
        await settle()


async def test_so_many_have_a_turn_at_once_and_the_others_wait() -> None:
    crowd = Crowd(2)
    tasks = [crowd.come(f"p{number}") for number in range(5)]
    await settle()
    assert (len(crowd.served), crowd.turns.waiting) == (2, 3)
    for _ in range(5):
        await crowd.go()
    await asyncio.gather(*tasks)
    assert crowd.served == ["p0", "p1", "p2", "p3", "p4"]
    assert "free=2 waiting=0 of=0" in repr(crowd.turns)


async def test_a_partition_with_a_long_backlog_does_not_keep_the_others_waiting() -> None:
    crowd = Crowd(1)
    tasks = [crowd.come("greedy") for _ in range(20)]
    await settle()
    tasks += [crowd.come(name) for name in ("modest", "shy", "modest")]
    await settle()
    for _ in range(7):
        await crowd.go()
    assert crowd.served == ["greedy", "greedy", "modest", "shy", "greedy", "modest", "greedy", "greedy"]
    for _ in range(16):
        await crowd.go()
    await asyncio.gather(*tasks)


async def test_within_a_partition_the_first_to_come_is_the_first_served() -> None:
    turns, served = FairLimiter(1), []

    async def want(number: int) -> None:
        async with turns.slot("p"):
            served.append(number)

    await asyncio.gather(*(want(number) for number in range(10)))
    assert served == list(range(10))


async def test_a_waiter_who_leaves_is_passed_over() -> None:
    crowd = Crowd(1)
    tasks = [crowd.come(name) for name in ("a", "b", "c")]
    await settle()
    tasks[1].cancel()
    await settle()
    assert crowd.turns.waiting == 1
    await crowd.go()
    assert crowd.served == ["a", "c"]
    await crowd.go()
    assert "free=1" in repr(crowd.turns)


async def test_a_turn_that_came_to_someone_who_left_in_that_moment_goes_to_the_next() -> None:
    crowd = Crowd(1)
    async with crowd.turns.slot("a"):
        second, _third = crowd.come("b"), crowd.come("c")
        await settle()
    second.cancel()  # its turn has been given to it, and it hasn't run since
    await settle()
    assert crowd.served == ["c"]
    assert second.cancelled()
    await crowd.go()


async def test_an_error_gives_the_turn_back() -> None:
    turns = FairLimiter(1)
    with pytest.raises(ValueError, match="broken"):
        async with turns.slot("a"):
            raise ValueError("broken")
    async with asyncio.timeout(5), turns.slot("a"):
        pass


@given(seed=st.integers(0, 2**32), limit=st.integers(1, 4), partitions=st.integers(1, 4))
def test_no_turn_is_lost_and_none_is_given_twice_however_people_come_and_leave(
    seed: int, limit: int, partitions: int
) -> None:
    chance = random.Random(seed)

    async def scenario() -> None:
        turns, inside = FairLimiter(limit), 0

        async def want(whose: int) -> None:
            nonlocal inside
            async with turns.slot(whose):
                inside += 1
                assert inside <= limit
                try:
                    for _ in range(chance.randrange(3)):
                        await asyncio.sleep(0)
                finally:
                    inside -= 1

        tasks = []
        for _ in range(40):
            tasks.append(asyncio.ensure_future(want(chance.randrange(partitions))))
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(task.cancelled() or task.exception() is None for task in tasks)
        assert f"free={limit} waiting=0 of=0" in repr(turns)

    asyncio.run(scenario())
