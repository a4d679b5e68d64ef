"""Compaction of batches: which records of a batch stay, by Kafka's rules, and the batch that holds them.

Data path   none: segments are read, **rewritten** and replaced behind the data path's back
Owns        the key map, what stays, the delete horizon (KIP-534) in the header of a batch with tombstones
Leaves      which offsets are compacted, and when, to `model.compaction`; reading and replacing to `broker.maintenance`

Invariants  the latest record of a key stays; a record that stays keeps its offset, timestamp, key, value and headers
            a batch keeps its base offset and last offset, its producer and sequence, its codec
            batches of transactions and their markers are left as they are, and supersede nothing

A tombstone stays until its batch's delete horizon has passed: the time of the first compaction that met it, plus the
topic's `delete.retention.ms`. The horizon takes the place of the base timestamp, and attribute bit 6 says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, TypeAlias

from streamhouse.format.batch import BatchHeader, Buffer, pack_batch, read_header
from streamhouse.format.compression import compress
from streamhouse.format.record_walk import Place
from streamhouse.format.records import located_payload
from streamhouse.format.varint import append_varint

KeyHash: TypeAlias = bytes

_HASH_BYTES: Final = 16
_NO_TIMESTAMP: Final = -1
_LATEST_HORIZON_MS: Final = 2**62  # timestamps are written as differences to it, which must fit into 64 bits


def key_hash(key: Buffer) -> KeyHash:
    """16 bytes that stand for a key, as in Kafka: two keys of one hash would be taken for one."""
    return blake2b(key, digest_size=_HASH_BYTES).digest()


@dataclass(slots=True, kw_only=True)
class KeyMap:
    """The latest offset of each key in a stretch of a log, up to so many keys; batches are added in offset order."""

    max_keys: int
    limit_bytes: int
    latest: dict[KeyHash, int] = field(default_factory=dict)
    end: int = 0

    def add(self, batch: Buffer) -> bool:
        """Take all keys of a batch, or none and False when they are too many; the first batch is always taken."""
        header = read_header(batch)
        found = {} if _is_of_transaction(header) else _latest_of(batch, header, self.limit_bytes)
        if self.latest and len(self.latest) + sum(key not in self.latest for key in found) > self.max_keys:
            return False
        self.latest.update(found)
        self.end = header.end
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What decides about a record: `latest` knows the keys of everything from the first dirty offset to `end`."""

    latest: Mapping[KeyHash, int]
    end: int
    now_ms: int
    delete_retention_ms: int
    limit_bytes: int

    @property
    def horizon_ms(self) -> int:
        return min(self.now_ms + self.delete_retention_ms, _LATEST_HORIZON_MS)


def compacted(batch: Buffer, rules: Rules, *, keep_empty: bool = False) -> Buffer | None:
    """What stays of a batch: itself if that is all, another one, or None. With `keep_empty` a batch without records
    stays where none does, so that readers get to its last offset."""
    header = read_header(batch)
    if header.base_offset >= rules.end or _is_of_transaction(header):
        return batch
    payload, places = located_payload(batch, header, limit_bytes=rules.limit_bytes)
    kept = [place for place in places if _stays(payload, place, header, rules)]
    if not kept:
        return _emptied(batch, header) if keep_empty else None
    is_first_meeting = not header.has_delete_horizon and any(value_length < 0 for *_, value_length in kept)
    if len(kept) == len(places) and not is_first_meeting:
        return batch
    return _rebuilt(payload, header, kept, horizon_ms=rules.horizon_ms if is_first_meeting else None)


def _is_of_transaction(header: BatchHeader) -> bool:
    return header.is_control or header.is_transactional


def _latest_of(batch: Buffer, header: BatchHeader, limit_bytes: int) -> dict[KeyHash, int]:
    payload, places = located_payload(batch, header, limit_bytes=limit_bytes)
    view = memoryview(payload)
    base = header.base_offset
    return {
        key_hash(view[key : key + key_length]): base + offset_delta
        for _, _, _, _, _, offset_delta, key, key_length, _ in places
        if key_length >= 0
    }


def _stays(payload: memoryview, place: Place, header: BatchHeader, rules: Rules) -> bool:
    _, _, _, _, _, offset_delta, key, key_length, value_length = place
    if key_length < 0:
        return False  # written before the topic was compacted; nothing could ever supersede it
    if rules.latest.get(key_hash(payload[key : key + key_length]), -1) > header.base_offset + offset_delta:
        return False
    is_expired = header.has_delete_horizon and header.base_timestamp_ms <= rules.now_ms
    return value_length >= 0 or not is_expired


def _emptied(batch: Buffer, header: BatchHeader) -> Buffer:
    if header.record_count == 0:
        return batch
    # No time of its own: searches by time must not stop at it.
    return pack_batch(
        header._replace(
            attributes=header.attributes & ~header.codec,  # nothing to decompress
            base_timestamp_ms=_NO_TIMESTAMP,
            max_timestamp_ms=_NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _rebuilt(payload: memoryview, header: BatchHeader, kept: list[Place], *, horizon_ms: int | None) -> Buffer:
    latest_ms = header.base_timestamp_ms + max(place[4] for place in kept)
    header = header._replace(
        max_timestamp_ms=header.max_timestamp_ms if header.is_log_append_time else latest_ms, record_count=len(kept)
    )
    if horizon_ms is None:
        records = b"".join([payload[place[0] : place[3]] for place in kept])
    else:
        records = _retimed(payload, kept, by_ms=header.base_timestamp_ms - horizon_ms)
        header = header.with_delete_horizon(horizon_ms)
    return pack_batch(header, compress(header.codec, records))


def _retimed(payload: memoryview, kept: list[Place], *, by_ms: int) -> bytes:
    """The records with other timestamp deltas, because they are counted from another base."""
    records = bytearray()
    for _, body, rest, end, timestamp_delta, *_ in kept:
        head = bytearray(payload[body : body + 1])
        append_varint(head, timestamp_delta + by_ms)
        append_varint(records, len(head) + end - rest)
        records += head
        records += payload[rest:end]
    return bytes(records)
