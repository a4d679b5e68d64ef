"""Batches that may expand are opened off the event loop, in memory that all requests share; none waits forever."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from streamhouse.broker.partition.batch_decoder import (
    GROWTH,
    LEAST_BYTES,
    ORDINARY_BYTES,
    BatchDecoder,
    StoredSize,
    stored_size,
    sum_stored,
)
from streamhouse.clock import SystemClock
from streamhouse.config import DecoderSettings, ProducerSettings
from streamhouse.errors import BatchTooLarge, CorruptBatch, Overloaded, Stopping
from streamhouse.format.compression import Codec
from streamhouse.format.records import Record, build_batch

MIB = 1 << 20
SMALL = StoredSize(Codec.LZ4, 1000)
LARGE = StoredSize(Codec.LZ4, 2 * MIB)


def make_decoder(*, memory_mib: int = 64, **settings: float) -> BatchDecoder:
    chosen = DecoderSettings(memory_bytes=memory_mib * MIB, **settings)  # type: ignore[arg-type]
    return BatchDecoder(chosen, producers=ProducerSettings(max_decompressed_bytes=64 * MIB), clock=SystemClock())


@asynccontextmanager
async def held(decoder: BatchDecoder, stored: StoredSize, count: int = 1) -> AsyncIterator[list["asyncio.Task[str]"]]:
    """Jobs that stay in their threads until the block is left."""
    inside, leave = threading.Semaphore(0), threading.Event()

    def work(limit_bytes: int) -> str:
        inside.release()
        leave.wait(30)
        return threading.current_thread().name

    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(decoder.run(stored, work)) for _ in range(count)]
    for _ in range(count):
        assert await loop.run_in_executor(None, inside.acquire, True, 30)
    try:
        yield tasks
    finally:
        leave.set()
        await asyncio.gather(*tasks, return_exceptions=True)


async def settled(condition: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError


async def test_an_ordinary_batch_whose_client_is_gone_keeps_nobody_waiting() -> None:
    decoder = make_decoder(threads=1)
    async with held(decoder, SMALL) as (task,):
        waiting = [asyncio.get_running_loop().create_task(decoder.run(SMALL, lambda limit_bytes: "done")) for _ in "ab"]
        await asyncio.sleep(0)
        for each in (task, waiting[0]):
            each.cancel()
        await asyncio.sleep(0)
    assert await waiting[1] == "done"
    assert await decoder.run(SMALL, lambda limit_bytes: "next") == "next"


async def test_nothing_compressed_is_opened_on_the_event_loop() -> None:
    decoder, loop_thread = make_decoder(), threading.get_ident()
    for codec in Codec:
        for size in (1, 1000, 2 * MIB):
            where = await decoder.run(StoredSize(codec, size), lambda limit_bytes: threading.get_ident())
            assert (where == loop_thread) == (codec is Codec.NONE and size <= 1000), (codec, size)
    assert (
        await decoder.run(StoredSize(0, 1000), lambda limit_bytes: threading.get_ident(), inline_bytes=0) != loop_thread
    )


async def test_a_batch_is_tried_with_more_memory_until_it_fits() -> None:
    decoder, tried = make_decoder(), []

    def work(limit_bytes: int) -> int:
        tried.append(limit_bytes)
        if limit_bytes < 20 * MIB:
            raise BatchTooLarge(limit_bytes)
        return decoder.budget.used_bytes

    assert await decoder.run(SMALL, work) == 64 * MIB
    assert tried[0] == LEAST_BYTES
    assert tried[1:] == [min(before * GROWTH, 64 * MIB) for before in tried[:-1]]
    await settled(lambda: decoder.budget.used_bytes == 0)


async def test_a_batch_larger_than_any_may_be_is_refused_for_good() -> None:
    decoder = make_decoder()

    def work(limit_bytes: int) -> None:
        raise BatchTooLarge(limit_bytes)

    with pytest.raises(BatchTooLarge) as caught:
        await decoder.run(SMALL, work)
    assert caught.value.limit_bytes == 64 * MIB
    await settled(lambda: decoder.budget.used_bytes == 0)


async def test_errors_reach_who_asked_without_what_was_decompressed() -> None:
    decoder = make_decoder()

    def damaged(limit_bytes: int) -> None:
        payload = bytes(limit_bytes)
        raise CorruptBatch(f"damaged; bytes={len(payload)}")

    def broken(limit_bytes: int) -> None:
        raise ZeroDivisionError

    for stored in (SMALL, LARGE):
        with pytest.raises(CorruptBatch) as caught:
            await decoder.run(stored, damaged)
        frames = []
        traceback = caught.value.__traceback__
        while traceback is not None:
            frames.append(traceback.tb_frame.f_code.co_name)
            traceback = traceback.tb_next
        assert "damaged" not in frames
        with pytest.raises(ZeroDivisionError):
            await decoder.run(stored, broken)


async def test_large_batches_wait_for_each_other_and_ordinary_ones_for_none_of_them() -> None:
    decoder = make_decoder(memory_mib=64, threads=4)
    async with held(decoder, StoredSize(Codec.LZ4, 8 * MIB)):  # takes all of it
        waiting = asyncio.get_running_loop().create_task(decoder.run(LARGE, lambda limit_bytes: "large"))
        await settled(lambda: decoder.budget.waiting == 1)
        assert await decoder.run(SMALL, lambda limit_bytes: "ordinary") == "ordinary"
        assert not waiting.done()
    assert await waiting == "large"


async def test_who_waits_for_memory_is_admitted_in_order() -> None:
    decoder, order = make_decoder(memory_mib=64, threads=1), []
    async with held(decoder, StoredSize(Codec.LZ4, 8 * MIB)):
        tasks = []
        for number in range(4):
            work = lambda limit_bytes, number=number: order.append(number)  # noqa: E731
            tasks.append(asyncio.get_running_loop().create_task(decoder.run(LARGE, work)))
            await settled(lambda: decoder.budget.waiting == len(tasks))
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3]


async def test_who_waits_too_long_or_behind_too_many_is_refused_for_now() -> None:
    decoder = make_decoder(memory_mib=64, max_waiting=1, max_wait_s=0.05)
    async with held(decoder, StoredSize(Codec.LZ4, 8 * MIB)):
        first = asyncio.get_running_loop().create_task(decoder.run(LARGE, lambda limit_bytes: None))
        await settled(lambda: decoder.budget.waiting == 1)
        with pytest.raises(Overloaded):
            await decoder.run(LARGE, lambda limit_bytes: None)
        with pytest.raises(Overloaded):
            await first
        assert (decoder.budget.refused, decoder.budget.waiting) == (2, 0)


async def test_ordinary_batches_that_wait_too_long_or_are_too_many_are_refused_for_now() -> None:
    decoder = make_decoder(threads=1, max_waiting=1, max_wait_s=0.01)
    async with held(decoder, SMALL):
        waiting = asyncio.get_running_loop().create_task(decoder.run(SMALL, lambda limit_bytes: None))
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded):
            await decoder.run(SMALL, lambda limit_bytes: None)
    with pytest.raises(Overloaded):
        await waiting
    assert decoder.budget.refused == 2


async def test_ordinary_batches_behind_too_many_are_refused_at_once() -> None:
    decoder = make_decoder(threads=1, max_waiting=1, max_wait_s=1e6)
    async with held(decoder, SMALL):
        waiting = asyncio.get_running_loop().create_task(decoder.run(SMALL, lambda limit_bytes: "done"))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await asyncio.wait_for(decoder.run(SMALL, lambda limit_bytes: None), 5)
    assert await waiting == "done"


async def test_memory_is_given_back_when_the_thread_is_done_not_when_the_client_is_gone() -> None:
    decoder = make_decoder()
    async with held(decoder, LARGE) as (task,):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert decoder.budget.used_bytes == 16 * MIB
    await settled(lambda: decoder.budget.used_bytes == 0)


async def test_a_client_that_leaves_the_queue_leaves_its_place() -> None:
    decoder = make_decoder()
    async with held(decoder, StoredSize(Codec.LZ4, 8 * MIB)):
        loop = asyncio.get_running_loop()
        gone, stays = (loop.create_task(decoder.run(LARGE, lambda limit_bytes: "done")) for _ in range(2))
        await settled(lambda: decoder.budget.waiting == 2)
        gone.cancel()
        await settled(lambda: decoder.budget.waiting == 1)
    assert await stays == "done"
    await settled(lambda: decoder.budget.used_bytes == 0)


async def test_a_batch_larger_than_all_memory_is_opened_alone() -> None:
    decoder = make_decoder(memory_mib=1)
    assert await decoder.run(LARGE, lambda limit_bytes: decoder.budget.used_bytes) == 16 * MIB


async def test_zstd_counts_its_window() -> None:
    decoder = make_decoder()
    assert await decoder.run(StoredSize(Codec.ZSTD, 2 * MIB), lambda limit_bytes: decoder.budget.used_bytes) == 32 * MIB


async def test_ordinary_batches_that_wait_share_a_trip_to_a_thread() -> None:
    decoder, trips = make_decoder(threads=1), []
    loop = asyncio.get_running_loop()
    run = loop.run_in_executor

    def counted(*args: object) -> object:
        trips.append(args)
        return run(*args)  # type: ignore[arg-type]

    loop.run_in_executor = counted  # type: ignore[assignment, method-assign]
    assert await asyncio.gather(*(decoder.run(SMALL, lambda limit_bytes: limit_bytes) for _ in range(20)))
    assert len(trips) == 2


async def test_a_closed_decoder_says_that_the_agent_stops() -> None:
    decoder = make_decoder()
    await decoder.run(SMALL, lambda limit_bytes: None)
    decoder.close()
    for stored in (SMALL, LARGE):
        with pytest.raises(Stopping):
            await decoder.run(stored, lambda limit_bytes: None)


def test_what_is_known_of_batches_before_they_are_opened() -> None:
    plain, packed = build_batch([Record(value=bytes(500))]), build_batch([Record(value=bytes(500))], codec=Codec.ZSTD)
    assert stored_size([plain, plain]) == StoredSize(0, 2 * len(plain))
    assert stored_size([plain, packed, plain]) == StoredSize(Codec.ZSTD, len(packed))
    assert sum_stored([StoredSize(0, 5), StoredSize(0, 6)]) == StoredSize(0, 11)
    assert sum_stored([StoredSize(0, 500), StoredSize(Codec.LZ4, 6), StoredSize(Codec.GZIP, 9)]) == StoredSize(
        Codec.LZ4, 9
    )
    assert ORDINARY_BYTES < 64 * MIB
