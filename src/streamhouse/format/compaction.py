"""Compaction of batches: which records of a batch are retained, by Kafka's rules, and the resulting batch.

Data path   none: segments are read, **rewritten** and replaced by maintenance
Owns        the key map, retained records, the delete horizon (KIP-534) of batches with tombstones and of markers
Leaves      which offsets are compacted, and when, to `model.log_cleanup`; hashing keys and removing records to
            `format.compaction_kernel`; I/O to `broker.maintenance` and Spark's jobs

Invariants the latest record of a key is retained; a retained record keeps its offset, timestamp, key, value and headers
a batch keeps its base offset and last offset, its producer and sequence, its codec records of aborted transactions are
removed and supersede nothing; compaction stops before open transactions

A tombstone is retained until its batch's delete horizon has passed: the time of its first compaction, plus the topic's
`delete.retention.ms`. The horizon replaces the base timestamp, and attribute bit 6 is set. A transaction marker is
retained for the same time after the first compaction that finds no records of its transaction, so that a consumer in
the middle of the transaction still reads its end. An aborted transaction must not be listed to consumers once its
marker is removed, because a consumer skips the producer's batches up to the marker.
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
_LATEST_HORIZON_MS: Final = 2**62  # timestamps are encoded as deltas to it, which must fit into 64 bits


@dataclass(slots=True, kw_only=True)
class KeyMap:
    """The latest offset of each key in a part of a log, for at most `max_keys` keys; batches are added in offset
    order."""

    max_keys: int
    limit_bytes: int
    aborted: AbortedTransactions = NONE_ABORTED
    latest: dict[KeyHash, int] = field(default_factory=dict)
    end: int = 0

    def add(self, batch: Buffer) -> bool:
        """Add all keys of a batch, or none if the limit would be exceeded: then False. The first batch is always
        added."""
        offsets = dict(batch_keys(batch, limit_bytes=self.limit_bytes, aborted=self.aborted).each())
        if self.latest and len(self.latest) + sum(key not in self.latest for key in offsets) > self.max_keys:
            return False
        self.latest.update(offsets)
        self.end = read_header(batch).end
        return True


class SeenTransactions:
    """The transactions seen while a log is read from its start. A marker is spent if no records of its transaction
    precede it."""

    __slots__ = ("_under_way", "spent")

    def __init__(self) -> None:
        self._under_way: set[int] = set()
        self.spent: list[int] = []
        """Offsets of the spent markers."""

    def __repr__(self) -> str:
        return f"<SeenTransactions under_way={len(self._under_way)} spent={len(self.spent)}>"

    def add(self, header: BatchHeader) -> bool:
        """Add the next batch; returns whether it is a spent marker."""
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
    """The rules besides the latest offsets of keys. Batches at or above `end` are retained unchanged; below `end`, no
    transaction is open, and `aborted` are the aborted ones."""

    end: int
    now_ms: int
    delete_retention_ms: int
    limit_bytes: int
    aborted: AbortedTransactions = NONE_ABORTED
    later_now_ms: int = 0
    """The time by another clock. A horizon passes by the earlier of both clocks and is set by the later one, so that
    one wrong clock can't shorten `delete_retention_ms`."""

    @property
    def horizon_ms(self) -> int:
        return min(max(self.now_ms, self.later_now_ms) + self.delete_retention_ms, _LATEST_HORIZON_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterRules(CompactionPolicy):
    """The rules of a compaction: `latest` has the keys of all records from the first dirty offset to `end`."""

    latest: Mapping[KeyHash, int]


def batch_keys(batch: Buffer, *, limit_bytes: int, aborted: AbortedTransactions = NONE_ABORTED) -> Keys:
    """The keys of a batch; none for markers and batches of aborted transactions."""
    header = read_header(batch)
    if header.is_control or not header.record_count or _is_aborted(header, aborted):
        return NO_KEYS
    return read_keys(stored_payload(batch, header, limit_bytes), header)


def compact_batch(
    batch: Buffer, rules: FilterRules, *, keep_empty: bool = False, seen: SeenTransactions | None = None
) -> Buffer | None:
    """Compact a batch: returns the same batch if all records are retained, a smaller one, or None if none is. With
    `keep_empty` the result is an empty batch instead of None, so that readers reach its last offset.

    Markers are only removed if `seen` is given and the caller passes every batch from the log's start.
    """
    header = read_header(batch)
    if header.base_offset >= rules.end:
        return batch
    is_spent = seen is not None and seen.add(header)
    if header.is_control:
        return _expire_marker(batch, header, rules, keep_empty) if is_spent else batch
    if _is_aborted(header, rules.aborted):
        return _without_records(batch, header) if keep_empty else None
    payload = _payload(batch, header, rules)
    latest = rules.latest.get
    retained = array("q", [offset for key, offset in read_keys(payload, header).each() if latest(key, -1) <= offset])
    return _filter_records(batch, header, payload, retained.tobytes(), rules, keep_empty)


def filter_batch(batch: Buffer, kept: Buffer, policy: CompactionPolicy, *, keep_empty: bool = False) -> Buffer | None:
    """Remove all records but those at the given offsets; see `compact_batch`.

    `kept` are sorted int64 offsets: the latest of each key, and transaction markers that are still needed.
    """
    header = read_header(batch)
    if header.base_offset >= policy.end:
        return batch
    if header.is_control:
        return batch if has_offset(kept, header.base_offset) else _expire_marker(batch, header, policy, keep_empty)
    if _is_aborted(header, policy.aborted):
        return _without_records(batch, header) if keep_empty else None
    return _filter_records(batch, header, _payload(batch, header, policy), kept, policy, keep_empty)


def has_offset(offsets: Buffer, offset: int) -> bool:
    """Whether the offset is among sorted int64 numbers."""
    numbers = memoryview(offsets).cast("B").cast("q")
    at = bisect_left(numbers, offset)
    return at < len(numbers) and numbers[at] == offset


def _is_aborted(header: BatchHeader, aborted: AbortedTransactions) -> bool:
    return header.is_transactional and aborted.is_aborted(header.producer_id, header.base_offset)


def _expire_marker(batch: Buffer, header: BatchHeader, policy: CompactionPolicy, keep_empty: bool) -> Buffer | None:
    """Retain a spent marker with a delete horizon, or remove it once that has passed. The last batch of a log stays,
    because of its offset."""
    if not header.record_count:
        return batch if keep_empty else None
    if header.has_delete_horizon:
        return batch if keep_empty or header.base_timestamp_ms > policy.now_ms else None
    by_ms = wrapped(header.base_timestamp_ms - policy.horizon_ms)
    records = shift_timestamps(_payload(batch, header, policy), header, by_ms=by_ms)
    return pack_batch(header.with_delete_horizon(policy.horizon_ms), compress(header.codec, records))


def _payload(batch: Buffer, header: BatchHeader, policy: CompactionPolicy) -> Buffer:
    return stored_payload(batch, header, policy.limit_bytes) if header.record_count else b""


def _filter_records(
    batch: Buffer, header: BatchHeader, payload: Buffer, retained: Buffer, policy: CompactionPolicy, keep_empty: bool
) -> Buffer | None:
    horizon_ms = policy.horizon_ms
    record_filter = RecordFilter(
        offsets=retained,
        drop_tombstones=header.has_delete_horizon and header.base_timestamp_ms <= policy.now_ms,
        retime_by=None if header.has_delete_horizon else wrapped(header.base_timestamp_ms - horizon_ms),
    )
    filtered = filter_records(payload, header, record_filter)
    if not filtered.kept:
        return _without_records(batch, header) if keep_empty else None
    return batch if filtered.records is None else _rebuild(header, filtered.records, filtered, horizon_ms)


def _without_records(batch: Buffer, header: BatchHeader) -> Buffer:
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


def _rebuild(header: BatchHeader, records: Buffer, filtered: FilteredRecords, horizon_ms: int) -> Buffer:
    latest_ms = header.base_timestamp_ms + filtered.latest_delta
    header = header._replace(
        max_timestamp_ms=header.max_timestamp_ms if header.is_log_append_time else latest_ms, record_count=filtered.kept
    )
    if filtered.is_retimed:
        header = header.with_delete_horizon(horizon_ms)
    return pack_batch(header, compress(header.codec, records))
