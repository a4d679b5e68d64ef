"""Forgetting: aborted transactions of which compaction left nothing are told to nobody any more.

Data path   none: cleaning, replacements -> **forgetting** -> rows of the metadata store, logs of this agent
Owns        the order: the row first, then whoever leads; what others forgot is forgotten here at the next look
Leaves      when nothing of a transaction is left to `format.compaction`, the rows to the metadata store

A consumer that is told of an aborted transaction leaves out what its producer wrote until it meets the marker. So the
marker may go only when nobody is told any more, which is what the delete horizon of the marker gives time for.
"""

from collections.abc import Callable, Iterable
from typing import Final

from streamhouse.broker.doors import Doors
from streamhouse.broker.log import PartitionLog
from streamhouse.broker.reading.settled import aborted_within
from streamhouse.model.names import PartitionId
from streamhouse.model.transaction import AbortedTransaction

MOST: Final = 1000
"""Rows that one statement forgets."""


class Forgetting:
    def __init__(self, doors: Doors, *, logs: Callable[[], Iterable[PartitionLog]]) -> None:
        self._metadata = doors.metadata
        self._logs = logs
        self.forgotten = 0

    def __repr__(self) -> str:
        return f"<Forgetting forgotten={self.forgotten}>"

    async def forget(self, partition: PartitionId, aborted: Iterable[AbortedTransaction], spent: Iterable[int]) -> None:
        """Of these transactions forget those whose markers, at the offsets that are `spent`, have nothing left."""
        offsets = set(spent)
        await self.forget_ended(partition, [each.last_offset for each in aborted if each.last_offset in offsets])

    async def forget_ended(self, partition: PartitionId, last_offsets: list[int]) -> None:
        """Forget the transactions whose markers stand at these offsets, if they were aborted."""
        for start in range(0, len(last_offsets), MOST):
            some = last_offsets[start : start + MOST]
            await self._metadata.forget_aborted(partition, some)
            self.forgotten += len(some)
        if last_offsets:
            for item in self._logs():
                if item.partition == partition:
                    item.forget_aborted(last_offsets)

    async def catch_up(self) -> None:
        """Forget what others forgot, in logs of compacted topics that are led here."""
        known = {item.partition: (item, told) for item in self._logs() if (told := _flushed_aborted(item))}
        if not known:
            return
        wanted = {at: range(item.log_start, item.flushed_end) for at, (item, _) in known.items()}
        rows = await aborted_within(self._metadata, wanted)
        for at, (item, told) in known.items():
            left = {each.last_offset for each in rows.get(at, ())}
            if gone := [each.last_offset for each in told if each.last_offset not in left]:
                item.forget_aborted(gone)


def _flushed_aborted(item: PartitionLog) -> list[AbortedTransaction]:
    """What the log tells of aborted transactions that have their rows."""
    if not item.config.compacts:
        return []
    end = item.flushed_end
    return [each for each in item.aborted_between(item.log_start, end) if each.last_offset < end]
