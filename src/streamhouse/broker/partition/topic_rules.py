"""Topic rules: whether the records of a batch violate a setting of their topic.

Data path   append -> **topic_rules**

A batch is checked by the summary of its records. Only when it violates a rule are its records examined one by one, so
that the producer learns which of them were rejected and can send the others again.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from streamhouse.errors import BadRecords, InvalidRecord, InvalidTimestamp
from streamhouse.format.records import Record, RecordsSummary
from streamhouse.model.topic import TopicConfig

NO_TIMESTAMP: Final = -1


class RuleViolation(NamedTuple):
    """A violated topic rule."""

    error: type[BadRecords]
    text: str
    is_broken_by: Callable[[Record], bool]


def find_violation(summary: RecordsSummary, config: TopicConfig, *, now_ms: int) -> RuleViolation | None:
    """The first rule that these records violate, if any."""
    if config.compacts and summary.null_keys:
        return RuleViolation(
            InvalidRecord,
            f"a compacted topic needs keys; records_without_key={summary.null_keys}",
            lambda record: record.key is None,
        )
    return None if config.log_append_time else _timestamp_violation(summary, config, now_ms)


def _timestamp_violation(summary: RecordsSummary, config: TopicConfig, now_ms: int) -> RuleViolation | None:
    newest = now_ms + config.timestamp_after_max_ms
    oldest = now_ms - config.timestamp_before_max_ms
    if summary.max_timestamp_ms > newest:
        text = f"timestamp is too far ahead; timestamp_ms={summary.max_timestamp_ms} newest_ms={newest}"
    elif NO_TIMESTAMP < summary.min_timestamp_ms < oldest:
        text = f"timestamp is too far behind; timestamp_ms={summary.min_timestamp_ms} oldest_ms={oldest}"
    else:
        return None
    return RuleViolation(
        InvalidTimestamp,
        text,
        lambda record: record.timestamp_ms > newest or NO_TIMESTAMP < record.timestamp_ms < oldest,
    )
