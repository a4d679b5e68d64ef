"""Producers: which batches of an idempotent producer are new, which were stored before, and which are out of order.

Data path   log asks **producers** in the same step in which it assigns offsets: no await between the two
Owns        the window of the last five batches per producer, and the rules of sequence numbers (Kafka's)
Leaves      bytes of the snapshot to `format.producer_snapshot`, producer ids to the metadata store

A table is a value of one partition at one offset. The log keeps two: one at its end, to judge new batches, and one
at the flushed end, whose snapshot goes into the next segment and from which the first is rebuilt.

An idempotency key is stored as a producer with an id of at least `FIRST_KEY_ID`; no client gets such an id. There may
be many keys with one batch each, so keys have a limit of their own and never evict producers.

An abort marker leaves no originals behind: a client whose answers were lost may use the numbers of an aborted batch for
another one in its next transaction. Acknowledged as a duplicate, that one would be lost from a committed transaction.

A transaction is open here from its first batch to its marker. As long as it is, its producer is forgotten neither for
its silence nor for others' sake: who reads committed records would be told too much.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from streamhouse.errors import (
    AbortedSequence,
    ConcurrentTransactions,
    DuplicateSequence,
    InvalidTransactionState,
    MarkerFenced,
    OutOfOrderSequence,
    StaleProducerEpoch,
)
from streamhouse.format.batch import BatchHeader, Buffer
from streamhouse.format.producer_snapshot import ABORTED, NO_MARKER, ProducerEntry, SequenceSpan
from streamhouse.format.transactions import read_marker
from streamhouse.model.transaction import AbortedTransaction, Marker

RETAINED_BATCHES: Final = 5
SEQUENCES: Final = 2**31
FIRST_KEY_ID: Final = 2**62


class ProducerTable:
    def __init__(
        self, entries: Iterable[ProducerEntry] = (), *, limit: int, expire_ms: int, key_limit: int | None = None
    ) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._keys: dict[int, ProducerEntry] = {}
        self._doubtful: set[int] = set()
        for entry in entries:
            self._among(entry.producer_id)[entry.producer_id] = entry
            if entry.is_doubtful:
                self._doubtful.add(entry.producer_id)
        self._limit = limit
        self._key_limit = limit if key_limit is None else key_limit
        self._expire_ms = expire_ms
        self._doubt_from: int | None = None
        self._settled: set[int] = set()
        self.lost_from: int | None = None
        """Where what the table was made of ends, because objects behind it are missing; they may be put back."""
        self.aborted: list[AbortedTransaction] = []
        """What the markers that were replayed have aborted."""

    def __repr__(self) -> str:
        return f"<ProducerTable producers={len(self._entries)} keys={len(self._keys)}>"

    def __len__(self) -> int:
        return len(self._entries) + len(self._keys)

    def _among(self, producer_id: int) -> dict[int, ProducerEntry]:
        return self._entries if producer_id < FIRST_KEY_ID else self._keys

    def copy(self) -> "ProducerTable":
        copied = ProducerTable(limit=self._limit, expire_ms=self._expire_ms, key_limit=self._key_limit)
        copied._entries = dict(self._entries)
        copied._keys = dict(self._keys)
        copied._doubtful = set(self._doubtful)
        copied._doubt_from = self._doubt_from
        copied._settled = set(self._settled)
        return copied

    def mark_uncertain(self, from_offset: int | None = None) -> "ProducerTable":
        """Later batches of these producers may be on a disk that nobody can read. What is remembered still tells
        duplicates; where a producer is, it is asked once.

        From `from_offset` on, if that is known, anybody may have begun a transaction there.
        """
        self._doubtful = {*self._entries, *self._keys}
        self._doubt_from = from_offset
        return self

    def open_transactions(self) -> Mapping[int, int]:
        """Where the open transactions begin, by producer; the oldest first."""
        firsts = [
            (e.transaction_first, e.producer_id) for e in self._entries.values() if e.transaction_first is not None
        ]
        return {producer_id: first for first, producer_id in sorted(firsts)}

    def get(self, producer_id: int) -> ProducerEntry | None:
        """What is remembered of a producer."""
        return self._among(producer_id).get(producer_id)

    def knows(self, header: BatchHeader) -> bool:
        """Whether this incarnation of the producer has stored anything that is remembered."""
        entry = self._among(header.producer_id).get(header.producer_id)
        return entry is not None and entry.epoch >= header.producer_epoch

    def sequence_gap(self, header: BatchHeader) -> int | None:
        """The sequence that a batch leaves out; None where it leaves out none, or comes too late anyway."""
        if header.producer_id >= FIRST_KEY_ID:  # its one batch has any number
            return None
        entry = self._among(header.producer_id).get(header.producer_id)
        if entry is None or header.producer_epoch > entry.epoch:
            return 0 if header.base_sequence != 0 else None
        expected = _next_sequence(entry)
        is_gap = header.producer_epoch == entry.epoch and precedes(expected, header.base_sequence)
        return expected if is_gap else None

    def check_sequence(self, partition: object, header: BatchHeader) -> SequenceSpan | None:
        """None for a batch that may be appended; the original span for a duplicate; an error for everything else."""
        entry = self._among(header.producer_id).get(header.producer_id)
        if entry is None:
            return None  # first seen, or forgotten: like Kafka, take its word for where it is
        if header.producer_epoch < entry.epoch:
            raise StaleProducerEpoch(
                partition, producer_id=header.producer_id, epoch=header.producer_epoch, current=entry.epoch
            )
        if header.producer_epoch == entry.epoch and (span := _same(entry, header)) is not None:
            return span
        if header.producer_epoch == entry.epoch and _is_aborted(entry, header):
            raise AbortedSequence(partition, producer_id=header.producer_id, sequence=header.base_sequence)
        if entry.transaction_first is not None and not header.is_transactional:
            raise InvalidTransactionState(
                f"of producer {header.producer_id}", why=f"a batch outside of it, while it is open in {partition}"
            )
        if header.producer_epoch > entry.epoch:
            if entry.transaction_first is not None:  # its marker was lost: it would end with the one that begins
                raise ConcurrentTransactions(f"of producer {header.producer_id}")
            if header.base_sequence != 0 and header.producer_id not in self._doubtful:
                raise OutOfOrderSequence(
                    partition, producer_id=header.producer_id, expected=0, got=header.base_sequence
                )
            return None
        expected = _next_sequence(entry)
        if header.base_sequence == expected:
            return None
        if header.producer_id in self._doubtful and precedes(expected, header.base_sequence):
            return None
        # Only a full window has forgotten anything. Before the first batch of one that isn't full nothing was stored:
        # the producer began there, or what came before was lost with its WAL entry.
        is_full = len(entry.batches) >= RETAINED_BATCHES and entry.batches[0].first_sequence != ABORTED
        if is_full and precedes(header.last_sequence, entry.batches[0].first_sequence):
            raise DuplicateSequence(
                f"batch was stored before and its offset is no longer known; partition={partition} "
                f"producer={header.producer_id} sequence={header.base_sequence}"
            )
        raise OutOfOrderSequence(partition, producer_id=header.producer_id, expected=expected, got=header.base_sequence)

    def record(self, header: BatchHeader, base_offset: int, *, now_ms: int) -> None:
        """Remember a batch that was placed at `base_offset`.

        Silence is counted from `now_ms`, not from the records' own timestamps, which may be years old.
        """
        span = SequenceSpan(
            first_sequence=header.base_sequence,
            last_sequence=header.last_sequence,
            base_offset=base_offset,
            end_offset=base_offset + header.last_offset_delta + 1,
            timestamp_ms=header.max_timestamp_ms,
        )
        # Taken out and put in again, so that the dictionary is ordered by last use and the first is the longest silent.
        among = self._among(header.producer_id)
        entry = among.pop(header.producer_id, None)
        self._doubtful.discard(header.producer_id)
        same = entry is not None and entry.epoch == header.producer_epoch
        kept = entry.batches[1 - RETAINED_BATCHES :] if entry is not None and same else ()
        first = entry.transaction_first if entry is not None else None
        if first is None and header.is_transactional:
            first = self._begin(header.producer_id, base_offset)
        among[header.producer_id] = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            (*kept, span),
            now_ms,
            first,
            NO_MARKER if entry is None else entry.marker_number,
        )
        if len(among) > (self._limit if among is self._entries else self._key_limit):
            self._evict(among)

    def _begin(self, producer_id: int, base_offset: int) -> int:
        """Where a transaction begins whose first known batch is placed here: in what nobody could read, perhaps."""
        if self._doubt_from is None or producer_id in self._settled:
            return base_offset
        first = self._doubt_from
        self._settle(producer_id)
        return first

    def _settle(self, producer_id: int) -> None:
        """From here on it is known which transaction of the producer is open."""
        if self._doubt_from is not None:
            self._settled.add(producer_id)
            if len(self._settled) > self._limit:
                self._doubt_from = None
                self._settled.clear()

    def _evict(self, among: dict[int, ProducerEntry]) -> None:
        """Forget the longest silent ones that have no open transaction. A few are looked at, and those that have one go
        to the end: with many of them the table is larger for a while."""
        limit = self._limit if among is self._entries else self._key_limit
        for _ in range(min(RETAINED_BATCHES, len(among) - 1)):  # the last one has just been heard of
            if len(among) <= limit:
                return
            producer_id = next(iter(among))
            entry = among.pop(producer_id)
            if entry.transaction_first is not None:
                among[producer_id] = entry

    # --- markers

    def marker_number(self, producer_id: int) -> int:
        """The number of the producer's transaction whose marker came last; -1 for none that is remembered."""
        entry = self._entries.get(producer_id)
        return NO_MARKER if entry is None else entry.marker_number

    def has_open(self, header: BatchHeader) -> bool:
        """Whether a transaction of this incarnation of the producer is open."""
        entry = self._entries.get(header.producer_id)
        return entry is not None and entry.transaction_first is not None and entry.epoch == header.producer_epoch

    def is_duplicate(self, header: BatchHeader) -> bool:
        """Whether the batch is remembered."""
        entry = self._among(header.producer_id).get(header.producer_id)
        return entry is not None and entry.epoch == header.producer_epoch and _same(entry, header) is not None

    def has_marker(self, partition: object, marker: Marker) -> bool:
        """Whether the transaction of this number, or a later one of the producer, has ended here before.

        Raises `MarkerFenced` for one that never came and never may: its producer was replaced.
        """
        entry = self._entries.get(marker.producer.producer_id)
        if entry is None:
            return False
        if marker.number <= entry.marker_number:
            return True
        if marker.producer.epoch < entry.epoch:
            raise MarkerFenced(
                f"marker of a producer that was replaced; partition={partition} producer={marker.producer} "
                f"current={entry.epoch} number={marker.number}"
            )
        return False

    def may_be_stale(self, marker: Marker) -> bool:
        """Whether a transaction is open, and nothing is known of those before it: the marker may be one of theirs."""
        entry = self._entries.get(marker.producer.producer_id)
        return entry is not None and entry.transaction_first is not None and entry.marker_number == NO_MARKER

    def end(self, marker: Marker, offset: int, *, now_ms: int) -> AbortedTransaction | None:
        """Remember a marker that was placed at `offset`; returns what it aborts, if it does."""
        producer_id, epoch = marker.producer
        entry = self._entries.pop(producer_id, None)
        first = entry.transaction_first if entry is not None else None
        if first is None and self._doubt_from is not None and producer_id not in self._settled:
            first = self._doubt_from
        self._settle(producer_id)
        is_new_epoch = entry is None or epoch > entry.epoch
        if is_new_epoch:  # it begins with sequence 0
            self._doubtful.discard(producer_id)
        self._entries[producer_id] = ProducerEntry(
            producer_id=producer_id,
            epoch=epoch if entry is None else max(epoch, entry.epoch),
            batches=() if entry is None or is_new_epoch else _after(marker, entry.batches),
            last_timestamp_ms=now_ms,
            marker_number=marker.number if entry is None else max(marker.number, entry.marker_number),
        )
        if len(self._entries) > self._limit:
            self._evict(self._entries)
        return None if marker.is_commit or first is None else AbortedTransaction(producer_id, first, offset)

    # --- snapshots

    def replay(self, batches: Iterable[tuple[BatchHeader, int, Buffer]], *, now_ms: int) -> None:
        """Record batches (with their base offsets) that are stored already and were judged then; what their markers
        abort is added to `aborted`."""
        for header, base_offset, data in batches:
            if header.producer_id < 0:
                continue
            if not header.is_control:
                self.record(header, base_offset, now_ms=now_ms)
            elif (ended := self.end(read_marker(data), base_offset, now_ms=now_ms)) is not None:
                self.aborted.append(ended)

    def entries(self, *, now_ms: int) -> list[ProducerEntry]:
        """What the snapshot holds: everybody who was heard of within the expiry, or has an open transaction. It says of
        whom something is in doubt: what is remembered of those still tells duplicates, after the next failover too."""
        horizon = now_ms - self._expire_ms
        kept: list[ProducerEntry] = []
        for entry in (*self._entries.values(), *self._keys.values()):
            if entry.last_timestamp_ms < horizon and entry.transaction_first is None:
                continue
            is_doubtful = entry.producer_id in self._doubtful
            kept.append(entry if entry.is_doubtful == is_doubtful else entry._replace(is_doubtful=is_doubtful))
        return kept


