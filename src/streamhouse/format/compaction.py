"""Compaction of batches: which records of a batch are retained, by Kafka's rules, and the resulting batch.

Data path   none: segments are read, **rewritten** and replaced by maintenance
Owns        the key map, retained records, the delete horizon (KIP-534) of batches with tombstones and of markers
Leaves      which offsets are compacted, and when, to `model.log_cleanup`; the keys of a batch to
            `format.compaction_kernel`,
            leaving records out to `format.compaction_kernel`; reading and replacing to `broker.maintenance` and
            Spark's jobs

Invariants  the latest record of a key is retained; a retained record keeps its offset, timestamp, key, value and
            headers
            a batch keeps its base offset and last offset, its producer and sequence, its codec
            records of aborted transactions are removed and supersede nothing; compaction stops before open transactions

A tombstone stays until its batch's delete horizon has passed: the time of the first compaction that met it, plus the
topic's `delete.retention.ms`. The horizon takes the place of the base timestamp, and attribute bit 6 says so. The
marker that ended a transaction stays as long after the first compaction that met nothing of that transaction any more:
who reads on from the middle of one learns how it ended. Before a marker goes nobody may be told of its transaction as
aborted, because it is the marker that ends what a consumer leaves out.
"""

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from streamhouse.format.batch import BatchHeader, Buffer, pack_batch, read_header
from streamhouse.format.compaction_kernel import (
    NO_KEYS,
    FilteredRecords,
    KeyHash,
    Keys,
    RecordFilter,
    filter_records,
    key_hash,
    read_keys,
    shift_timestamps,
    wrapped,
)
from streamhouse.format.compression import compress
from streamhouse.format.records import stored_payload
from streamhouse.format.transactions import NONE_ABORTED, AbortedTransactions

__all__ = [
    "CompactionPolicy",
    "FilterRules",
    "KeyHash",
    "KeyMap",
    "SeenTransactions",
    "batch_keys",
    "compact_batch",
    "filter_batch",
    "has_offset",
    "key_hash",
]

_NO_TIMESTAMP: Final = -1
_LATEST_HORIZON_MS: Final = 2**62  # timestamps are written as differences to it, which must fit into 64 bits


@dataclass(slots=True, kw_only=True)
class KeyMap:
    """The latest offset of each key in a stretch of a log, up to so many keys; batches are added in offset order."""

    max_keys: int
    limit_bytes: int
    aborted: AbortedTransactions = NONE_ABORTED
    latest: dict[KeyHash, int] = field(default_factory=dict)
    end: int = 0

    def add(self, batch: Buffer) -> bool:
        """Take all keys of a batch, or none and False when they are too many; the first batch is always taken."""
        offsets = dict(batch_keys(batch, limit_bytes=self.limit_bytes, aborted=self.aborted).each())
        if self.latest and len(self.latest) + sum(key not in self.latest for key in offsets) > self.max_keys:
            return False
        self.latest.update(offsets)
        self.end = read_header(batch).end
        return True


