"""Synchronous producer: records from a program's threads, sent by the producer on the loop's thread.

A call to another thread for every record would cost more than sending it: threads append records to a bounded queue and
wake the loop only if it isn't working on the queue already.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from streamhouse.client.delivery import Delivery
from streamhouse.client.loop_thread import LoopThread
from streamhouse.client.producer import Producer, size_of
from streamhouse.client.serde import AnyHeaders
from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.model.record import NewRecord, Receipt

MAX_REJECTED: Final = 1000
"""Maximum number of failed deliveries kept for `flush`, which raises the first one that the caller has not read."""


class SyncDelivery:
    """`result()` waits for the record's receipt, or raises why it was not stored."""

    __slots__ = ("_delivery", "_error", "_wait", "is_seen")

    def __init__(self, wait: "Callable[[SyncDelivery, float | None], Receipt]") -> None:
        self._wait = wait
        self._delivery: Delivery | None = None
        self._error: StreamhouseError | None = None
        self.is_seen = False
        """Whether the caller has read the error."""

    def __repr__(self) -> str:
        return f"<SyncDelivery {self._error or self._delivery or 'pending'}>"

    def done(self) -> bool:
        return self._error is not None or (self._delivery is not None and self._delivery.done())

    def result(self, timeout_s: float | None = None) -> Receipt:
        """Where the record was stored; raises its error, or `TimeoutError`."""
        return self._wait(self, timeout_s)

    def set_delivery(self, delivery: Delivery | None, error: StreamhouseError | None = None) -> None:
        self._delivery, self._error = delivery, error

    def delivery(self) -> Delivery:
        if self._error is not None:
            self.is_seen = True
            raise self._error
        assert self._delivery is not None, "not handed over yet"
        return self._delivery


class SyncProducer:
    """`send` returns when a record is stored; `enqueue` returns a `SyncDelivery` as soon as there is room. See
    `Producer`."""

    def __init__(self, loop: LoopThread, producer: Producer, *, buffer_bytes: int) -> None:
        self.topic = producer.topic
        self._loop, self._producer, self._limit_bytes = loop, producer, buffer_bytes
        self._changed = threading.Condition()
        self._inbox: deque[tuple[NewRecord, SyncDelivery]] = deque()
        self._inbox_bytes = 0
        self._at_work: asyncio.Task[None] | None = None
        self._is_woken = False
        self._failed: list[SyncDelivery] = []

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
        if kind is None:
            self._raise_first_failure()

    def send(
        self,
        value: Any,
        *,
        key: Any = None,
        headers: AnyHeaders = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Receipt:
        """Store a record; returns its position."""
        self._check_open()
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
        """Add a record to the buffer; waits only while the buffer is full. `result()` waits for the receipt."""
        self._check_open()
        record = self._producer.record(value, key, headers, timestamp_ms, partition)
        delivery = SyncDelivery(self._wait_for)
        with self._changed:
            while self._inbox_bytes >= self._limit_bytes:
                self._changed.wait()
            self._inbox.append((record, delivery))
            self._inbox_bytes += size_of(record)
            if not self._is_woken:
                self._is_woken = True
                self._loop.loop.call_soon_threadsafe(self._begin)
        return delivery

    def _check_open(self) -> None:
        if not self._producer.is_open:
            raise Rejected("the producer is not open; use it in: with client.producer(...) as producer")

    def flush(self) -> None:
        """Wait until no record is pending; raises the first failure that the caller has not read."""
        self._empty()
        self._loop.run(self._producer.flush())
        self._raise_first_failure()

    def _raise_first_failure(self) -> None:
        with self._changed:
            failed, self._failed = [d for d in self._failed if not d.is_seen], []
        for delivery in failed:
            delivery.delivery()

    def _empty(self) -> None:
        """Wait until the loop has taken all records."""
        with self._changed:
            while self._inbox or self._is_woken:
                self._changed.wait()

    def _begin(self) -> None:
        self._at_work = self._loop.loop.create_task(self._take_over())

    async def _take_over(self) -> None:
        """On the loop: pass queued records to the producer, which waits while its buffer is full."""
        while True:
            with self._changed:
                taken, self._inbox = self._inbox, deque()
                if not taken:
                    self._is_woken = False
                    self._changed.notify_all()
                    return
            for record, delivery in taken:
                await self._enqueue(record, delivery)
            with self._changed:
                self._inbox_bytes -= sum(size_of(record) for record, _ in taken)
                self._changed.notify_all()

    async def _enqueue(self, record: NewRecord, delivery: SyncDelivery) -> None:
        try:
            delivery.set_delivery(await self._producer.put(record))
        except StreamhouseError as error:
            delivery.set_delivery(None, error)
            with self._changed:
                if len(self._failed) < MAX_REJECTED:
                    self._failed.append(delivery)

    def _wait_for(self, delivery: SyncDelivery, timeout_s: float | None) -> Receipt:
        self._empty()
        return self._loop.run(_awaited(delivery.delivery(), timeout_s))


async def _awaited(delivery: Delivery, timeout_s: float | None) -> Receipt:
    async with asyncio.timeout(timeout_s):
        return await delivery
