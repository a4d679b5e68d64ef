"""Filters: what they leave out, and that they never leave out too much."""

from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from streamhouse.model.names import TopicPartition
from streamhouse.spark.agents.client import OffsetRange
from streamhouse.spark.datasource.pushed_filters import NO_FILTERS, PushedFilters, translate_filters

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
MOMENT_MS = 1_767_225_600_000


def test_offsets_and_times_become_ranges() -> None:
    assert translate_filters([GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9)]) == PushedFilters(
        from_offset=5, until_offset=10
    )
    assert translate_filters([EqualTo(("offset",), 5)]) == PushedFilters(from_offset=5, until_offset=6)
    assert translate_filters([In(("offset",), (5, 3))]) == PushedFilters(from_offset=3, until_offset=6)
    after = translate_filters(
        [GreaterThan(("timestamp",), MOMENT + timedelta(microseconds=1)), LessThanOrEqual(("timestamp",), MOMENT)]
    )
    assert after == PushedFilters(from_ms=MOMENT_MS, until_ms=MOMENT_MS + 1)


def test_several_filters_hold_together() -> None:
    result = translate_filters([In(("partition",), (1, 2)), In(("partition",), (2, 3)), EqualTo(("topic",), "a")])
    assert result == PushedFilters(partitions=frozenset({2}), topics=frozenset({"a"}))
    assert translate_filters([GreaterThan(("offset",), 5), GreaterThan(("offset",), 9)]) == PushedFilters(from_offset=9)


def test_what_says_nothing_about_places_and_times_is_left_to_spark() -> None:
    filters = [IsNotNull(("offset",)), Not(EqualTo(("partition",), 1)), EqualTo(("key",), b"x"), EqualTo(("a", "b"), 1)]
    assert translate_filters(filters) == NO_FILTERS


def test_typed_columns_are_named_with_a_prefix() -> None:
    assert translate_filters([EqualTo(("_partition",), 1), EqualTo(("partition",), 2)], prefix="_") == PushedFilters(
        partitions=frozenset({1})
    )


def test_filters_on_fields_of_the_records_themselves_say_nothing_of_the_log() -> None:
    filters = [EqualTo(("_partition",), 1), GreaterThanOrEqual(("_offset",), 5)]
    assert translate_filters(filters, prefix="_", own={"_offset"}) == PushedFilters(partitions=frozenset({1}))


def test_spans_are_narrowed_and_empty_ones_left_out() -> None:
    spans = [
        OffsetRange(TopicPartition("a", 0), 0, 10),
        OffsetRange(TopicPartition("a", 1), 0, 4),
        OffsetRange(TopicPartition("b", 0), 0, 10),
    ]
    pushed = PushedFilters(topics=frozenset({"a"}), from_offset=5, until_offset=8)
    assert pushed.prune(spans) == [OffsetRange(TopicPartition("a", 0), 5, 8)]
    assert PushedFilters(partitions=frozenset({1})).prune(spans) == [spans[1]]