class SeenTransactions:
    """The transactions seen in a pass that reads a log from its start, batch by batch. A marker whose transaction has
    no records before it is spent: it only has the outcome."""

    __slots__ = ("_under_way", "spent")

    def __init__(self) -> None:
        self._under_way: set[int] = set()
        self.spent: list[int] = []
        """Offsets of markers whose transactions have no records left."""

    def __repr__(self) -> str:
        return f"<Traversed under_way={len(self._under_way)} spent={len(self.spent)}>"

    def meet(self, header: BatchHeader) -> bool:
        """Note the next batch; returns whether it is a spent marker."""
        if not header.is_control:
            if header.is_transactional:
                self._under_way.add(header.producer_id)
            return False
        if header.producer_id in self._under_way:
            self._under_way.remove(header.producer_id)
            return False
        self.spent.append(header.base_offset)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """What decides about a record besides its key: nothing at or above `end` is touched, where no transaction may be
    open; of what lies below, these were aborted."""

    end: int
    now_ms: int
    delete_retention_ms: int
    limit_bytes: int
    aborted: AbortedTransactions = NONE_ABORTED
    later_now_ms: int = 0
    """The time by another clock. Horizons are over by the earlier of the two and begin by the later, so that no clock
    that is wrong alone shortens `delete_retention_ms`."""

    @property
    def horizon_ms(self) -> int:
        return min(max(self.now_ms, self.later_now_ms) + self.delete_retention_ms, _LATEST_HORIZON_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRules(CompactionPolicy):
    """What decides about a record: `latest` knows the keys of everything from the first dirty offset to `end`."""

    latest: Mapping[KeyHash, int]


def batch_keys(batch: Buffer, *, limit_bytes: int, aborted: AbortedTransactions = NONE_ABORTED) -> Keys:
    """The keys of a batch; none for markers and batches of aborted transactions."""
    header = read_header(batch)
    if header.is_control or not header.record_count or _is_aborted(header, aborted):
        return NO_KEYS
    return read_keys(stored_payload(batch, header, limit_bytes), header)


def compact_batch(
    batch: Buffer, rules: FilterRules, *, keep_empty: bool = False, traversed: SeenTransactions | None = None
) -> Buffer | None:
    """What stays of a batch: itself if that is all, another one, or None. With `keep_empty` a batch without records
    stays where none does, so that readers get to its last offset.

    Markers go only in a pass that has `traversed`, and gives it every batch from the log's start.
    """
    header = read_header(batch)
    if header.base_offset >= rules.end:
        return batch
    is_spent = traversed is not None and traversed.meet(header)
    if header.is_control:
        return _ended(batch, header, rules, keep_empty) if is_spent else batch
    if _is_aborted(header, rules.aborted):
        return _emptied(batch, header) if keep_empty else None
    payload = _payload(batch, header, rules)
    latest = rules.latest.get
    stays = array("q", [offset for key, offset in read_keys(payload, header).each() if latest(key, -1) <= offset])
    return _filtered(batch, header, payload, stays.tobytes(), rules, keep_empty)


def filter_batch(batch: Buffer, stays: Buffer, terms: CompactionPolicy, *, keep_empty: bool = False) -> Buffer | None:
    """Drop all records but those at the given offsets; see `compact_batch`.

    `stays` are sorted int64 offsets: the latest of each key, and transaction markers that are still needed.
    """
    header = read_header(batch)
    if header.base_offset >= terms.end:
        return batch
    if header.is_control:
        return batch if has_offset(stays, header.base_offset) else _ended(batch, header, terms, keep_empty)
    if _is_aborted(header, terms.aborted):
        return _emptied(batch, header) if keep_empty else None
    return _filtered(batch, header, _payload(batch, header, terms), stays, terms, keep_empty)


def has_offset(stays: Buffer, offset: int) -> bool:
    """Whether the offset is among sorted int64 numbers."""
    numbers = memoryview(stays).cast("B").cast("q")
    at = bisect_left(numbers, offset)
    return at < len(numbers) and numbers[at] == offset


def _is_aborted(header: BatchHeader, aborted: AbortedTransactions) -> bool:
    return header.is_transactional and aborted.is_aborted(header.producer_id, header.base_offset)


def _ended(batch: Buffer, header: BatchHeader, terms: CompactionPolicy, keep_empty: bool) -> Buffer | None:
    """The result for a spent marker. The last batch of a log is kept unchanged, because of its offset."""
    if not header.record_count:
        return batch if keep_empty else None
    if header.has_delete_horizon:
        return batch if keep_empty or header.base_timestamp_ms > terms.now_ms else None
    by_ms = wrapped(header.base_timestamp_ms - terms.horizon_ms)
    records = shift_timestamps(_payload(batch, header, terms), header, by_ms=by_ms)
    return pack_batch(header.with_delete_horizon(terms.horizon_ms), compress(header.codec, records))


def _payload(batch: Buffer, header: BatchHeader, terms: CompactionPolicy) -> Buffer:
    return stored_payload(batch, header, terms.limit_bytes) if header.record_count else b""


def _filtered(
    batch: Buffer, header: BatchHeader, payload: Buffer, stays: Buffer, terms: CompactionPolicy, keep_empty: bool
) -> Buffer | None:
    horizon_ms = terms.horizon_ms
    wanted = RecordFilter(
        offsets=stays,
        drop_tombstones=header.has_delete_horizon and header.base_timestamp_ms <= terms.now_ms,
        retime_by=None if header.has_delete_horizon else wrapped(header.base_timestamp_ms - horizon_ms),
    )
    found = filter_records(payload, header, wanted)
    if not found.kept:
        return _emptied(batch, header) if keep_empty else None
    return batch if found.records is None else _rebuilt(header, found.records, found, horizon_ms)


def _emptied(batch: Buffer, header: BatchHeader) -> Buffer:
    if header.record_count == 0:
        return batch
    # Without a timestamp, so that searches by time don't stop at it.
    return pack_batch(
        header._replace(
            attributes=header.attributes & ~header.codec,  # nothing to decompress
            base_timestamp_ms=_NO_TIMESTAMP,
            max_timestamp_ms=_NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _rebuilt(header: BatchHeader, records: Buffer, found: FilteredRecords, horizon_ms: int) -> Buffer:
    latest_ms = header.base_timestamp_ms + found.latest_delta
    header = header._replace(
        max_timestamp_ms=header.max_timestamp_ms if header.is_log_append_time else latest_ms, record_count=found.kept
    )
    if found.is_retimed:
        header = header.with_delete_horizon(horizon_ms)
    return pack_batch(header, compress(header.codec, records))
