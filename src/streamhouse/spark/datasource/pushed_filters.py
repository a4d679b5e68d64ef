"""Pushed filters: limits of topics, partitions, offsets and timestamps from Spark's filters, so that less is read.

Data path   filters -> **pushed_filters** -> offset ranges, blocks and records that are not read at all
Owns        which filters limit a read, and how
Leaves      the filters themselves to Spark, which applies them to every row again: limits may be generous, never wrong
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from streamhouse.spark.agents.client import OffsetRange

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedFilters:
    """The pushed-down filters: partitions, topics, and ranges [from, until) of offsets and times. None: no filter."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    from_offset: int | None = None
    until_offset: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None

    def prune(self, spans: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The parts of bounded ranges that the filters leave."""
        kept: list[OffsetRange] = []
        for span in spans:
            topic, number = span.partition
            if self.topics is not None and topic not in self.topics:
                continue
            if self.partitions is not None and number not in self.partitions:
                continue
            start = max(span.start, self.from_offset or 0)
            end = span.end if self.until_offset is None or span.end is None else min(span.end, self.until_offset)
            if end is None or start < end:
                kept.append(OffsetRange(span.partition, start, end))
        return kept


NO_FILTERS: Final = PushedFilters()


def translate_filters(filters: Iterable[Filter], *, prefix: str = "", own: Set[str] = frozenset()) -> PushedFilters:
    """The limits of filters, all of which hold. Columns may be named with a prefix.

    `own` are columns of the records themselves, which limit nothing, whatever their names.
    """
    pushed = NO_FILTERS
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        if len(attribute) == 1 and attribute[0].startswith(prefix) and attribute[0] not in own:
            narrow = _TRANSLATIONS.get(attribute[0].removeprefix(prefix))
            pushed = narrow(pushed, each) if narrow is not None else pushed
    return pushed


def _values(each: Filter) -> Sequence[Any] | None:
    if isinstance(each, EqualTo | EqualNullSafe):
        return [each.value]
    return each.value if isinstance(each, In) else None


def _topics(pushed: PushedFilters, each: Filter) -> PushedFilters:
    values = _values(each)
    if values is None:
        return pushed
    topics = frozenset(str(value) for value in values if value is not None)
    return replace(pushed, topics=topics if pushed.topics is None else topics & pushed.topics)


def _partitions(pushed: PushedFilters, each: Filter) -> PushedFilters:
    values = _values(each)
    if values is None:
        return pushed
    partitions = frozenset(int(value) for value in values if value is not None)
    return replace(pushed, partitions=partitions if pushed.partitions is None else partitions & pushed.partitions)


def _offsets(pushed: PushedFilters, each: Filter) -> PushedFilters:
    low, high = _range(each, lambda value: int(value))
    return replace(
        pushed, from_offset=_latest(pushed.from_offset, low), until_offset=_earliest(pushed.until_offset, high)
    )


def _times(pushed: PushedFilters, each: Filter) -> PushedFilters:
    low, high = _range(each, _milliseconds)
    return replace(pushed, from_ms=_latest(pushed.from_ms, low), until_ms=_earliest(pushed.until_ms, high))


def _range(each: Filter, number: Callable[[Any], int]) -> tuple[int | None, int | None]:
    """From which whole number to below which, rounded outwards."""
    values = _values(each)
    if values is not None:
        numbers = [number(value) for value in values if value is not None]
        return (min(numbers), max(numbers) + 1) if numbers else (None, None)
    if isinstance(each, GreaterThan | GreaterThanOrEqual) and each.value is not None:
        return number(each.value), None
    if isinstance(each, LessThan | LessThanOrEqual) and each.value is not None:
        return None, number(each.value) + 1
    return None, None


def _milliseconds(value: datetime) -> int:
    """The whole milliseconds before a moment; a moment without a zone is the session's own local time."""
    aware = value if value.tzinfo is not None else value.astimezone()
    return (aware - _EPOCH) // _MILLISECOND


_MILLISECOND: Final = datetime(1, 1, 1, microsecond=1000) - datetime(1, 1, 1)


def _latest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _earliest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


_TRANSLATIONS: Final[Mapping[str, Callable[[PushedFilters, Filter], PushedFilters]]] = {
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _times,
}
