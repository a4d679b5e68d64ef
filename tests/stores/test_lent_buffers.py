"""Buffers on loan: what is copied, what is not, and when they are back."""

import asyncio
from pickle import PickleBuffer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.stores.objects.remote import JOINED_BYTES, LENT_FROM_BYTES, lend_buffers, reclaim_buffers

SIZES = st.lists(st.sampled_from([0, 1, 100, LENT_FROM_BYTES - 1, LENT_FROM_BYTES, LENT_FROM_BYTES + 1]), max_size=30)


@given(SIZES)
def test_the_views_are_the_body(sizes: list[int]) -> None:
    body = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    assert b"".join(lend_buffers(body)) == b"".join(body)


def test_large_buffers_are_lent_and_small_ones_joined() -> None:
    large = bytearray(LENT_FROM_BYTES)
    views = lend_buffers([b"a", b"b", large, b"c", b"d"])
    assert [view.nbytes for view in views] == [2, LENT_FROM_BYTES, 2]
    assert views[1].obj is large


def test_thousands_of_small_buffers_become_few() -> None:
    views = lend_buffers([bytes(1000)] * 10_000)
    assert len(views) <= 10_000_000 // JOINED_BYTES + 2


class Sleeper:
    """A clock whose every sleep brings the loan's end nearer."""

    def __init__(self, holders: list[PickleBuffer]) -> None:
        self.holders = holders
        self.slept = 0

    def monotonic(self) -> float:
        return 0.0

    def now_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.slept += 1
        await asyncio.sleep(0)
        if self.slept == 3:
            for holder in self.holders:
                holder.release()


async def test_a_loan_ends_when_the_last_reader_has_let_go() -> None:
    buffer = bytearray(LENT_FROM_BYTES)
    views = lend_buffers([buffer])
    clock = Sleeper([PickleBuffer(views[0])])
    await reclaim_buffers(views, clock)
    assert clock.slept == 3
    buffer.append(0)


async def test_a_cancellation_waits_for_the_last_reader_and_is_then_passed_on() -> None:
    buffer = bytearray(LENT_FROM_BYTES)
    views = lend_buffers([buffer])
    clock = Sleeper([PickleBuffer(views[0])])
    waiting = asyncio.create_task(reclaim_buffers(views, clock))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert clock.slept >= 3
    buffer.append(0)
