"""When a read of several leaders ends, and which results it returns."""

from streamhouse.broker.forwarding.fan_out import is_enough, trimmed
from streamhouse.errors import NotLeader, OffsetOutOfRange, Unavailable
from streamhouse.model.fetch import FetchResult
from streamhouse.model.names import TopicPartition
from tests.broker.support import batch

NAMES = [TopicPartition("orders", number) for number in range(3)]


def found(index: int, *values: bytes, high_watermark: int = 1) -> FetchResult:
    records = [batch(*values)] if values else []
    return FetchResult(name=NAMES[index], high_watermark=high_watermark, log_start=0, records=records)


def test_records_from_anybody_are_enough_when_they_are_as_many_as_requested() -> None:
    size = found(0, b"a").size_bytes
    assert is_enough([found(0, b"a"), found(1)], min_bytes=1)
    assert is_enough([found(0, b"a"), found(1, b"b")], min_bytes=2 * size)
    assert not is_enough([found(0, b"a"), found(1)], min_bytes=size + 1)
    assert not is_enough([found(0), found(1)], min_bytes=0)


def test_more_behind_what_fits_is_enough() -> None:
    assert is_enough([found(0, b"a", high_watermark=9)], min_bytes=10**6)


def test_an_error_of_the_callers_is_returned_at_once_and_one_that_may_pass_is_not() -> None:
    refused = FetchResult(name=NAMES[0], error=OffsetOutOfRange(NAMES[0], offset=9, start=0, end=1))
    assert is_enough([refused, found(1)], min_bytes=1)
    moved = NotLeader(NAMES[0], node_id=None, epoch=-1, address=None)
    for error in (moved, Unavailable("away")):
        assert not is_enough([FetchResult(name=NAMES[0], error=error), found(1)], min_bytes=1)


def test_what_is_too_much_is_left_for_the_next_read_and_the_first_is_always_told() -> None:
    size = found(0, b"a").size_bytes
    requests = [found(0, b"a"), found(1), found(2, b"c")]
    assert [bool(each.records) for each in trimmed(requests, max_bytes=2 * size)] == [True, False, True]
    assert [bool(each.records) for each in trimmed(requests, max_bytes=2 * size - 1)] == [True, False, False]
    short = trimmed(requests, max_bytes=1)
    assert [bool(each.records) for each in short] == [True, False, False]
    assert short[2].high_watermark == 1
