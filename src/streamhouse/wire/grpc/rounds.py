"""Rounds: the messages of a stream are worked on many at a time, and answered in the order in which they came.

Data path   a produce stream -> **rounds** -> one append for many messages -> answers
Owns        the limit of messages in flight: beyond it the stream is not read, and gRPC's window holds the client back
Leaves      the work to whoever gives it

A round takes what has come while the one before it was worked on. So messages of a stream are appended in their order,
wherever the leader is, and what a round costs (a sync of the disk, a PUT, a way to another agent) is shared by its
messages.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

Q = TypeVar("Q")
A = TypeVar("A")


async def answer_in_rounds(
    questions: AsyncIterator[Q],
    answer: Callable[[Sequence[Q]], Awaitable[Sequence[A]]],
    send: Callable[[A], Awaitable[None]],
    *,
    limit: int,
) -> None:
    """Answer every question with one message; `limit` of them are read and not answered at most."""
    slots = asyncio.Semaphore(limit)
    waiting: asyncio.Queue[Q | None] = asyncio.Queue()  # no longer than there are slots

    async def read() -> None:
        await slots.acquire()
        async for question in questions:
            waiting.put_nowait(question)
            await slots.acquire()
        waiting.put_nowait(None)

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read(), name="read")
        while (first := await waiting.get()) is not None:
            asked = [first, *_at_hand(waiting)]
            for answered in await answer(asked):
                await send(answered)
                slots.release()
        reading.cancel()


def _at_hand(waiting: asyncio.Queue[Q | None]) -> list[Q]:
    """What has come already; the end of the stream stays in the queue."""
    found: list[Q] = []
    while not waiting.empty():
        if (question := waiting.get_nowait()) is None:
            waiting.put_nowait(None)
            break
        found.append(question)
    return found
