"""Stability: how far a partition's transactions are decided, and which of them are void.

Data path   log asks **stability** in the step in which it places a batch or a marker; fetch asks for what is decided
Owns        the open transactions, those whose markers aren't durable yet, the aborted ones that are kept in memory
Leaves      what ends a transaction to `producer_state`, rows of aborted ones to the metadata store, reading them to
            `fetch`

The last stable offset is where the oldest transaction begins that is open, or whose marker isn't durable yet: a marker
that is lost with the power has decided nothing. Where there is none it is the high watermark.

Aborted ones are kept up to a limit. The oldest go first, those alone that segments hold, and with them the rows in the
metadata store: from `complete_from` on everything is here, below it the store has to be asked.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from streamhouse.model.transaction import AbortedTransaction

MAX_RETAINED: Final = 10_000
"""Of a log that isn't told otherwise."""


class _EndedTransaction(NamedTuple):
    """A transaction whose marker is placed and not durable: it is, when the high watermark has reached `end`."""

    end: int
    first_offset: int


class AbortedIndex(NamedTuple):
    """Aborted transactions of a partition by the offset of their marker; complete from `complete_from` on."""

    transactions: Sequence[AbortedTransaction] = ()
    complete_from: int = 0


class LastStableOffset:
    __slots__ = ("_aborted", "_ending", "_kept", "_lasts", "_longest", "_open", "complete_from")

    def __init__(self, open_transactions: Mapping[int, int], aborted: AbortedIndex, *, kept: int) -> None:
        self._open = dict(open_transactions)  # in the order of their offsets, because they begin in that order
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
        """Whether everything that is durable is decided."""
        return not self._open and not self._ending

    @property
    def open_producers(self) -> Collection[int]:
        """Whose transactions are open."""
        return self._open.keys()

    def first_open_offset(self) -> int:
        """Where the oldest transaction begins that isn't decided for good; of a log that isn't calm."""
        first = min((each.first_offset for each in self._ending), default=None)
        if not self._open:
            assert first is not None, "nothing is undecided"
            return first
        begun = next(iter(self._open.values()))
        return begun if first is None else min(begun, first)

    # --- transactions

    def started(self, producer_id: int, offset: int) -> None:
        """A batch of a transaction was placed, perhaps its first."""
        self._open.setdefault(producer_id, offset)

    def ended(self, producer_id: int, end: int, aborted: AbortedTransaction | None) -> None:
        """The marker that ends at `end` was placed."""
        first = self._open.pop(producer_id, None)
        if first is not None:
            self._ending.append(_EndedTransaction(end, first))
        if aborted is not None:
            self._add(aborted)

    def advance(self, high_watermark: int) -> None:
        """Markers below are durable."""
        while self._ending and self._ending[0].end <= high_watermark:
            self._ending.popleft()

    # --- aborted ones

    @property
    def has_aborted(self) -> bool:
        return bool(self._aborted)

    def aborted_between(self, start: int, end: int) -> Sequence[AbortedTransaction]:
        """Those that have something in [start, end), as far as they are known here."""
        at = bisect_left(self._lasts, start)
        # Whatever ends further behind than the longest is long begins behind, too.
        until = bisect_left(self._lasts, end + self._longest, at)
        return [each for each in self._aborted[at:until] if each.first_offset < end]

    def flushed(self, end: int) -> None:
        """Segments hold everything below `end`, and rows what was aborted there: what is too much may go."""
        surplus = min(len(self._aborted) - self._kept, bisect_left(self._lasts, end))
        if surplus > 0:
            self.complete_from = self._lasts[surplus - 1] + 1
            self._drop(surplus)

    def start_at(self, offset: int) -> None:
        """Nothing below `offset` is read any more."""
        self._drop(bisect_left(self._lasts, offset))

    def forget(self, last_offsets: Collection[int]) -> None:
        """The markers at these offsets are gone, or about to go."""
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
    """What a log keeps of the store's first `kept` rows: all of them, or none where there may be more."""
    transactions = tuple(rows)
    return AbortedIndex(transactions) if len(transactions) < kept else AbortedIndex(complete_from=flushed_end)
