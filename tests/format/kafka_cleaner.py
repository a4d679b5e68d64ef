"""A model of how Kafka compacts a log with transactions: its cleaner's bookkeeping, on plain objects.

It follows what Kafka's cleaner promises (KIP-98, KIP-534): two readings, aborted transactions by their first offset
until the marker that ends them, markers by whether a batch of theirs was traversed, horizons by the first pass that
finds something to delete. Offsets are those of a log; a pass begins at its start.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from streamhouse.model.transaction import AbortedTransaction


class Item(NamedTuple):
    """A record."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A batch; `marker` says of a control batch whether it commits."""

    base: int
    end: int
    items: tuple[Item, ...] = ()
    producer: int = -1
    is_transactional: bool = False
    marker: bool | None = None
    horizon_ms: int | None = None


class Bookkeeping:
    """Transactions on the way through a log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda each: each.first_offset)
        self._aborting: dict[int, bool] = {}
        self._committing: set[int] = set()

    def is_aborted(self, entry: Entry) -> bool:
        self._come_to(entry.end - 1)
        if not entry.is_transactional:
            return False
        if entry.producer in self._aborting:
            self._aborting[entry.producer] = True
            return True
        self._committing.add(entry.producer)
        return False

    def is_discardable(self, entry: Entry) -> bool:
        """Of a marker."""
        self._come_to(entry.end - 1)
        if entry.marker:
            was_met = entry.producer in self._committing
            self._committing.discard(entry.producer)
            return not was_met
        return not self._aborting.pop(entry.producer, False)

    def _come_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            self._aborting.setdefault(self._coming.pop(0).producer_id, False)


class Pass(NamedTuple):
    log: list[Entry]
    spent_aborts: list[int]
    """Offsets of markers whose transactions no reader needs any more."""


def latest_offsets(log: Sequence[Entry], aborted: Iterable[AbortedTransaction], *, end: int) -> dict[bytes, int]:
    """The first reading."""
    books, latest = Bookkeeping(aborted), dict[bytes, int]()
    for entry in log:
        if entry.base >= end:
            break
        if entry.marker is not None:
            books.is_discardable(entry)
        elif not books.is_aborted(entry):
            latest.update({item.key: item.offset for item in entry.items if item.key is not None})
    return latest


def clean(
    log: Sequence[Entry], aborted: Iterable[AbortedTransaction], *, end: int, now_ms: int, retention_ms: int
) -> Pass:
    """What a pass leaves of a log below `end`, which no open transaction reaches; the last batch of a log stays."""
    aborted = list(aborted)
    latest = latest_offsets(log, aborted, end=end)
    books, left, spent = Bookkeeping(aborted), list[Entry](), list[int]()
    for entry in log:
        is_last = entry.end == log[-1].end
        if entry.base >= end:
            left.append(entry)
            continue
        if entry.marker is not None:
            is_spent = books.is_discardable(entry)
            if is_spent and not entry.marker:
                spent.append(entry.base)
            kept: Entry | None = _marker(entry, now_ms=now_ms, retention_ms=retention_ms) if is_spent else entry
            kept = entry if kept is None and is_last else kept
        else:
            is_void = books.is_aborted(entry)
            kept = _data(entry, {} if is_void else latest, is_void, now_ms=now_ms, retention_ms=retention_ms)
            kept = replace(entry, items=(), horizon_ms=None) if kept is None and is_last else kept
        if kept is not None:
            left.append(kept)
    return Pass(left, spent)


def _marker(entry: Entry, *, now_ms: int, retention_ms: int) -> Entry | None:
    if entry.horizon_ms is None:
        return replace(entry, horizon_ms=now_ms + retention_ms)
    return None if entry.horizon_ms <= now_ms else entry


def _data(entry: Entry, latest: dict[bytes, int], is_void: bool, *, now_ms: int, retention_ms: int) -> Entry | None:
    is_over = entry.horizon_ms is not None and entry.horizon_ms <= now_ms
    items = tuple(
        item
        for item in entry.items
        if not is_void
        and item.key is not None
        and latest.get(item.key, -1) <= item.offset
        and not (is_over and item.value is None)
    )
    if not items:
        return None
    has_tombstone = any(item.value is None for item in items)
    horizon_ms = now_ms + retention_ms if has_tombstone and entry.horizon_ms is None else entry.horizon_ms
    return replace(entry, items=items, horizon_ms=horizon_ms)


def committed(log: Iterable[Entry], aborted: Iterable[AbortedTransaction]) -> list[Item]:
    """What a consumer that reads committed records makes of a log that has no open transactions: it leaves out what a
    producer that it was told of sent, from the offset it was told until the marker."""
    coming = sorted(aborted, key=lambda each: each.first_offset)
    aborting: set[int] = set()
    seen: list[Item] = []
    for entry in log:
        while coming and coming[0].first_offset < entry.end:
            aborting.add(coming.pop(0).producer_id)
        if entry.marker is False:
            aborting.discard(entry.producer)
        elif entry.marker is None and not (entry.is_transactional and entry.producer in aborting):
            seen += entry.items
    return seen
