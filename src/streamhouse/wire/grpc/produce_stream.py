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
from streamhouse.wire.grpc.decoding import translate
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
    """Take the requests that have arrived; the end of the stream stays in the queue."""
    queued: list[Request] = []
    while not waiting.empty():
        if (request := waiting.get_nowait()) is None:
            waiting.put_nowait(None)
            break
        queued.append(request)
    return queued


Target = TypeVar("Target", RecordsTarget, BatchesTarget)
Item = TypeVar("Item")
Append = Callable[[Target, Sequence[Item], Call], Awaitable[Results]]


@dataclass(slots=True, kw_only=True)
class StreamMessage(Generic[Target, Item]):
    """One message of a stream, with its results once it is appended."""

    target: Target | None
    items: list[Item]
    call: Call
    results: Results | StreamhouseError | TimeoutError

    @classmethod
    async def of(
        cls, read: Callable[[Request], tuple[Target, list[Item]]], request: Request, call: Call
    ) -> "StreamMessage[Target, Item]":
        try:
            target, items = await translate(read, request, size_bytes=call.size_bytes)
        except StreamhouseError as error:
            return cls(target=None, items=[], call=call, results=error)
        return cls(target=target, items=items, call=call, results=[])


async def records_stream(
    producing: ProduceService, requests: AsyncIterator[tuple[pb.ProduceStreamRequest, Call]], send: Send, *, limit: int
) -> None:
    # Messages are translated one at a time as they arrive, so that the event loop isn't blocked.
    messages = (await StreamMessage.of(read_records, request.produce, call) async for request, call in requests)
    await _stream(messages, producing.append_records, _records_response, send, limit=limit)


async def batches_stream(
    producing: ProduceService,
    requests: AsyncIterator[tuple[pb.ProduceBatchesStreamRequest, Call]],
    send: Send,
    *,
    limit: int,
) -> None:
    messages = (await StreamMessage.of(read_batches, request.produce, call) async for request, call in requests)
    await _stream(messages, producing.append_batches, _batches_response, send, limit=limit)


async def _stream(
    messages: AsyncIterator[StreamMessage[Target, Item]],
    append: Append[Target, Item],
    response: Callable[[StreamMessage[Target, Item]], bytes],
    send: Send,
    *,
    limit: int,
) -> None:
    async def work(batch: Sequence[StreamMessage[Target, Item]]) -> list[bytes]:
        await append_batch(batch, append)
        return [await translate(response, message, size_bytes=message.call.size_bytes) for message in batch]

    await respond_in_batches(messages, work, send, limit=limit)


async def append_batch(messages: Sequence[StreamMessage[Target, Item]], append: Append[Target, Item]) -> None:
    """Append these messages and set the results of each."""
    by_target: dict[object, list[StreamMessage[Target, Item]]] = {}
    for message in messages:
        if message.target is not None:
            by_target.setdefault(message.target.ordering_key, []).append(message)
    async with asyncio.TaskGroup() as tasks:
        for together in by_target.values():
            tasks.create_task(_append_in_order(together, append), name="append")


async def _append_in_order(messages: Sequence[StreamMessage[Target, Item]], append: Append[Target, Item]) -> None:
    for together in group_by_target(messages):
        target = together[0].target
        assert target is not None
        call = Call(
            min(each.call.timeout_s for each in together),
            sum(each.call.size_bytes for each in together),
            together[0].call.access,
        )
        items = [item for each in together for item in each.items] if len(together) > 1 else together[0].items
        try:
            async with asyncio.timeout(call.timeout_s):
                results: Results = await append(target, items, call)
        except (StreamhouseError, TimeoutError) as error:
            for each in together:
                each.results = error
        else:
            _fill_responses(results, together)


def group_by_target(messages: Sequence[StreamMessage[Target, Item]]) -> Iterator[list[StreamMessage[Target, Item]]]:
    """Group neighbours that can share an append. A message with an idempotency key is recognised by its content, so it
    is appended alone."""
    for (target, _), neighbours in groupby(
        enumerate(messages), key=lambda each: (each[1].target, each[0] if _is_alone(each[1]) else -1)
    ):
        assert target is not None
        yield [message for _, message in neighbours]


def _is_alone(message: StreamMessage[Target, Item]) -> bool:
    return message.target is not None and message.target.idempotency_key is not None


def _fill_responses(results: Results, together: Sequence[StreamMessage[Target, Item]]) -> None:
    position = 0
    for each in together:
        each.results = results[position : position + len(each.items)]
        position += len(each.items)


def _records_response(message: StreamMessage[RecordsTarget, Item]) -> bytes:
    try:
        response = pb.ProduceStreamResponse(produced=produce_response(_good(message.results)))
    except (StreamhouseError, TimeoutError) as error:
        response = pb.ProduceStreamResponse(error=_error(error, message.call))
    return response.SerializeToString()


def _batches_response(message: StreamMessage[BatchesTarget, Item]) -> bytes:
    try:
        response = pb.ProduceBatchesStreamResponse(produced=produce_batches_response(_good(message.results)))
    except (StreamhouseError, TimeoutError) as error:
        response = pb.ProduceBatchesStreamResponse(error=_error(error, message.call))
    return response.SerializeToString()


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
