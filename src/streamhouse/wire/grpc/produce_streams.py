"""Produce streams: message after message is appended, in order, without waiting for each other's answers.

Data path   calls -> **produce streams** -> rounds -> producing -> broker.records
Owns        which messages of a round share an append; that a message which fails says so in its answer
Leaves      how many are in flight to `rounds`, appending to `producing`

Messages to one place (a topic, or for batches a partition) are appended in their order: neighbours that want the same
share one append, others follow each other. Different places don't wait for each other within a round.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

import grpc

from streamhouse.errors import StreamhouseError

from .calls import Call, Send
from .errors import as_message
from .generated import streamhouse_pb2 as pb
from .producing import (
    BatchesAim,
    Producing,
    RecordsAim,
    Results,
    produced,
    produced_batches,
    read_batches,
    read_records,
)
from .rounds import answer_in_rounds

Aim = TypeVar("Aim", RecordsAim, BatchesAim)
Item = TypeVar("Item")
Q = TypeVar("Q")
Append = Callable[[Aim, Sequence[Item], Call], Awaitable[Results]]


@dataclass(slots=True, kw_only=True)
class Share(Generic[Aim, Item]):
    """What one message wants, and at last what became of it."""

    aim: Aim | None
    items: list[Item]
    call: Call
    results: Results | StreamhouseError | TimeoutError

    @classmethod
    def of(cls, read: Callable[[Q], tuple[Aim, list[Item]]], request: Q, call: Call) -> "Share[Aim, Item]":
        try:
            aim, items = read(request)
        except StreamhouseError as error:
            return cls(aim=None, items=[], call=call, results=error)
        return cls(aim=aim, items=items, call=call, results=[])


async def records_stream(
    producing: Producing, requests: AsyncIterator[tuple[pb.ProduceStreamRequest, Call]], send: Send, *, limit: int
) -> None:
    # Messages are opened as they come, one at a time, so that the loop has a chance in between.
    shares = (Share.of(read_records, request.produce, call) async for request, call in requests)
    await _stream(shares, producing.append_records, _records_answer, send, limit=limit)


async def batches_stream(
    producing: Producing,
    requests: AsyncIterator[tuple[pb.ProduceBatchesStreamRequest, Call]],
    send: Send,
    *,
    limit: int,
) -> None:
    shares = (Share.of(read_batches, request.produce, call) async for request, call in requests)
    await _stream(shares, producing.append_batches, _batches_answer, send, limit=limit)


async def _stream(
    shares: AsyncIterator[Share[Aim, Item]],
    append: Append[Aim, Item],
    answer: Callable[[Share[Aim, Item]], bytes],
    send: Send,
    *,
    limit: int,
) -> None:
    async def work(asked: Sequence[Share[Aim, Item]]) -> list[bytes]:
        await append_round(asked, append)
        return [answer(share) for share in asked]

    await answer_in_rounds(shares, work, send, limit=limit)


async def append_round(shares: Sequence[Share[Aim, Item]], append: Append[Aim, Item]) -> None:
    """Append what these messages want; each learns what became of it."""
    places: dict[object, list[Share[Aim, Item]]] = {}
    for share in shares:
        if share.aim is not None:
            places.setdefault(share.aim.place, []).append(share)
    async with asyncio.TaskGroup() as tasks:
        for together in places.values():
            tasks.create_task(_append_place(together, append), name="append")


async def _append_place(shares: Sequence[Share[Aim, Item]], append: Append[Aim, Item]) -> None:
    for together in sharing(shares):
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
            _hand_out(results, together)


def sharing(shares: Sequence[Share[Aim, Item]]) -> Iterator[list[Share[Aim, Item]]]:
    """Neighbours that share an append. A message with an idempotency key is recognised by its content, so it is
    appended alone."""
    for (aim, _), together in groupby(
        enumerate(shares), key=lambda each: (each[1].aim, each[0] if _is_alone(each[1]) else -1)
    ):
        assert aim is not None
        yield [share for _, share in together]


def _is_alone(share: Share[Aim, Item]) -> bool:
    return share.aim is not None and share.aim.idempotency_key is not None


def _hand_out(results: Results, together: Sequence[Share[Aim, Item]]) -> None:
    position = 0
    for each in together:
        each.results = results[position : position + len(each.items)]
        position += len(each.items)


def _records_answer(share: Share[RecordsAim, Item]) -> bytes:
    try:
        message = pb.ProduceStreamResponse(produced=produced(_good(share.results)))
    except (StreamhouseError, TimeoutError) as error:
        message = pb.ProduceStreamResponse(error=_error(error, share.call))
    return message.SerializeToString()


def _batches_answer(share: Share[BatchesAim, Item]) -> bytes:
    try:
        message = pb.ProduceBatchesStreamResponse(produced=produced_batches(_good(share.results)))
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
