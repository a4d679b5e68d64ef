"""Producers: which batches of an idempotent producer are new, which were stored before, and which are out of order.

Data path   log asks **producers** in the same step in which it assigns offsets: no await between the two
Owns        the window of the last five batches per producer, and the rules of sequence numbers (Kafka's)
Leaves      bytes of the snapshot to `format.producers`, producer ids to the metadata store

A table is a value of one partition at one offset. The log keeps two: one at its end, to judge new batches, and one
at the flushed end, whose snapshot goes into the next segment and from which the first is rebuilt.

Idempotency keys are producers, too, with ids from `KEYS_FROM` on that nobody is ever given. There may be many more of
them, each with one batch, so they have a limit of their own and make no room at the expense of producers.
"""

from collections.abc import Iterable
from typing import Final

from streamhouse.errors import DuplicateSequence, OutOfOrderSequence, StaleProducerEpoch
from streamhouse.format.batch import BatchHeader
from streamhouse.format.producers import ProducerEntry, SequenceSpan

WINDOW: Final = 5
SEQUENCES: Final = 2**31
KEYS_FROM: Final = 2**62


class ProducerTable:
    def __init__(
        self, entries: Iterable[ProducerEntry] = (), *, limit: int, expire_ms: int, key_limit: int | None = None
    ) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._keys: dict[int, ProducerEntry] = {}
        for entry in entries:
            self._among(entry.producer_id)[entry.producer_id] = entry
        self._limit = limit
        self._key_limit = limit if key_limit is None else key_limit
        self._expire_ms = expire_ms
        self._doubtful: set[int] = set()

    def __repr__(self) -> str:
        return f"<ProducerTable producers={len(self._entries)} keys={len(self._keys)}>"

    def __len__(self) -> int:
        return len(self._entries) + len(self._keys)

    def _among(self, producer_id: int) -> dict[int, ProducerEntry]:
        return self._entries if producer_id < KEYS_FROM else self._keys

    def copy(self) -> "ProducerTable":
        copied = ProducerTable(limit=self._limit, expire_ms=self._expire_ms, key_limit=self._key_limit)
        copied._entries = dict(self._entries)
        copied._keys = dict(self._keys)
        copied._doubtful = set(self._doubtful)
        return copied

    def doubt(self) -> "ProducerTable":
        """Later batches of these producers may be on a disk that nobody can read. What is remembered still tells
        duplicates; where a producer is, it is asked once, and until then no snapshot says so."""
        self._doubtful = {*self._entries, *self._keys}
        return self

    def knows(self, header: BatchHeader) -> bool:
        """Whether this incarnation of the producer has stored anything that is remembered."""
        entry = self._among(header.producer_id).get(header.producer_id)
        return entry is not None and entry.epoch >= header.producer_epoch

    def missing(self, header: BatchHeader) -> int | None:
        """The sequence that a batch leaves out; None where it leaves out none, or comes too late anyway."""
        if header.producer_id >= KEYS_FROM:  # its one batch has any number
            return None
        entry = self._among(header.producer_id).get(header.producer_id)
        if entry is None or header.producer_epoch > entry.epoch:
            return 0 if header.base_sequence != 0 else None
        expected = (entry.batches[-1].last_sequence + 1) % SEQUENCES
        is_gap = header.producer_epoch == entry.epoch and precedes(expected, header.base_sequence)
        return expected if is_gap else None

    def judge(self, partition: object, header: BatchHeader) -> SequenceSpan | None:
        """None for a batch that may be appended; the original span for a duplicate; an error for everything else."""
        entry = self._among(header.producer_id).get(header.producer_id)
        if entry is None:
            return None  # first seen, or forgotten: like Kafka, take its word for where it is
        if header.producer_epoch < entry.epoch:
            raise StaleProducerEpoch(
                partition, producer_id=header.producer_id, epoch=header.producer_epoch, current=entry.epoch
            )
        if header.producer_epoch > entry.epoch:
            if header.base_sequence != 0 and header.producer_id not in self._doubtful:
                raise OutOfOrderSequence(
                    partition, producer_id=header.producer_id, expected=0, got=header.base_sequence
                )
            return None
        for span in entry.batches:
            if span.first_sequence == header.base_sequence and span.last_sequence == header.last_sequence:
                return span
        expected = (entry.batches[-1].last_sequence + 1) % SEQUENCES
        if header.base_sequence == expected:
            return None
        if header.producer_id in self._doubtful and precedes(expected, header.base_sequence):
            return None
        # Only a full window has forgotten anything. Before the first batch of one that isn't full nothing was stored:
        # the producer began there, or what came before was lost with its WAL entry.
        is_full = len(entry.batches) >= WINDOW
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
        kept = entry.batches[1 - WINDOW :] if entry is not None and same else ()
        among[header.producer_id] = ProducerEntry(
            producer_id=header.producer_id,
            epoch=header.producer_epoch,
            batches=(*kept, span),
            last_timestamp_ms=now_ms,
        )
        if len(among) > (self._limit if among is self._entries else self._key_limit):
            del among[next(iter(among))]

    def replay(self, batches: Iterable[tuple[BatchHeader, int]], *, now_ms: int) -> None:
        """Record batches (with their base offsets) that are stored already and were judged then."""
        for header, base_offset in batches:
            if header.producer_id >= 0 and not header.is_control:
                self.record(header, base_offset, now_ms=now_ms)

    def entries(self, *, now_ms: int) -> list[ProducerEntry]:
        """What the snapshot holds: everybody who was heard of within the expiry, and of whom nothing is in doubt."""
        horizon = now_ms - self._expire_ms
        return [
            entry
            for entry in (*self._entries.values(), *self._keys.values())
            if entry.last_timestamp_ms >= horizon and entry.producer_id not in self._doubtful
        ]


def precedes(sequence: int, other: int) -> bool:
    """Whether `sequence` comes before `other`, on a circle of 2^31 numbers."""
    return 0 < (other - sequence) % SEQUENCES < SEQUENCES // 2
