"""Markers: control batches in Kafka's format, encoded and decoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import CorruptBatch
from streamhouse.format.batch import read_header
from streamhouse.format.records import Record, build_batch
from streamhouse.format.transactions import marker_batch, read_marker
from streamhouse.model.transaction import Marker, ProducerIdentity

MARKERS = st.builds(
    Marker,
    producer=st.builds(ProducerIdentity, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)),
    number=st.integers(0, 2**31 - 1),
    is_commit=st.booleans(),
)


@given(MARKERS, st.integers(0, 2**53))
def test_reading_undoes_writing(marker: Marker, now_ms: int) -> None:
    assert read_marker(marker_batch(marker, now_ms=now_ms)) == marker


@pytest.mark.parametrize(("is_commit", "kind"), [(False, 0), (True, 1)])
def test_a_marker_is_byte_for_byte_a_control_batch_of_kafkas(is_commit: bool, kind: int) -> None:
    marker = Marker(producer=ProducerIdentity(258, 3), number=9, is_commit=is_commit)
    batch = marker_batch(marker, now_ms=1_700_000_000_000)
    record = bytes((32, 0, 0, 0, 8, 0, 0, 0, kind, 12, 0, 0, 0, 0, 0, 9, 0))
    assert bytes(batch[61:]) == record
    header = read_header(batch)
    assert (header.attributes, header.last_offset_delta, header.record_count) == (0x30, 0, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (258, 3, -1)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (1_700_000_000_000, 1_700_000_000_000)


@pytest.mark.parametrize(
    "record",
    [
        Record(key=b"\0\0\0", value=b"\0\0\0\0\0\x09"),
        Record(key=b"\0\0\0\1", value=b"\0\0"),
        Record(key=b"\0\0\0\7", value=b"\0\0\0\0\0\x09"),
        Record(key=None, value=None),
    ],
)
def test_other_control_batches_are_no_markers(record: Record) -> None:
    with pytest.raises(CorruptBatch):
        read_marker(build_batch([record], producer_id=1, producer_epoch=0, is_transactional=True, is_control=True))


def test_records_that_look_like_a_marker_are_none() -> None:
    record = Record(key=b"\0\0\0\1", value=b"\0\0\0\0\0\x09")
    with pytest.raises(CorruptBatch):
        read_marker(build_batch([record], producer_id=1, producer_epoch=0, is_transactional=True))


def test_a_compressed_control_batch_is_no_marker() -> None:
    record = Record(key=bytes(4), value=bytes(6))
    packed = build_batch([record], codec=4, producer_id=1, producer_epoch=0, is_transactional=True, is_control=True)
    with pytest.raises(CorruptBatch, match="compressed"):
        read_marker(packed)
