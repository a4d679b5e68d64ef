"""Rules: what a topic demands of the records it takes.

Data path   wire -> broker asks **rules** after a batch was found well formed, before its log sees it
Owns        which rule of its topic a batch breaks, and how a record that breaks it is recognised
Leaves      the structure of records to `format.records`, refusing to `broker`

A batch is judged by the summary of its records, which costs nothing. Only when it breaks a rule are its records looked
at one by one, so that the producer learns which of them were to blame and may send the others again.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from streamhouse.errors import BadRecords, InvalidRecord, InvalidTimestamp
from streamhouse.format.records import Record, RecordsSummary
from streamhouse.model.topic import TopicConfig

NO_TIMESTAMP: Final = -1


class Breach(NamedTuple):
    """A rule that a batch breaks."""

    error: type[BadRecords]
    text: str
    is_broken_by: Callable[[Record], bool]


def find_breach(summary: RecordsSummary, config: TopicConfig, *, now_ms: int) -> Breach | None:
    """The first rule that these records break, if there is one."""
    if config.compacts and summary.null_keys:
        return Breach(
            InvalidRecord,
            f"a compacted topic needs keys; records_without_key={summary.null_keys}",
            lambda record: record.key is None,
        )
    return None if config.log_append_time else _timestamp_breach(summary, config, now_ms)


def _timestamp_breach(summary: RecordsSummary, config: TopicConfig, now_ms: int) -> Breach | None:
    newest = now_ms + config.timestamp_after_max_ms
    oldest = now_ms - config.timestamp_before_max_ms
    if summary.max_timestamp_ms > newest:
        text = f"timestamp is too far ahead; timestamp_ms={summary.max_timestamp_ms} newest_ms={newest}"
    elif NO_TIMESTAMP < summary.min_timestamp_ms < oldest:
        text = f"timestamp is too far behind; timestamp_ms={summary.min_timestamp_ms} oldest_ms={oldest}"
    else:
        return None
    return Breach(
        InvalidTimestamp,
        text,
        lambda record: record.timestamp_ms > newest or NO_TIMESTAMP < record.timestamp_ms < oldest,
    )
