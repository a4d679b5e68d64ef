"""Compaction of batches: the latest record of a key stays, as it was, where it was."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import CorruptBatch
from streamhouse.format.batch import Buffer, assign_offset, check_batch, read_header, stamp_append_time
from streamhouse.format.compaction import FilterRules, KeyMap, compact_batch
from streamhouse.format.compaction_kernel import key_hash
from streamhouse.format.compression import Codec
from streamhouse.format.records import Record, build_batch, first_record_at, read_records

LIMIT = 1 << 20
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def record(key: bytes | None, value: bytes | None = b"v", timestamp_ms: int = NOW_MS) -> Record:
    return Record(key=key, value=value, timestamp_ms=timestamp_ms, headers=(("h", b"x"), ("n", None)))


def batch(*records: Record, base: int = 0, **settings: object) -> bytearray:
    return build_batch(records, base_offset=base, leader_epoch=3, **settings)  # type: ignore[arg-type]


def rules(*batches: Buffer, now_ms: int = NOW_MS, retention_ms: int = DAY_MS) -> FilterRules:
    keys = KeyMap(max_keys=1000, limit_bytes=LIMIT)
    for each in batches:
        assert keys.add(each)
    return FilterRules(
        latest=keys.latest, end=keys.end, now_ms=now_ms, delete_retention_ms=retention_ms, limit_bytes=LIMIT
    )


def records_of(data: Buffer | None) -> list[Record]:
    assert data is not None
    return read_records(data, limit_bytes=LIMIT)


# --- what stays


def test_the_latest_record_of_a_key_stays_where_it_was() -> None:
    first = batch(record(b"a", b"1"), record(b"b", b"2"), record(b"a", b"3"), record(b"c", b"4"))
    second = batch(record(b"b", b"5"), base=4)
    decided = rules(first, second)
    assert [(each.offset, each.key, each.value) for each in records_of(compact_batch(first, decided))] == [
        (2, b"a", b"3"),
        (3, b"c", b"4"),
    ]
    assert compact_batch(second, decided) is second


def test_a_batch_of_which_nothing_stays_goes() -> None:
    first, second = batch(record(b"a")), batch(record(b"a"), base=1)
    assert compact_batch(first, rules(first, second)) is None


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_loses_records_keeps_all_else(codec: Codec) -> None:
    old = batch(
        record(b"a", timestamp_ms=NOW_MS + 5),
        record(b"b", timestamp_ms=NOW_MS - 7),
        record(b"a", timestamp_ms=NOW_MS - 2),
        record(b"b"),
        record(b"c", timestamp_ms=NOW_MS + 1),
        record(b"c", timestamp_ms=NOW_MS - 9),
        base=2**40,
        codec=codec,
        producer_id=7,
        producer_epoch=1,
        base_sequence=11,
    )
    new = compact_batch(old, rules(old))
    assert new is not None
    was, now = read_header(old), read_header(new)
    kept = {"size_bytes": now.size_bytes, "crc": now.crc, "max_timestamp_ms": NOW_MS, "record_count": 3}
    assert now == was._replace(**kept)
    assign_offset(new, base_offset=0, leader_epoch=3)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="count and offsets"):
        check_batch(new)  # whole and undamaged, but no producer would send it
    assert [replace(each, offset=0) for each in records_of(new)] == [
        replace(records_of(old)[n], offset=0) for n in (2, 3, 5)
    ]
    assert [each.offset for each in records_of(new)] == [2, 3, 5]


def test_what_lies_above_the_keys_that_are_known_stays() -> None:
    first, second = batch(record(b"a")), batch(record(b"b"), record(b"b"), base=1)
    assert compact_batch(second, rules(first)) is second


def test_records_without_a_key_go() -> None:
    old = batch(record(None), record(b"a"))
    assert [each.offset for each in records_of(compact_batch(old, rules(old)))] == [1]


def test_damaged_records_are_not_guessed_at() -> None:
    old = batch(record(b"a"), record(b"b"))
    old[61] ^= 0x7F
    with pytest.raises(CorruptBatch):
        compact_batch(old, rules(batch(record(b"a"), base=9)))


# --- tombstones


def test_a_tombstone_gets_its_horizon_at_the_first_compaction_and_goes_after_it() -> None:
    old = batch(record(b"a", None, NOW_MS - 3), record(b"b", b"v", NOW_MS - DAY_MS), record(b"c", None, NOW_MS + 4))
    first = compact_batch(old, rules(old))
    assert first is not None
    header = read_header(first)
    assert header.has_delete_horizon
    assert header.base_timestamp_ms == NOW_MS + DAY_MS
    assert header.max_timestamp_ms == NOW_MS + 4
    assert records_of(first) == records_of(old)
    assert compact_batch(first, rules(old, now_ms=NOW_MS + DAY_MS - 1)) is first
    last = compact_batch(first, rules(old, now_ms=NOW_MS + DAY_MS))
    assert [each.key for each in records_of(last)] == [b"b"]
    assert records_of(last)[0].timestamp_ms == NOW_MS - DAY_MS
    assert read_header(last or b"").max_timestamp_ms == NOW_MS - DAY_MS


def test_a_horizon_is_not_moved_by_later_compactions() -> None:
    old = batch(record(b"a", None), record(b"b"))
    first = compact_batch(old, rules(old))
    assert first is not None
    later = batch(record(b"b"), base=2)
    second = compact_batch(first, rules(later, now_ms=NOW_MS + 5))
    assert second is not None
    assert read_header(second).base_timestamp_ms == NOW_MS + DAY_MS
    assert [(each.key, each.timestamp_ms) for each in records_of(second)] == [(b"a", NOW_MS)]


@pytest.mark.parametrize("retention_ms", [0, 2**63 - 1])
def test_any_retention_of_tombstones_can_be_written(retention_ms: int) -> None:
    old = batch(record(b"a", None, 0), record(b"b", None, -1))
    first = compact_batch(old, rules(old, retention_ms=retention_ms))
    assert records_of(first) == records_of(old)


def test_the_append_time_of_a_batch_stays_its_records_time() -> None:
    old = batch(record(b"a", timestamp_ms=1), record(b"a", None, 2), record(b"b", b"v", 3))
    stamp_append_time(old, NOW_MS)
    new = compact_batch(old, rules(old))
    assert new is not None
    assert read_header(new).max_timestamp_ms == NOW_MS
    assert [(each.offset, each.timestamp_ms) for each in records_of(new)] == [(1, NOW_MS), (2, NOW_MS)]
    assert first_record_at(new, NOW_MS, limit_bytes=LIMIT) == (1, NOW_MS)
    assert first_record_at(new, NOW_MS, from_offset=2, limit_bytes=LIMIT) == (2, NOW_MS)


# --- empty batches


@pytest.mark.parametrize("codec", list(Codec))
def test_an_empty_batch_keeps_the_last_offset_within_reach(codec: Codec) -> None:
    old = batch(record(b"a"), record(b"a"), base=5, codec=codec, producer_id=7, producer_epoch=0, base_sequence=3)
    decided = rules(batch(record(b"a"), base=9))
    empty = compact_batch(old, decided, keep_empty=True)
    assert empty is not None
    header = read_header(empty)
    assert (header.base_offset, header.end, header.record_count) == (5, 7, 0)
    assert (header.producer_id, header.base_sequence, header.max_timestamp_ms) == (7, 3, -1)
    assert read_records(empty, limit_bytes=LIMIT) == []
    assert compact_batch(empty, decided, keep_empty=True) is empty
    assert compact_batch(empty, decided) is None


# --- the key map


def test_a_full_map_takes_no_batch_with_a_new_key() -> None:
    keys = KeyMap(max_keys=2, limit_bytes=LIMIT)
    assert keys.add(batch(record(b"a"), record(b"b")))
    assert keys.add(batch(record(b"b"), base=2))
    assert not keys.add(batch(record(b"a"), record(b"c"), base=3))
    assert keys.latest == {key_hash(b"a"): 0, key_hash(b"b"): 2}
    assert keys.end == 3


def test_the_first_batch_fits_however_many_keys_it_has() -> None:
    keys = KeyMap(max_keys=1, limit_bytes=LIMIT)
    assert keys.add(batch(record(b"a"), record(b"b")))
    assert keys.end == 2


# --- against a model

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", None])
BATCHES = st.lists(
    st.lists(st.builds(record, KEYS, st.sampled_from([b"v", b"", None])), min_size=1, max_size=5),
    min_size=1,
    max_size=6,
)


@given(BATCHES, st.sampled_from(list(Codec)), st.integers(1, 4))
def test_passes_with_a_small_map_leave_what_a_dictionary_would(
    written: Sequence[Sequence[Record]], codec: Codec, max_keys: int
) -> None:
    log: list[Buffer] = []
    base = 0
    for each in written:
        log.append(batch(*each, base=base, codec=codec))
        base += len(each)
    everything = [each for data in log for each in records_of(data)]
    latest = {each.key: each.offset for each in everything if each.key is not None}
    dirty = 0
    while dirty < base:
        keys = KeyMap(max_keys=max_keys, limit_bytes=LIMIT)
        for data in log:
            if read_header(data).base_offset >= dirty and not keys.add(data):
                break
        decided = FilterRules(
            latest=keys.latest, end=keys.end, now_ms=NOW_MS, delete_retention_ms=DAY_MS, limit_bytes=LIMIT
        )
        log = [stays for data in log if (stays := compact_batch(data, decided, keep_empty=data is log[-1])) is not None]
        dirty = keys.end
    left = [each for data in log for each in records_of(data)]
    assert left == [each for each in everything if latest.get(each.key) == each.offset]  # type: ignore[arg-type]
