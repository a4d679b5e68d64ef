"""Delivery: the pending result of a record that was enqueued.

All records of a batch succeed or fail together, so a delivery is a position in a batch: a future per record would cost
more than sending it.
"""

import asyncio
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from streamhouse.errors import StreamhouseError
from streamhouse.model.record import NewRecord, Receipt

NO_SEQUENCE: Final = -1


class Delivery:
    """Await it for the record's `Receipt`; raises the error if the record was not stored. A failure that is not read is
    raised by the producer's `flush`, or when it closes."""

    __slots__ = ("batch", "position", "was_seen")

    def __init__(self, batch: "Batch", position: int) -> None:
        self.batch, self.position, self.was_seen = batch, position, False

    def __repr__(self) -> str:
        return f"<Delivery {'pending' if not self.done() else self.failure() or self.result()}>"

    def done(self) -> bool:
        return self.batch.is_over

    def result(self) -> Receipt:
        """Where the record was stored; raises the error of a record that was not. Call it only when `done`."""
        if not self.batch.is_over:
            raise asyncio.InvalidStateError("the delivery is pending")
        self.was_seen = True
        if self.batch.error is not None:
            raise self.batch.error
        return self.batch.receipts(self.position)

    def failure(self) -> StreamhouseError | None:
        """The error of a record that was not stored. It does not count as read."""
        return self.batch.error

    async def settled(self) -> None:
        """Wait until the delivery is done. Its error does not count as read."""
        while not self.batch.is_over:
            await asyncio.shield(self.batch.changed())

    def __await__(self) -> Generator[Any, None, Receipt]:
        self.was_seen = True
        while not self.batch.is_over:  # a batch may be split: the record is then in another one
            yield from asyncio.shield(self.batch.changed()).__await__()
        return self.result()


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition that are sent together."""

    partition: int
    opened_at: float
    expires_at: float
    records: list[NewRecord] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    size_bytes: int = 0
    sequence: int = NO_SEQUENCE
    send_count: int = 0  # batches that the sender had numbered when this one got its number
    sent_alone: bool = False
    may_be_stored: bool = False  # an attempt ended without a response that rejects the batch
    is_over: bool = False
    error: StreamhouseError | None = None
    base_offset: int | None = None
    timestamp_ms: int | None = None
    _changed: "asyncio.Future[None] | None" = None

    def add(self, record: NewRecord, size_bytes: int) -> Delivery:
        delivery = Delivery(self, len(self.records))
        self.records.append(record)
        self.deliveries.append(delivery)
        self.size_bytes += size_bytes
        return delivery

    def split_off(self, positions: Sequence[int]) -> "Batch":
        """Move some of the records, with their share of the bytes, to a new batch."""
        part = Batch(partition=self.partition, opened_at=self.opened_at, expires_at=self.expires_at)
        part.records = [self.records[at] for at in positions]
        part.deliveries = [self.deliveries[at] for at in positions]
        part.size_bytes = self.size_bytes * len(positions) // len(self.records)
        for position, delivery in enumerate(part.deliveries):
            delivery.batch, delivery.position = part, position
        self.notify()
        return part

    def receipts(self, position: int) -> Receipt:
        base, appended_ms = self.base_offset, self.timestamp_ms
        timestamp_ms = appended_ms if appended_ms is not None else self.records[position].timestamp_ms or 0
        return Receipt(self.partition, None if base is None else base + position, timestamp_ms)

    def succeed(self, base_offset: int | None, timestamp_ms: int | None) -> None:
        if not self.is_over:
            self.is_over, self.base_offset, self.timestamp_ms = True, base_offset, timestamp_ms
            self.deliveries = []
            self.notify()

    def fail(self, error: StreamhouseError) -> None:
        if not self.is_over:
            self.is_over, self.error = True, error
            self.notify()

    @property
    def is_unseen(self) -> bool:
        """Whether it failed, and the caller has not read the error of every record."""
        return self.error is not None and not all(delivery.was_seen for delivery in self.deliveries)

    def changed(self) -> "asyncio.Future[None]":
        """Done when the batch has a result, or was split."""
        if self._changed is None or self._changed.done():
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def notify(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
