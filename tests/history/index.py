"""Index: a history, looked up by what the checks ask for.

Owns        who sent a record, where it stands, what the truth about a partition is, what may be missing
Leaves      judging to the checks
"""

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from .events import History, Item, LogRead, Transaction, Write


class Sight(NamedTuple):
    """A record that somebody was given, or was told to stand, at an offset."""

    partition: str
    item: Item
    who: str
    at: float | None
    is_committed: bool


class Index:
    def __init__(self, history: History) -> None:
        self.history = history

    @cached_property
    def writes(self) -> dict[str, Write]:
        return {write.value: write for write in self.history.writes}

    @cached_property
    def transactions(self) -> dict[str, Transaction]:
        return {each.label: each for each in self.history.transactions}

    @cached_property
    def logs(self) -> dict[str, LogRead]:
        return self.history.final_logs(is_committed=False)

    @cached_property
    def committed_logs(self) -> dict[str, LogRead]:
        return self.history.final_logs(is_committed=True)

    def log(self, partition: str, *, is_committed: bool) -> LogRead | None:
        return (self.committed_logs if is_committed else self.logs).get(partition)

    @cached_property
    def values(self) -> dict[tuple[str, bool], dict[str | None, list[int]]]:
        """By partition and isolation: where each record stands in the last reading."""
        results: dict[tuple[str, bool], dict[str | None, list[int]]] = {}
        for logs, is_committed in ((self.logs, False), (self.committed_logs, True)):
            for partition, log in logs.items():
                offsets: dict[str | None, list[int]] = defaultdict(list)
                for item in log.items:
                    offsets[item.value].append(item.offset)
                results[partition, is_committed] = offsets
        return results

    def offsets_of(self, value: str, partition: str, *, is_committed: bool = False) -> list[int]:
        return self.values.get((partition, is_committed), {}).get(value, [])

    @cached_property
    def seen_committed(self) -> set[str]:
        """Transactions of which something is committed at the end."""
        values = (item.value for log in self.committed_logs.values() for item in log.items)
        return {each.label for value in values if (each := self.transaction_of(value)) is not None}

    def excuses(self, partition: str, offset: int | None) -> bool:
        """Whether the record at an offset may be missing, or another one; None: at some offset of the partition."""
        deletable, ranges = self.history.deletable.get(partition, 0), self.history.given_up.get(partition, ())
        if offset is None or offset < 0:
            return deletable > 0 or bool(ranges)
        return offset < deletable or any(start <= offset < end for start, end in ranges)

    def transaction_of(self, value: str | None) -> Transaction | None:
        write = self.writes.get(value or "")
        return None if write is None or write.transaction is None else self.transactions.get(write.transaction)

    def sights(self) -> Iterator[Sight]:
        """Everything that readers were given: first what was polled, then the logs in the order of their reading."""
        for poll in self.history.polls:
            for item in poll.items:
                yield Sight(poll.partition, item, poll.reader, poll.ended, poll.is_committed)
        for number, log in enumerate(self.history.logs):
            for item in log.items:
                yield Sight(log.partition, item, f"reading {number} of the log", None, log.is_committed)
