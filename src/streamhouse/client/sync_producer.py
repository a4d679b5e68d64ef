"""Sync producer: records from a program's threads, handed to the producer on the loop's thread.

Data path   a program's threads -> **inbox** -> the loop's thread -> `producer`
Owns        the inbox, its bound, and deliveries that a thread can wait for
Leaves      everything else to `producer`

A call to another thread for every record would cost more than sending it: threads put records into the inbox and wake
the loop only where it isn't at work on it already.
"""

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from streamhouse.client.delivery import Delivery
from streamhouse.client.loop_thread import LoopThread
from streamhouse.client.producer import Producer, size_of
from streamhouse.client.serde import AnyHeaders
from streamhouse.errors import StreamhouseError
from streamhouse.model.record import NewRecord, Receipt

SyncDelivery: TypeAlias = "Future[Receipt]"
"""`result()` waits for the receipt, or raises why there is none."""

MAX_UNSEEN: Final = 1_000


class SyncProducer:
    """`send` returns when a record is stored; `enqueue` as soon as there is room, with a promise. See `Producer`."""

    def __init__(self, loop: LoopThread, producer: Producer, *, buffer_bytes: int) -> None:
        self.topic = producer.topic
        self._loop, self._producer, self._limit_bytes = loop, producer, buffer_bytes
        self._changed = threading.Condition()
        self._inbox: deque[tuple[NewRecord, SyncDelivery]] = deque()
        self._inbox_bytes = 0
        self._at_work: asyncio.Task[None] | None = None
        self._is_woken = False

    def __repr__(self) -> str:
        return f"<Sync{repr(self._producer)[1:]}"

    def __enter__(self) -> Self:
        self._loop.run(self._producer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._empty()
        self._loop.run(self._producer.__aexit__(kind, error, trace))

    def send(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: AnyHeaders = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Receipt:
        """Store a record; returns where it is."""
        sending = self._producer.send(value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
        return self._loop.run(sending)

    def enqueue(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: AnyHeaders = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> SyncDelivery:
        """Hand a record over; waits only while the memory is full. `result()` waits for the receipt."""
        record = self._producer.record(value, key, headers, timestamp_ms, partition)
        delivery: SyncDelivery = Future()
        with self._changed:
            while self._inbox_bytes >= self._limit_bytes:
                self._changed.wait()
            self._inbox.append((record, delivery))
            self._inbox_bytes += size_of(record)
            if not self._is_woken:
                self._is_woken = True
                self._loop.loop.call_soon_threadsafe(self._begin)
        return delivery

    def flush(self) -> None:
        """Wait until nothing is under way; raises the first failure that nobody has looked at."""
        self._empty()
        self._loop.run(self._producer.flush())

    def _empty(self) -> None:
        """Until the loop has taken everything over."""
        with self._changed:
            while self._inbox or self._is_woken:
                self._changed.wait()

    def _begin(self) -> None:
        self._at_work = self._loop.loop.create_task(self._take_over())

    async def _take_over(self) -> None:
        """On the loop: what is in the inbox goes to the producer, which lets it wait while its memory is full."""
        while True:
            with self._changed:
                taken, self._inbox = self._inbox, deque()
                if not taken:
                    self._is_woken = False
                    self._changed.notify_all()
                    return
            for record, delivery in taken:
                await self._hand_over(record, delivery)
            with self._changed:
                self._inbox_bytes -= sum(size_of(record) for record, _ in taken)
                self._changed.notify_all()

    async def _hand_over(self, record: NewRecord, delivery: SyncDelivery) -> None:
        try:
            handed = await self._producer.put(record)
        except StreamhouseError as error:
            delivery.set_exception(error)
            return
        handed.add_done_callback(lambda done: _settle(delivery, done))


def _settle(delivery: SyncDelivery, done: "asyncio.Future[Receipt]") -> None:
    assert isinstance(done, Delivery)
    failure = done.failure()
    if failure is not None:
        delivery.set_exception(failure)
    elif not done.cancelled():
        delivery.set_result(asyncio.Future.result(done))
