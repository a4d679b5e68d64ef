from collections.abc import Iterable, Sequence

from streamhouse.format.batch import Buffer
from streamhouse.format.columnar_decoder import Payload
from streamhouse.format.columnar_encoder import BytesColumn, HeadersColumn, NumberColumn
from streamhouse.model.record import NewRecord, StoredRecord

def walk(payload: Buffer, count: int, consecutive: bool, max_headers: int) -> tuple[int, int, int, int, int]: ...
def murmur2(key: bytes) -> int: ...
def encode(records: Sequence[NewRecord], now_ms: int, room_bytes: int) -> tuple[int, int, bytearray, int, int]: ...
def decode(
    payload: Buffer,
    count: int,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int | None,
    from_offset: int,
    record_type: type[StoredRecord],
    position: int,
    index: int,
    max_records: int,
    max_bytes: int,
    max_headers: int,
) -> tuple[int, int, list[StoredRecord], int]: ...
def find_time(
    payload: Buffer,
    count: int,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int | None,
    from_offset: int,
    timestamp_ms: int,
) -> tuple[int, int, int, int, int]: ...
def schema_ids(
    payload: Buffer, count: int, of_key: bool, max_ids: int
) -> tuple[int, int, dict[int, int], int, bool]: ...
def columns(
    payloads: tuple[Payload, ...], wanted: int, from_offset: int, last_offset: int, from_ms: int, last_ms: int
) -> tuple[int, int, int, int, tuple[int, int, int, int], tuple[bytearray | None, ...]]: ...
def encode_columns(
    rows: int,
    columns: tuple[BytesColumn | None, BytesColumn | None, NumberColumn | None, HeadersColumn | None],
    partitions: Buffer,
    count: int,
    now_ms: int,
    batch_bytes: int,
    room_bytes: int,
) -> tuple[int, int, list[tuple[int, int, int, int, bytearray]]]: ...
def partition_rows(
    rows: int, key: BytesColumn | None, given: NumberColumn | None, count: int, start: int
) -> tuple[int, bytearray, int]: ...
def key_hashes(payload: Buffer, count: int, base_offset: int) -> tuple[int, int, bytearray, bytearray, bytearray]: ...
def filter(  # noqa: A001
    payload: Buffer, count: int, base_offset: int, offsets: Buffer, drop_tombstones: bool, retime_by: int | None
) -> tuple[int, int, int, int, int, bytearray | None]: ...
def filter_hashes(payload: Buffer, count: int) -> bytearray | None: ...
def has_key(payload: Buffer, count: int, key: bytes) -> bool: ...
def key_filter(hashes: Buffer, bits_per_key: int) -> bytearray: ...
def join(buffers: Iterable[Buffer]) -> bytes: ...
