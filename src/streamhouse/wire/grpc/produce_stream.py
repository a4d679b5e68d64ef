"""Produce streams: messages are appended in order, several in flight, and answered in order.

Messages that arrive while an append is running are appended together next, so they share its cost (an fsync, a PUT, a
request to another agent). Messages of one topic (for batches: of one partition) keep their order. Beyond the limit of
messages in flight the stream is not read, and gRPC's flow control slows the client down.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

import grpc

from streamhouse.errors import StreamhouseError
from streamhouse.wire.grpc.calls import Call, Send
from streamhouse.wire.grpc.errors import as_message
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb
from streamhouse.wire.grpc.produce import (
    BatchesTarget,
    ProduceService,
    RecordsTarget,
    Results,
    produce_batches_response,
    produce_response,
    read_batches,
    read_records,
)

Request = TypeVar("Request")
Response = TypeVar("Response")


async def respond_in_batches(
    requests: AsyncIterator[Request],
    respond: Callable[[Sequence[Request]], Awaitable[Sequence[Response]]],
    send: Callable[[Response], Awaitable[None]],
    *,
    limit: int,
) -> None:
    """Respond to each request with one message, in order; at most `limit` requests are read and not responded to."""
    slots = asyncio.Semaphore(limit)
    waiting: asyncio.Queue[Request | None] = asyncio.Queue()  # no longer than there are slots

    async def read() -> None:
        await slots.acquire()
        async for request in requests:
            waiting.put_nowait(request)
            await slots.acquire()
        waiting.put_nowait(None)

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read(), name="read")
        while (first := await waiting.get()) is not None:
            received = [first, *_take_queued(waiting)]
            for response in await respond(received):
                await send(response)
                slots.release()
        reading.cancel()


def _take_queued(waiting: asyncio.Queue[Request | None]) -> list[Request]:
    """What has come already; the end of the stream stays in the queue."""
    found: list[Request] = []
    while not waiting.empty():
        if (request := waiting.get_nowait()) is None:
            waiting.put_nowait(None)
            break
        found.append(request)
    return found


Target = TypeVar("Target", RecordsTarget, BatchesTarget)
Item = TypeVar("Item")
Append = Callable[[Target, Sequence[Item], Call], Awaitable[Results]]


@dataclass(slots=True, kw_only=True)
class Share(Generic[Target, Item]):
    """What one message wants, and at last what became of it."""

    aim: Target | None
    items: list[Item]
    call: Call
    results: Results | StreamhouseError | TimeoutError

    @classmethod
    def of(
        cls, read: Callable[[Request], tuple[Target, list[Item]]], request: Request, call: Call
    ) -> "Share[Target, Item]":
        try:
            aim, items = read(request)
        except StreamhouseError as error:
            return cls(aim=None, items=[], call=call, results=error)
        return cls(aim=aim, items=items, call=call, results=[])


async def records_stream(
    producing: ProduceService, requests: AsyncIterator[tuple[pb.ProduceStreamRequest, Call]], send: Send, *, limit: int
) -> None:
    # Messages are opened as they come, one at a time, so that the loop has a chance in between.
    shares = (Share.of(read_records, request.produce, call) async for request, call in requests)
    await _stream(shares, producing.append_records, _records_response, send, limit=limit)


async def batches_stream(
    producing: ProduceService,
    requests: AsyncIterator[tuple[pb.ProduceBatchesStreamRequest, Call]],
    send: Send,
    *,
    limit: int,
) -> None:
    shares = (Share.of(read_batches, request.produce, call) async for request, call in requests)
    await _stream(shares, producing.append_batches, _batches_response, send, limit=limit)


async def _stream(
    shares: AsyncIterator[Share[Target, Item]],
    append: Append[Target, Item],
    answer: Callable[[Share[Target, Item]], bytes],
    send: Send,
    *,
    limit: int,
) -> None:
    async def work(asked: Sequence[Share[Target, Item]]) -> list[bytes]:
        await append_batch(asked, append)
        return [answer(share) for share in asked]

    await respond_in_batches(shares, work, send, limit=limit)


async def append_batch(shares: Sequence[Share[Target, Item]], append: Append[Target, Item]) -> None:
    """Append what these messages want; each learns what became of it."""
    places: dict[object, list[Share[Target, Item]]] = {}
    for share in shares:
        if share.aim is not None:
            places.setdefault(share.aim.place, []).append(share)
    async with asyncio.TaskGroup() as tasks:
        for together in places.values():
            tasks.create_task(_append_place(together, append), name="append")


async def _append_place(shares: Sequence[Share[Target, Item]], append: Append[Target, Item]) -> None:
    for together in group_by_target(shares):
        aim = together[0].aim
        assert aim is not None
        call = Call(min(each.call.timeout_s for each in together), sum(each.call.size_bytes for each in together))
        items = [item for each in together for item in each.items] if len(together) > 1 else together[0].items
        try:
            async with asyncio.timeout(call.timeout_s):
                results: Results = await append(aim, items, call)
        except (StreamhouseError, TimeoutError) as error:
            for each in together:
                each.results = error
        else:
            _fill_responses(results, together)


def group_by_target(shares: Sequence[Share[Target, Item]]) -> Iterator[list[Share[Target, Item]]]:
    """Neighbours that share an append. A message with an idempotency key is recognised by its content, so it is
    appended alone."""
    for (aim, _), together in groupby(
        enumerate(shares), key=lambda each: (each[1].aim, each[0] if _is_alone(each[1]) else -1)
    ):
        assert aim is not None
        yield [share for _, share in together]


def _is_alone(share: Share[Target, Item]) -> bool:
    return share.aim is not None and share.aim.idempotency_key is not None


def _fill_responses(results: Results, together: Sequence[Share[Target, Item]]) -> None:
    position = 0
    for each in together:
        each.results = results[position : position + len(each.items)]
        position += len(each.items)


def _records_response(share: Share[RecordsTarget, Item]) -> bytes:
    try:
        message = pb.ProduceStreamResponse(produced=produce_response(_good(share.results)))
    except (StreamhouseError, TimeoutError) as error:
        message = pb.ProduceStreamResponse(error=_error(error, share.call))
    return message.SerializeToString()


def _batches_response(share: Share[BatchesTarget, Item]) -> bytes:
    try:
        message = pb.ProduceBatchesStreamResponse(produced=produce_batches_response(_good(share.results)))
    except (StreamhouseError, TimeoutError) as error:
        message = pb.ProduceBatchesStreamResponse(error=_error(error, share.call))
    return message.SerializeToString()


def _good(results: Results | StreamhouseError | TimeoutError) -> Results:
    if isinstance(results, StreamhouseError | TimeoutError):
        raise results
    return results


def _error(error: StreamhouseError | TimeoutError, call: Call) -> pb.Error:
    if isinstance(error, StreamhouseError):
        return as_message(error)
    code: int = grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
    text = f"not acknowledged in time; timeout_s={call.timeout_s:g}"
    return pb.Error(code=code, name="DeadlineExceeded", message=text, retriable=True)
