"""Subscription: which partitions a consume stream reads, from where, and how much the client wants to be sent.

Data path   none; `consuming` asks it what to read and tells it what was sent
Owns        positions, credit, whose turn it is
Leaves      reading and sending to `consuming`

Plain and synchronous. Two kinds of credit, each counted from its first grant on.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from streamhouse.errors import Rejected
from streamhouse.model.names import TopicPartition

from .outgoing import Room

UNLIMITED: Final = 2**62


class Subscription:
    def __init__(self, *, max_partitions: int, message_bytes: int) -> None:
        self._max_partitions = max_partitions
        self._message_bytes = message_bytes
        self._positions: dict[TopicPartition, int] = {}
        self._records: int | None = None
        self._bytes: int | None = None
        self.client_is_done = False
        self.changed = asyncio.Event()
        """Other partitions, credit where there was none, or the client's end: what was decided before is old."""

    def __repr__(self) -> str:
        return f"<Subscription partitions={len(self._positions)} records={self._records} bytes={self._bytes}>"

    # --- what the client says

    def subscribe(self, name: TopicPartition, offset: int) -> None:
        if name not in self._positions and len(self._positions) >= self._max_partitions:
            raise Rejected(f"too many partitions; limit={self._max_partitions} setting=grpc.max_positions")
        self._positions[name] = offset
        self.changed.set()

    def drop(self, name: TopicPartition) -> None:
        if self._positions.pop(name, None) is not None:
            self.changed.set()

    def grant(self, *, records: int, size_bytes: int) -> None:
        had_credit = self.has_credit
        if records:
            self._records = min(UNLIMITED, (self._records or 0) + records)
        if size_bytes:
            self._bytes = min(UNLIMITED, (self._bytes or 0) + size_bytes)
        if self.has_credit != had_credit:
            self.changed.set()

    def end(self) -> None:
        self.client_is_done = True
        self.changed.set()

    # --- what follows from it

    @property
    def has_credit(self) -> bool:
        return (self._records is None or self._records > 0) and (self._bytes is None or self._bytes > 0)

    @property
    def is_over(self) -> bool:
        """Nothing more can ever be sent."""
        return self.client_is_done and not (self._positions and self.has_credit)

    @property
    def wants(self) -> dict[TopicPartition, int]:
        """What to read next, those first that were not served for longest; nothing without credit."""
        return dict(self._positions) if self.has_credit else {}

    def is_at(self, name: TopicPartition, offset: int) -> bool:
        """Whether the client still wants the partition from there."""
        return self._positions.get(name) == offset

    def room(self) -> Room:
        """What the next message may hold."""
        return Room(
            records=UNLIMITED if self._records is None else self._records,
            size_bytes=min(self._message_bytes, UNLIMITED if self._bytes is None else self._bytes),
        )

    # --- what was done

    def spent(self, *, records: int, size_bytes: int) -> None:
        if self._records is not None:
            self._records -= records
        if self._bytes is not None:
            self._bytes -= size_bytes

    def moved(self, name: TopicPartition, offset: int) -> None:
        """So far was sent; the others have their turn first."""
        if name in self._positions:
            del self._positions[name]
            self._positions[name] = offset

    def names(self) -> Iterable[TopicPartition]:
        return list(self._positions)
