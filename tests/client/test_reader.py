"""Where reading starts in each partition, and when it is over."""

from datetime import UTC, datetime

import pytest

from streamhouse.client.reader import ReadRange, Start, decide_starts, select_partitions, within
from streamhouse.client.types import Record
from streamhouse.errors import InvalidPartitions, OffsetOutOfRange, Rejected

EARLIEST, LATEST = {0: 0, 1: 5}, {0: 7, 1: 9}
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def starts(from_: Start, at_time: dict[int, int] | None = None) -> dict[int, int]:
    return decide_starts(from_, topic="t", earliest=EARLIEST, latest=LATEST, at_time=at_time or {})


def test_starts_at_a_time_after_the_last_record_are_the_end() -> None:
    assert starts(NOON, {0: 3, 1: -1}) == {0: 3, 1: 9}


def test_starts_at_an_end() -> None:
    assert starts("earliest") == EARLIEST
    assert starts("latest") == LATEST


def test_an_offset_must_be_there_in_every_partition() -> None:
    with pytest.raises(OffsetOutOfRange):
        starts(4)
    assert starts(6) == {0: 6, 1: 6}


def test_so_many_before_the_end_but_never_before_the_start() -> None:
    assert starts(-6) == {0: 1, 1: 5}


def test_partitions_have_offsets_of_their_own() -> None:
    assert starts({1: 8}) == {1: 8}
    assert select_partitions("t", {0, 1}, ReadRange(from_={1: 8})) == {1}


def test_words_that_are_no_start_are_refused_with_those_that_are() -> None:
    with pytest.raises(Rejected, match="earliest, latest, an offset or a time"):
        starts("begin")  # type: ignore[arg-type]


def test_a_partition_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidPartitions, match="partition=7 allowed=0 to 1"):
        select_partitions("t", {0, 1}, ReadRange(partitions=[0, 7]))


def test_records_behind_the_end_are_left_to_the_next_reader() -> None:
    records = [Record("t", 0, offset, 0, None, b"v") for offset in (5, 6, 7)]
    assert [record.offset for record in within(records, LATEST)] == [5, 6]
    assert within(records, None) == records
