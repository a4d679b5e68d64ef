"""Fetch responses become records and next offsets."""

from types import SimpleNamespace
from typing import Any

import pytest

from streamhouse.client.fetch_response import read_fetch_response
from streamhouse.errors import CorruptBatch, CorruptObject, Rejected
from streamhouse.format.batch import assign_offset
from streamhouse.format.records import Record, build_batch
from tests.format.transactional_logs import Written

NOT_LEADER, OUT_OF_RANGE, CORRUPT = 6, 1, 2


def batch(base: int, *values: bytes, **how: Any) -> bytes:
    made = build_batch([Record(value=value) for value in values], **how)
    assign_offset(memoryview(made), base_offset=base, leader_epoch=1)
    return bytes(made)


def respond(*partitions: tuple[int, int, bytes], aborted: list[Any] | None = None) -> Any:
    results = [(number, code, 0, 0, 0, aborted or [], -1, data) for number, code, data in partitions]
    return SimpleNamespace(error_code=0, topics=[("t", results)])


def test_records_begin_at_the_offset_that_was_requested() -> None:
    (chunk,) = read_fetch_response(respond((0, 0, batch(10, b"a", b"b", b"c") + batch(13, b"d"))), "t", {0: 11}).chunks
    assert (chunk.next_offset, chunk.position) == (14, 11)
    assert [(record.offset, record.value) for record in chunk.take(9)] == [(11, b"b"), (12, b"c"), (13, b"d")]
    assert chunk.position == 14


def test_a_batch_that_was_cut_off_is_fetched_again() -> None:
    data = batch(0, b"a") + batch(1, b"b")
    (chunk,) = read_fetch_response(respond((0, 0, data[:-1])), "t", {0: 0}).chunks
    assert ([record.value for record in chunk.take(9)], chunk.next_offset) == ([b"a"], 1)
    assert read_fetch_response(respond((0, 0, batch(0, b"a")[:-1])), "t", {0: 0}).chunks == []


@pytest.mark.parametrize("length", [-13, -12, 0, 48, -(2**31)])
def test_a_length_that_no_batch_has_is_refused_and_not_walked_forever(length: int) -> None:
    lying = bytearray(batch(0, b"a") + batch(1, b"b"))
    lying[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match="shorter than its header"):
        read_fetch_response(respond((0, 0, bytes(lying))), "t", {0: 0})


def test_records_that_an_agent_can_not_read_are_an_error_that_says_where() -> None:
    with pytest.raises(CorruptObject, match=r"t-0 .*from offset 7 on are missing or damaged .*do=streamhouse doctor"):
        read_fetch_response(respond((0, CORRUPT, b"")), "t", {0: 7})


def test_what_has_no_records_for_people_is_passed_by() -> None:
    (chunk,) = read_fetch_response(respond((0, 0, batch(0, b"marker", is_control=True))), "t", {0: 0}).chunks
    assert (chunk.take(9), chunk.position) == ([], 1)


def test_records_are_taken_in_pieces_and_batches_opened_one_by_one() -> None:
    (chunk,) = read_fetch_response(respond((0, 0, batch(0, b"a", b"b", b"c") + batch(3, b"d"))), "t", {0: 0}).chunks
    assert [record.value for record in chunk.take(2)] == [b"a", b"b"]
    assert (chunk.is_done, chunk.position) == (False, 2)
    assert [record.value for record in chunk.take(1)] == [b"c"]
    assert (chunk.is_done, chunk.position) == (False, 3)
    assert [record.value for record in chunk.take(9)] == [b"d"]
    assert (chunk.is_done, chunk.position) == (True, 4)


def test_a_partition_that_is_led_elsewhere_does_not_hold_up_the_others() -> None:
    response = read_fetch_response(respond((0, NOT_LEADER, b""), (1, 0, batch(0, b"a"))), "t", {0: 0, 1: 0})
    assert [chunk.partition for chunk in response.chunks] == [1]
    assert response.error is not None


def test_an_offset_that_is_gone_is_reported_and_not_waited_for() -> None:
    with pytest.raises(Rejected, match="offset out of range; name=t-0"):
        read_fetch_response(respond((0, OUT_OF_RANGE, b"")), "t", {0: 5})


def test_what_was_aborted_is_passed_over() -> None:
    written = Written()
    written.send(7, (b"a", b"0"))
    written.send(8, (b"a", b"1"))
    written.finish(7, commit=False)
    written.send(7, (b"a", b"3"))
    written.finish(7, commit=True)
    written.finish(8, commit=False)
    response = respond((0, 0, b"".join(map(bytes, written.log))), aborted=[(7, 0), (8, 1)])
    (chunk,) = read_fetch_response(response, "t", {0: 0}).chunks
    assert chunk.next_offset == 6
    assert [record.value for record in chunk.take(100)] == [b"3"]
    assert (chunk.is_done, chunk.position) == (True, 6)


def test_a_transaction_whose_marker_did_not_come_along_is_void_to_the_end() -> None:
    written = Written()
    written.send(7, (b"a", b"0"))
    written.plain((b"a", b"1"))
    written.send(7, (b"a", b"2"))
    response = respond((0, 0, b"".join(map(bytes, written.log))), aborted=[(7, 0)])
    (chunk,) = read_fetch_response(response, "t", {0: 0}).chunks
    assert [record.value for record in chunk.take(100)] == [b"1"]
