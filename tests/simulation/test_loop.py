"""The simulated loop: time, order, threads, deaths."""

import asyncio
import random
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.simulation.clocks import SimClock, settle
from tests.simulation.loop import SimLoop, Violation


def run(main: Coroutine[Any, Any, Any], loop: SimLoop, *, max_steps: int = 10_000) -> Any:
    return loop.run(main, max_steps=max_steps)


def test_sleeping_takes_virtual_time_only() -> None:
    loop = SimLoop(random.Random(1))

    async def main() -> float:
        before = loop.time()
        await asyncio.sleep(3600)
        return loop.time() - before

    assert run(main(), loop) == pytest.approx(3600, abs=0.01)


def test_what_is_ready_runs_in_an_order_that_the_seed_chooses() -> None:
    def order(seed: int) -> list[int]:
        loop = SimLoop(random.Random(seed), fifo=0.0)
        ran: list[int] = []

        async def note(number: int) -> None:
            ran.append(number)

        async def main() -> None:
            await asyncio.gather(*(note(number) for number in range(10)))

        run(main(), loop)
        return ran

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == list(range(10))


def test_a_killed_process_never_runs_again_and_cleans_nothing_up() -> None:
    loop = SimLoop(random.Random(1))
    seen: list[str] = []

    async def live() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                seen.append("alive")
        finally:
            seen.append("cleaned up")

    async def main() -> list[str]:
        process = loop.new_process("p")
        loop.spawn(process, live(), name="live")
        await asyncio.sleep(2.5)
        loop.kill(process)
        await asyncio.sleep(10)
        return list(seen)

    assert run(main(), loop) == ["alive", "alive"]


def test_a_paused_process_goes_on_later() -> None:
    loop = SimLoop(random.Random(1))
    seen: list[float] = []

    async def live() -> None:
        await asyncio.sleep(1)
        seen.append(loop.time() - 1000)

    async def main() -> None:
        process = loop.new_process("p")
        loop.spawn(process, live(), name="live")
        await asyncio.sleep(0.5)
        loop.pause(process, 4.5)
        await asyncio.sleep(10)

    run(main(), loop)
    assert seen == [pytest.approx(5, abs=0.01)]


def test_a_fuse_kills_after_so_many_steps() -> None:
    loop = SimLoop(random.Random(1))
    steps: list[int] = []

    async def live() -> None:
        for number in range(1000):
            steps.append(number)
            await asyncio.sleep(0)

    async def main() -> None:
        process = loop.new_process("p")
        process.fuse = (7, partial(setattr, process, "is_dead", True))
        loop.spawn(process, live(), name="live")
        await asyncio.sleep(1)

    run(main(), loop)
    assert len(steps) == 7


def test_a_pool_of_one_thread_keeps_the_order_and_a_dead_process_may_not_learn_of_its_effect() -> None:
    loop = SimLoop(random.Random(1), latency_s=0.01)
    done: list[int] = []
    received: list[int] = []
    executor = ThreadPoolExecutor(1)

    async def work(number: int) -> None:
        await loop.run_in_executor(executor, done.append, number)
        received.append(number)

    async def main() -> None:
        process = loop.new_process("p")
        for number in range(20):
            loop.spawn(process, work(number), name="work")
        while len(done) < 5:  # noqa: ASYNC110 - what is looked at happens outside of this loop's promises
            await asyncio.sleep(0.0001)
        loop.kill(process)
        await asyncio.sleep(10)

    run(main(), loop)
    assert len(done) == 5
    assert len(received) < 5
    assert len(set(done)) == 5


def test_a_deadlock_is_found_and_says_who_waits() -> None:
    loop = SimLoop(random.Random(1))

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Violation, match=r"deadlock.*\n.*main"):
        run(main(), loop)


def test_a_run_without_end_is_ended() -> None:
    loop = SimLoop(random.Random(1))

    async def main() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)

    with pytest.raises(Violation, match="no end after so many steps; 100"):
        run(main(), loop, max_steps=100)


def test_timeouts_and_task_groups_work_as_ever() -> None:
    loop = SimLoop(random.Random(1), fifo=0.0)

    async def main() -> str:
        ended = "never"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(100))
                group.create_task(asyncio.wait_for(asyncio.Event().wait(), 1))
        except* TimeoutError:
            ended = "timed out"
        return ended

    assert run(main(), loop) == "timed out"
    assert loop.time() < 1010


def test_clocks_that_were_set_apart_agree_after_the_faults_and_none_goes_back() -> None:
    loop = SimLoop(random.Random(1))
    agents, database = SimClock(loop), SimClock(loop)

    async def main() -> None:
        agents.jump(5_000)
        agents.jump(-8_000)
        settle(agents, database)
        assert agents.now_ms() == database.now_ms() == agents.latest_ms()

    run(main(), loop)
