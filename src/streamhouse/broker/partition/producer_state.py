"""ProducerTable: whether batches of an idempotent producer are new, duplicates, or out of order.

Data path   log -> **producer_state** in the step that assigns offsets, without a suspension in between
Owns        the window of the last five batches per producer, and the rules of sequence numbers (Kafka's)
Leaves      bytes of the snapshot to `format.producer_snapshot`, producer ids to the metadata store

A table is the state of one partition at one offset. The log has two: one at its end, to check new batches, and one at
the flushed end, whose snapshot goes into the next segment and from which the first is rebuilt.

An idempotency key is stored as a producer with an id of at least `FIRST_KEY_ID`; no client gets such an id. There may
be many keys with one batch each, so keys have a limit of their own and never evict producers.

An abort marker removes the batches of its transaction from the window: a client that lost responses may reuse the
sequence numbers of an aborted batch in its next transaction. If that batch were acknowledged as a duplicate, it would
be missing from a committed transaction.

A transaction is open in the partition from its first batch to its marker. During that time its producer neither expires
nor is evicted: otherwise read_committed consumers would get uncommitted records.
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
        self._known_producers: set[int] = set()
        self.lost_from: int | None = None
        """The offset at which the table's state ends, because objects after it are missing; they may be restored."""
        self.aborted: list[AbortedTransaction] = []
        """Transactions aborted by the replayed markers."""

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
        copied._known_producers = set(self._known_producers)
        return copied

    def mark_uncertain(self, from_offset: int | None = None) -> "ProducerTable":
        """Later batches of these producers may be on an unreachable disk. Known batches still detect duplicates; the
        next sequence number of each producer is accepted once. From `from_offset` on, if it is known, any producer may
        have started a transaction."""
        self._doubtful = {*self._entries, *self._keys}
        self._doubt_from = from_offset
        return self

    def open_transactions(self) -> Mapping[int, int]:
        """The first offsets of open transactions, by producer; the oldest first."""
        firsts = [
            (e.transaction_first, e.producer_id) for e in self._entries.values() if e.transaction_first is not None
        ]
        return {producer_id: first for first, producer_id in sorted(firsts)}

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The entry of a producer."""
        return self._among(producer_id).get(producer_id)

    def knows(self, header: BatchHeader) -> bool:
        """Whether there is an entry of this producer with this epoch."""
        entry = self._among(header.producer_id).get(header.producer_id)
        return entry is not None and entry.epoch >= header.producer_epoch

    def sequence_gap(self, header: BatchHeader) -> int | None:
        """The first sequence number that a batch skips; None if there is no gap, or the batch is stale."""
        if header.producer_id >= FIRST_KEY_ID:  # its single batch may have any number
            return None
        entry = self._among(header.producer_id).get(header.producer_id)
        if entry is None or header.producer_epoch > entry.epoch:
            return 0 if header.base_sequence != 0 else None
        expected = _next_sequence(entry)
        is_gap = header.producer_epoch == entry.epoch and precedes(expected, header.base_sequence)
        return expected if is_gap else None

    def check_sequence(self, partition: object, header: BatchHeader) -> SequenceSpan | None:
        """None for a batch that may be appended; the original offsets of a duplicate; otherwise raises."""
        entry = self._among(header.producer_id).get(header.producer_id)
        if entry is None:
            return None  # unknown or expired producer: like Kafka, accept its sequence number
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
            if entry.transaction_first is not None:  # the marker was lost: the transaction would end with the new one
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
        # Only a full window has dropped batches. Before the first batch of one that isn't full nothing was stored: the
        # producer started there, or earlier batches were lost with their WAL entries.
        is_full = len(entry.batches) >= RETAINED_BATCHES and entry.batches[0].first_sequence != ABORTED
        if is_full and precedes(header.last_sequence, entry.batches[0].first_sequence):
            raise DuplicateSequence(
                f"batch was stored before and its offset is no longer known; partition={partition} "
                f"producer={header.producer_id} sequence={header.base_sequence}"
            )
        raise OutOfOrderSequence(partition, producer_id=header.producer_id, expected=expected, got=header.base_sequence)

    def record(self, header: BatchHeader, base_offset: int, *, now_ms: int) -> None:
        """Record a batch appended at `base_offset`. Expiry counts from `now_ms`, not from the record timestamps, which
        may be years old."""
        span = SequenceSpan(
            first_sequence=header.base_sequence,
            last_sequence=header.last_sequence,
            base_offset=base_offset,
            end_offset=base_offset + header.last_offset_delta + 1,
            timestamp_ms=header.max_timestamp_ms,
        )
        # Removed and inserted again, so that the dictionary is ordered by last use.
        among = self._among(header.producer_id)
        entry = among.pop(header.producer_id, None)
        self._doubtful.discard(header.producer_id)
        same = entry is not None and entry.epoch == header.producer_epoch
        batches = entry.batches[1 - RETAINED_BATCHES :] if entry is not None and same else ()
        first = entry.transaction_first if entry is not None else None
        if first is None and header.is_transactional:
            first = self._begin(header.producer_id, base_offset)
        among[header.producer_id] = ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            (*batches, span),
            now_ms,
            first,
            NO_MARKER if entry is None else entry.marker_number,
        )
        if len(among) > (self._limit if among is self._entries else self._key_limit):
            self._evict(among)

    def _begin(self, producer_id: int, base_offset: int) -> int:
        """The first offset of a transaction whose first known batch is appended at `base_offset`; possibly in the
        missing part."""
        if self._doubt_from is None or producer_id in self._known_producers:
            return base_offset
        first = self._doubt_from
        self._settle(producer_id)
        return first

    def _settle(self, producer_id: int) -> None:
        """The open transaction of the producer is known from now on."""
        if self._doubt_from is not None:
            self._known_producers.add(producer_id)
            if len(self._known_producers) > self._limit:
                self._doubt_from = None
                self._known_producers.clear()

    def _evict(self, among: dict[int, ProducerEntry]) -> None:
        """Drop the least recently used producers without an open transaction. Only a few are checked, and those with
        one move to the end: with many of them the table exceeds its limit for a while."""
        limit = self._limit if among is self._entries else self._key_limit
        for _ in range(min(RETAINED_BATCHES, len(among) - 1)):  # the last one has just been used
            if len(among) <= limit:
                return
            producer_id = next(iter(among))
            entry = among.pop(producer_id)
            if entry.transaction_first is not None:
                among[producer_id] = entry

    # --- markers

    def marker_number(self, producer_id: int) -> int:
        """The number of the producer's last marker; -1 if none is known."""
        entry = self._entries.get(producer_id)
        return NO_MARKER if entry is None else entry.marker_number

    def has_open(self, header: BatchHeader) -> bool:
        """Whether a transaction of this producer and epoch is open."""
        entry = self._entries.get(header.producer_id)
        return entry is not None and entry.transaction_first is not None and entry.epoch == header.producer_epoch

    def is_duplicate(self, header: BatchHeader) -> bool:
        """Whether the batch is in the window."""
        entry = self._among(header.producer_id).get(header.producer_id)
        return entry is not None and entry.epoch == header.producer_epoch and _same(entry, header) is not None

    def has_marker(self, partition: object, marker: Marker) -> bool:
        """Whether this transaction of the producer, or a later one, has ended in the partition. Raises `MarkerFenced`
        for a marker of a fenced producer that was never appended."""
        entry = self._entries.get(marker.producer.producer_id)
        if entry is None:
            return False
        if marker.number <= entry.marker_number:
            return True
        if marker.producer.epoch < entry.epoch:
            raise MarkerFenced(
                f"marker of a fenced producer; partition={partition} producer={marker.producer} "
                f"current={entry.epoch} number={marker.number}"
            )
        return False

    def may_be_stale(self, marker: Marker) -> bool:
        """Whether a transaction is open and earlier ones are unknown: the marker may belong to an earlier one."""
        entry = self._entries.get(marker.producer.producer_id)
        return entry is not None and entry.transaction_first is not None and entry.marker_number == NO_MARKER

    def end(self, marker: Marker, offset: int, *, now_ms: int) -> AbortedTransaction | None:
        """Record a marker appended at `offset`; returns the aborted transaction, if it aborts one."""
        producer_id, epoch = marker.producer
        entry = self._entries.pop(producer_id, None)
        first = entry.transaction_first if entry is not None else None
        if first is None and self._doubt_from is not None and producer_id not in self._known_producers:
            first = self._doubt_from
        self._settle(producer_id)
        is_new_epoch = entry is None or epoch > entry.epoch
        if is_new_epoch:  # sequence numbers start at 0
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
        """Record stored batches, which were checked before, with their base offsets; adds the transactions that their
        markers abort to `aborted`."""
        for header, base_offset, data in batches:
            if header.producer_id < 0:
                continue
            if not header.is_control:
                self.record(header, base_offset, now_ms=now_ms)
            elif (ended := self.end(read_marker(data), base_offset, now_ms=now_ms)) is not None:
                self.aborted.append(ended)

    def entries(self, *, now_ms: int) -> list[ProducerEntry]:
        """The entries of a snapshot: producers that are not expired, or have an open transaction. It marks uncertain
        producers: their known batches still detect duplicates after the next failover."""
        horizon = now_ms - self._expire_ms
        retained: list[ProducerEntry] = []
        for entry in (*self._entries.values(), *self._keys.values()):
            if entry.last_timestamp_ms < horizon and entry.transaction_first is None:
                continue
            is_doubtful = entry.producer_id in self._doubtful
            retained.append(entry if entry.is_doubtful == is_doubtful else entry._replace(is_doubtful=is_doubtful))
        return retained


