"""The gate: who waited goes before who comes later, and nobody waits for ever."""

import asyncio

import pytest

from streamhouse.broker.partition.backpressure import AppendBarrier
from streamhouse.errors import PartitionHeld
from tests.broker.support import settle


async def passing(gate: AppendBarrier, name: str, passed: list[str]) -> None:
    if not gate.is_open:
        await gate.wait()
    passed.append(name)


async def test_whoever_waited_goes_before_whoever_comes_later() -> None:
    gate, passed = AppendBarrier(), list[str]()
    await gate.shut()
    waiting = [asyncio.ensure_future(passing(gate, name, passed)) for name in "abc"]
    await settle()
    gate.open()
    await passing(gate, "d", passed)
    await asyncio.gather(*waiting)
    assert passed == ["a", "b", "c", "d"]
    assert gate.is_open


async def test_whoever_shuts_it_again_lets_those_through_who_waited() -> None:
    gate, passed = AppendBarrier(), list[str]()
    await gate.shut()
    waiting = [asyncio.ensure_future(passing(gate, name, passed)) for name in "abc"]
    again = asyncio.ensure_future(gate.shut())
    await settle()
    gate.open()
    await again
    assert passed == ["a", "b", "c"]
    late = asyncio.ensure_future(passing(gate, "d", passed))
    await settle()
    assert not late.done()
    gate.open()
    await late
    await asyncio.gather(*waiting)


async def test_one_who_gives_up_keeps_nobody() -> None:
    gate, passed = AppendBarrier(), list[str]()
    await gate.shut()
    first, second = (asyncio.ensure_future(passing(gate, name, passed)) for name in "ab")
    wanting = [asyncio.ensure_future(gate.shut()) for _ in range(2)]
    await settle()
    gate.open()
    first.cancel()
    wanting[0].cancel()
    await asyncio.gather(first, wanting[0], return_exceptions=True)
    await second
    await wanting[1]
    assert (passed, gate.is_shut) == (["b"], True)


async def test_the_end_of_the_log_ends_all_waiting() -> None:
    gate = AppendBarrier()
    await gate.shut()
    waiting = [asyncio.ensure_future(gate.wait()), asyncio.ensure_future(gate.shut())]
    await settle()
    gate.close(PartitionHeld("over"))
    for each in waiting:
        with pytest.raises(PartitionHeld):
            await each
    await gate.wait()
    with pytest.raises(PartitionHeld):
        await gate.shut()
