"""Compaction in C: the same keys, and the same records left out, as in plain Python, for any bytes."""

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import CorruptBatch
from streamhouse.format import compaction_kernel
from streamhouse.format.batch import Buffer, read_header
from streamhouse.format.compaction import CompactionPolicy, FilterRules, KeyMap, batch_keys, compact_batch, filter_batch
from streamhouse.format.compaction_kernel import (
    RecordFilter,
    filter_in_c,
    filter_in_python,
    key_hash,
    keys_in_c,
    keys_in_python,
    wrapped,
)
from streamhouse.format.compression import Codec
from streamhouse.format.records import Record, build_batch, read_records, stored_payload

LIMIT = 1 << 20
NOW_MS = 1_700_000_000_000

pytestmark = pytest.mark.skipif(
    not (compaction_kernel.IS_COMPILED and compaction_kernel.IS_COMPILED), reason="built without a compiler"
)

KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"c"]) | st.binary(max_size=300)
RECORDS = st.lists(
    st.builds(
        Record,
        key=KEYS,
        value=st.none() | st.binary(max_size=8),
        timestamp_ms=st.integers(0, 2**41),
        headers=st.just(()) | st.just((("h", b"x"), ("n", None))),
    ),
    min_size=1,
    max_size=12,
)
BASES = st.sampled_from([0, 5, 2**31 - 3, 2**32 - 1, 2**53, 2**62])


def payload_of(batch: Buffer) -> bytes:
    return bytes(stored_payload(batch, read_header(batch), LIMIT))


def offsets_of(numbers: Sequence[int]) -> bytes:
    return array("q", sorted(numbers)).tobytes()


@given(RECORDS, BASES)
def test_keys_are_the_same(records: list[Record], base: int) -> None:
    payload = payload_of(build_batch(records, base_offset=base))
    read = keys_in_c(payload, len(records), base)
    assert read == keys_in_python(payload, len(records), base)
    assert list(read.keys.each()) == [
        (key_hash(each.key), base + at) for at, each in enumerate(records) if each.key is not None
    ]
    assert list(read.keys.tombstones) == [each.value is None for each in records if each.key is not None]


@given(st.binary(max_size=60), st.integers(0, 5), st.sampled_from([0, 2**63 - 1, -(2**63)]))
def test_bytes_that_are_no_records_have_the_same_flaw(payload: bytes, count: int, base: int) -> None:
    assert keys_in_c(payload, count, base)[:2] == keys_in_python(payload, count, base)[:2]
    request = RecordFilter(offsets_of([0, 1]))
    assert filter_in_c(payload, count, 0, request)[:2] == filter_in_python(payload, count, 0, request)[:2]


@given(
    RECORDS,
    BASES,
    st.sets(st.integers(-2, 14)),
    st.booleans(),
    st.none() | st.integers(-(2**62), 2**62) | st.sampled_from([-(2**63), 2**63 - 1]),
)
def test_what_stays_is_the_same(
    records: list[Record], base: int, stays: set[int], drop_tombstones: bool, retime_by: int | None
) -> None:
    payload = payload_of(build_batch(records, base_offset=base))
    request = RecordFilter(offsets_of([base + each for each in stays]), drop_tombstones, retime_by)
    assert filter_in_c(payload, len(records), base, request) == filter_in_python(payload, len(records), base, request)


@given(st.integers(-(2**70), 2**70))
def test_a_number_of_64_bits_is_itself(number: int) -> None:
    assert wrapped(number) == number if -(2**63) <= number < 2**63 else -(2**63) <= wrapped(number) < 2**63


def test_a_batch_that_was_filtered_is_filtered_again() -> None:
    """Its offsets have gaps by then, and other offsets of the same list belong to other batches."""
    old = build_batch([Record(key=b"%d" % each, value=b"v") for each in range(10)], base_offset=100)
    terms = CompactionPolicy(end=200, now_ms=NOW_MS, delete_retention_ms=1000, limit_bytes=LIMIT)
    once = filter_batch(old, offsets_of([3, 101, 104, 107, 109, 150]), terms)
    assert once is not None
    twice = filter_batch(once, offsets_of([104, 109]), terms)
    assert twice is not None
    assert [each.offset for each in read_records(twice, limit_bytes=LIMIT)] == [104, 109]
    assert read_header(twice).end == 110


@given(st.lists(RECORDS, min_size=1, max_size=6), st.sampled_from(list(Codec)))
def test_the_latest_offsets_of_a_log_and_its_key_map_leave_the_same(log: list[list[Record]], codec: Codec) -> None:
    """The two ways to say what stays: a map of keys, as agents have it, and offsets, as jobs have them."""
    batches: list[Buffer] = []
    base = 0
    for records in log:
        batches.append(build_batch(records, base_offset=base, codec=codec))
        base += len(records)
    keys = KeyMap(max_keys=1000, limit_bytes=LIMIT)
    latest: dict[bytes, int] = {}
    for batch in batches:
        assert keys.add(batch)
        latest.update(batch_keys(batch, limit_bytes=LIMIT).each())
    rules = FilterRules(latest=keys.latest, end=base, now_ms=NOW_MS, delete_retention_ms=1000, limit_bytes=LIMIT)
    terms = CompactionPolicy(end=base, now_ms=NOW_MS, delete_retention_ms=1000, limit_bytes=LIMIT)
    stays = offsets_of(list(latest.values()))
    assert [compact_batch(batch, rules, keep_empty=True) for batch in batches] == [
        filter_batch(batch, stays, terms, keep_empty=True) for batch in batches
    ]


@pytest.mark.parametrize("compiled", [True, False])
def test_agents_without_the_extension_compact_all_the_same(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_kernel, "IS_COMPILED", compiled)
    monkeypatch.setattr(compaction_kernel, "IS_COMPILED", compiled)
    batch = build_batch([Record(key=b"a", value=b"1"), Record(key=b"b"), Record(key=b"a", value=b"2")])
    terms = CompactionPolicy(end=3, now_ms=NOW_MS, delete_retention_ms=1000, limit_bytes=LIMIT)
    new = filter_batch(batch, offsets_of([1, 2]), terms)
    assert new is not None
    assert [(each.offset, each.value) for each in read_records(new, limit_bytes=LIMIT)] == [(1, None), (2, b"2")]
    assert read_header(new).base_timestamp_ms == NOW_MS + 1000


def test_a_damaged_batch_is_not_compacted() -> None:
    batch = build_batch([Record(key=b"a", value=b"1"), Record(key=b"b")])
    batch[61] = 120
    terms = CompactionPolicy(end=3, now_ms=NOW_MS, delete_retention_ms=1000, limit_bytes=LIMIT)
    with pytest.raises(CorruptBatch):
        filter_batch(batch, offsets_of([1]), terms)
    with pytest.raises(CorruptBatch):
        batch_keys(batch, limit_bytes=LIMIT)


def test_offsets_are_numbers_of_64_bits() -> None:
    payload = payload_of(build_batch([Record(key=b"a")]))
    with pytest.raises(ValueError, match="64 bits"):
        filter_in_c(payload, 1, 0, RecordFilter(b"1234567"))
