"""Traces in the headers of a batch's records: which are found, and what looking for them may cost."""

import tracemalloc

from streamhouse.format.batch import HEADER_BYTES, BatchHeader, read_header
from streamhouse.format.compression import Codec
from streamhouse.format.records import encode_batch
from streamhouse.format.trace_headers import MAX_HEADERS, MAX_SEARCHED, find_traceparents
from streamhouse.model.record import Header, NewRecord

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACED: tuple[Header, ...] = (("traceparent", TRACE.encode()),)
EMPTY: tuple[Header, ...] = (("", None),)


def payload_of(records: list[NewRecord]) -> tuple[memoryview, BatchHeader]:
    batch = encode_batch(records, codec=Codec.NONE, now_ms=1)
    return memoryview(batch)[HEADER_BYTES:], read_header(batch)


def test_the_first_records_with_a_trace_are_found() -> None:
    traced = {1, 7, 8, 1500, 2999}
    records = [NewRecord(b"v", headers=TRACED if number in traced else EMPTY) for number in range(3000)]
    found = find_traceparents(*payload_of(records), limit=16)
    assert found == [(number, TRACE) for number in sorted(traced)]
    assert find_traceparents(*payload_of(records), limit=2) == [(1, TRACE), (7, TRACE)]


def test_other_headers_are_no_traces() -> None:
    records = [
        NewRecord(b"traceparent", headers=(("traceparent", b"x" * 54), ("trace", TRACE.encode()))),
        NewRecord(b"", headers=(("traceparent", None),)),
        NewRecord(None, headers=(*EMPTY, *TRACED, *TRACED)),
    ]
    assert find_traceparents(*payload_of(records), limit=16) == [(2, TRACE)]


def test_only_the_first_records_are_looked_at() -> None:
    records = [NewRecord(b"v")] * MAX_SEARCHED + [NewRecord(b"v", headers=TRACED)]
    assert find_traceparents(*payload_of(records), limit=16) == []


def test_only_the_first_headers_are_looked_at() -> None:
    before = [NewRecord(b"v", headers=EMPTY * 10_000)] * (MAX_HEADERS // 10_000 + 1)
    assert find_traceparents(*payload_of([*before, NewRecord(b"v", headers=TRACED)]), limit=16) == []
    assert find_traceparents(*payload_of([*before[2:], NewRecord(b"v", headers=TRACED)]), limit=16) == [(9, TRACE)]


def test_headers_of_two_bytes_become_no_gigabytes_because_one_record_has_a_trace() -> None:
    many = NewRecord(None, headers=EMPTY * 9_999)
    payload, header = payload_of([many] * 200 + [NewRecord(None, headers=TRACED)])
    tracemalloc.start()
    try:
        find_traceparents(payload, header, limit=16)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < len(payload) + (16 << 20)