def _next_sequence(entry: ProducerEntry) -> int:
    """What follows what is remembered; after a marker that raised the epoch all begins anew."""
    return (entry.batches[-1].last_sequence + 1) % SEQUENCES if entry.batches else 0


def _after(marker: Marker, batches: tuple[SequenceSpan, ...]) -> tuple[SequenceSpan, ...]:
    """What is remembered behind a marker of the same epoch: all, or, if it aborts, only where the producer is."""
    return batches if marker.is_commit else tuple(span._replace(first_sequence=ABORTED) for span in batches[-1:])


def _is_aborted(entry: ProducerEntry, header: BatchHeader) -> bool:
    """Whether a batch has numbers from before the abort marker behind which nothing was stored yet."""
    is_behind = bool(entry.batches) and entry.batches[-1].first_sequence == ABORTED
    return is_behind and precedes(header.base_sequence, _next_sequence(entry))


def _same(entry: ProducerEntry, header: BatchHeader) -> SequenceSpan | None:
    for span in entry.batches:
        if span.first_sequence == header.base_sequence and span.last_sequence == header.last_sequence:
            return span
    return None


def precedes(sequence: int, other: int) -> bool:
    """Whether `sequence` comes before `other`, on a circle of 2^31 numbers."""
    return 0 < (other - sequence) % SEQUENCES < SEQUENCES // 2
