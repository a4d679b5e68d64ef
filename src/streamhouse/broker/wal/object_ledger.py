"""Ledger of an object log: which of its objects somebody still needs. Decides; touches nothing.

Data path   objects tells the **ledger** what goes into an object, what is durable and what was flushed
Owns        the lowest number that recovery would need; how much the log holds
Leaves      storing that number to the broker's heartbeat, deleting to `object_removal`

Objects are let go in order only: recovery reads numbers without gaps from the mark on, so one quiet partition holds
back everything behind it until it is flushed by age.
"""

from collections import deque
from collections.abc import Mapping

from streamhouse.model.names import PartitionId


class ObjectLedger:
    def __init__(self) -> None:
        self._ends: dict[PartitionId, deque[tuple[int, int]]] = {}
        """Per partition (end, sequence) of the objects that hold entries of it which are not known to be flushed."""
        self._holders: dict[int, int] = {}
        """Per sequence how many partitions hold it back."""
        self._sizes: dict[int, int] = {}
        self.durable_below = 0
        self._needed_from = 0
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"<ObjectLedger needed={self._needed_from} durable_below={self.durable_below} bytes={self.size_bytes}>"

    @property
    def needed_from(self) -> int:
        return self._needed_from

    def note(self, sequence: int, partition: PartitionId, end: int) -> None:
        """The object will hold entries of the partition below `end`. Sequences never go down from call to call."""
        ends = self._ends.get(partition)
        if ends is None:
            ends = self._ends[partition] = deque()
        if ends and ends[-1][1] == sequence:
            ends[-1] = (max(end, ends[-1][0]), sequence)
            return
        ends.append((end, sequence))
        self._holders[sequence] = self._holders.get(sequence, 0) + 1

    def resize(self, sequence: int, size_bytes: int) -> None:
        self.size_bytes += size_bytes - self._sizes.get(sequence, 0)
        self._sizes[sequence] = size_bytes

    def durable(self, sequence: int) -> None:
        """This object and all below it are durable."""
        self.durable_below = sequence + 1
        self._advance()

    def strike(self, flushed: Mapping[PartitionId, int]) -> None:
        """Entries of these partitions below these offsets are published elsewhere."""
        for partition, offset in flushed.items():
            ends = self._ends.get(partition)
            while ends and ends[0][0] <= offset:
                self._release(ends.popleft()[1])
            if ends is not None and not ends:
                del self._ends[partition]
        self._advance()

    def gone(self, sequence: int) -> None:
        """The object was deleted."""
        self.size_bytes -= self._sizes.pop(sequence, 0)

    def _release(self, sequence: int) -> None:
        left = self._holders[sequence] - 1
        if left:
            self._holders[sequence] = left
        else:
            del self._holders[sequence]

    def _advance(self) -> None:
        # Not past what isn't durable: recovery would begin behind a number that may yet be missing.
        while self._needed_from < self.durable_below and self._needed_from not in self._holders:
            self._needed_from += 1
