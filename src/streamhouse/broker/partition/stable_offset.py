"""LastStableOffset: the last stable offset of a partition, and its aborted transactions.

Data path   log -> **stable_offset** in the step that appends a batch or marker; fetch reads it
Owns        open transactions, transactions whose markers aren't durable yet, the aborted ones in memory
Leaves      ending a transaction to `producer_state`, rows of aborted ones to the metadata store, reading them to
            `fetch`

The last stable offset is the first offset of the oldest transaction that is open or whose marker isn't durable yet,
because such a marker may be lost. Without one it is the high watermark.

Aborted transactions are kept in memory up to a limit. The oldest flushed ones are dropped first: those from
`complete_from` on are all in memory, earlier ones are read from the metadata store.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from streamhouse.model.transaction import AbortedTransaction

MAX_RETAINED: Final = 10_000
"""Default limit of aborted transactions in memory."""


class _EndedTransaction(NamedTuple):
    """A transaction whose marker is appended but not durable until the high watermark reaches `end`."""

    end: int
    first_offset: int


class AbortedIndex(NamedTuple):
    """Aborted transactions of a partition by the offset of their marker; complete from `complete_from` on."""

    transactions: Sequence[AbortedTransaction] = ()
    complete_from: int = 0


class LastStableOffset:
    __slots__ = ("_aborted", "_ending", "_kept", "_lasts", "_longest", "_open", "complete_from")

    def __init__(self, open_transactions: Mapping[int, int], aborted: AbortedIndex, *, kept: int) -> None:
        self._open = dict(open_transactions)  # ordered by offset, because they start in that order
        self._ending: deque[_EndedTransaction] = deque()
        self._aborted: list[AbortedTransaction] = []
        self._lasts: list[int] = []
        self._longest = 0
        self._kept = kept
        self.complete_from = aborted.complete_from
        for each in aborted.transactions:
            self._add(each)

    def __repr__(self) -> str:
        return f"<LastStableOffset open={len(self._open)} ending={len(self._ending)} aborted={len(self._aborted)}>"

    @property
    def is_stable(self) -> bool:
        """Whether the last stable offset is the high watermark."""
        return not self._open and not self._ending

    @property
    def open_producers(self) -> Collection[int]:
        """The producers with open transactions."""
        return self._open.keys()

    def first_open_offset(self) -> int:
        """The first offset of the oldest transaction that has not ended durably; only if not `is_stable`."""
        first = min((each.first_offset for each in self._ending), default=None)
        if not self._open:
            assert first is not None, "nothing is undecided"
            return first
        begun = next(iter(self._open.values()))
        return begun if first is None else min(begun, first)

    # --- transactions

    def started(self, producer_id: int, offset: int) -> None:
        """A batch of a transaction was appended, possibly its first."""
        self._open.setdefault(producer_id, offset)

    def ended(self, producer_id: int, end: int, aborted: AbortedTransaction | None) -> None:
        """The marker that ends at `end` was appended."""
        first = self._open.pop(producer_id, None)
        if first is not None:
            self._ending.append(_EndedTransaction(end, first))
        if aborted is not None:
            self._add(aborted)

    def advance(self, high_watermark: int) -> None:
        """Markers below the high watermark are durable."""
        while self._ending and self._ending[0].end <= high_watermark:
            self._ending.popleft()

    # --- aborted transactions

    @property
    def has_aborted(self) -> bool:
        return bool(self._aborted)

    def aborted_between(self, start: int, end: int) -> Sequence[AbortedTransaction]:
        """The aborted transactions in memory that overlap [start, end)."""
        at = bisect_left(self._lasts, start)
        # A transaction that ends more than the longest length after `end` also begins after it.
        until = bisect_left(self._lasts, end + self._longest, at)
        return [each for each in self._aborted[at:until] if each.first_offset < end]

    def flushed(self, end: int) -> None:
        """Everything below `end` is in segments and rows: drop aborted transactions above the limit."""
        surplus = min(len(self._aborted) - self._kept, bisect_left(self._lasts, end))
        if surplus > 0:
            self.complete_from = self._lasts[surplus - 1] + 1
            self._drop(surplus)

    def start_at(self, offset: int) -> None:
        """The log start has moved to `offset`: drop transactions below."""
        self._drop(bisect_left(self._lasts, offset))

    def forget(self, last_offsets: Collection[int]) -> None:
        """Drop the transactions with markers at these offsets, which are being removed."""
        self._aborted = [each for each in self._aborted if each.last_offset not in last_offsets]
        self._lasts = [each.last_offset for each in self._aborted]

    def _drop(self, count: int) -> None:
        del self._aborted[:count]
        del self._lasts[:count]

    def _add(self, aborted: AbortedTransaction) -> None:
        self._aborted.append(aborted)
        self._lasts.append(aborted.last_offset)
        self._longest = max(self._longest, aborted.last_offset - aborted.first_offset + 1)


def index_aborted(rows: Iterable[AbortedTransaction], *, flushed_end: int, kept: int) -> AbortedIndex:
    """The index for a log from the store's first `kept` rows: all of them, or none if there may be more."""
    transactions = tuple(rows)
    return AbortedIndex(transactions) if len(transactions) < kept else AbortedIndex(complete_from=flushed_end)