def _next_sequence(entry: ProducerEntry) -> int:
    """The next sequence number; it starts over after a marker that raised the epoch."""
    return (entry.batches[-1].last_sequence + 1) % SEQUENCES if entry.batches else 0


def _after(marker: Marker, batches: tuple[SequenceSpan, ...]) -> tuple[SequenceSpan, ...]:
    """The batches kept after a marker of the same epoch: all, or after an abort only the last sequence number."""
    return batches if marker.is_commit else tuple(span._replace(first_sequence=ABORTED) for span in batches[-1:])


def _is_aborted(entry: ProducerEntry, header: BatchHeader) -> bool:
    """Whether a batch has sequence numbers from before an abort marker after which nothing was stored yet."""
    is_behind = bool(entry.batches) and entry.batches[-1].first_sequence == ABORTED
    return is_behind and precedes(header.base_sequence, _next_sequence(entry))


def _same(entry: ProducerEntry, header: BatchHeader) -> SequenceSpan | None:
    for span in entry.batches:
        if span.first_sequence == header.base_sequence and span.last_sequence == header.last_sequence:
            return span
    return None


def precedes(sequence: int, other: int) -> bool:
    """Whether `sequence` comes before `other`, modulo 2^31."""
    return 0 < (other - sequence) % SEQUENCES < SEQUENCES // 2
