"""Markers: the control batches that say in a partition how a transaction ended.

Data path   broker.transactions -> log -> **marker_batch** -> WAL, segment -> fetch -> clients; and **read_marker** for
            whoever replays a log
Owns        the one record of such a batch: key (version, kind), value (version, the transaction's number)
Leaves      the batch's header to `format.batch`, what a marker does to `broker.producers`
"""

import struct
from typing import Final

from streamhouse.errors import CorruptBatch
from streamhouse.format.batch import NO_SEQUENCE, BatchHeader, Buffer, pack_batch, read_header
from streamhouse.format.records import read_records
from streamhouse.model.transaction import Marker, ProducerIdentity

MARKER_RECORD_BYTES: Final = 64
"""More than the one record of a marker has, whatever compaction wrote into its header."""

_ATTRIBUTES: Final = 0x30  # of a transaction, and for readers' eyes only
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1

# Length 16; attributes, timestamp and offset deltas 0; a key of 4 bytes. Then a value of 6, and no headers.
_BEFORE_KEY: Final = bytes((16 << 1, 0, 0, 0, 4 << 1))
_BEFORE_VALUE: Final = bytes((6 << 1,))
_AFTER: Final = bytes((0,))


def marker_batch(marker: Marker, *, now_ms: int) -> bytearray:
    """The control batch that ends the transaction; it has no offset yet."""
    kind = _COMMIT if marker.is_commit else _ABORT
    record = _BEFORE_KEY + _KEY.pack(0, kind) + _BEFORE_VALUE + _VALUE.pack(0, marker.number) + _AFTER
    header = BatchHeader(
        base_offset=0,
        size_bytes=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=_ATTRIBUTES,
        last_offset_delta=0,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        producer_id=marker.producer.producer_id,
        producer_epoch=marker.producer.epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return pack_batch(header, record)


def read_marker(batch: Buffer) -> Marker:
    """What a control batch says; raises `CorruptBatch` for one that is no marker."""
    header = read_header(batch)
    if header.codec:  # nobody writes such ones, and whoever replays a log doesn't decompress on the way
        raise CorruptBatch(f"a marker is compressed; codec={header.codec}")
    records = read_records(batch, limit_bytes=MARKER_RECORD_BYTES) if header.is_control else []
    if len(records) != 1:
        raise CorruptBatch(f"not a marker; control={header.is_control} records={len(records)}")
    key, value = records[0].key or b"", records[0].value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        raise CorruptBatch(f"a marker is cut off; key_bytes={len(key)} value_bytes={len(value)}")
    _, kind = _KEY.unpack_from(key)
    _, number = _VALUE.unpack_from(value)
    if kind not in (_ABORT, _COMMIT):
        raise CorruptBatch(f"unknown kind of control batch; kind={kind}")
    producer = ProducerIdentity(header.producer_id, header.producer_epoch)
    return Marker(producer=producer, number=number, is_commit=kind == _COMMIT)
