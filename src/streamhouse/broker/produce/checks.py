"""Refusals: batches of idempotent producers that were refused for now, so that none of their successors overtakes them.

Data path   appending asks **gap_guard** just before a log judges a batch; appending and session add to it
Owns        the first refused sequence per producer and partition, until a batch of the producer is stored
Leaves      the rules of sequences to `producers`

A log takes an unknown producer at its word (it may have forgotten it), so it would also take the second batch of a
new one whose first was just refused: memory was full, or the lease could not be had. The first, sent again, would then
come before everything that the log remembers, and look like a duplicate of something stored. The same holds for
batches that were in flight when their log was sealed (the WAL failed, the lease or the session was lost).

A producer that hasn't sent a refused batch again for a while has stored it through another agent, or given it up.

What another agent has refused isn't known here. So where agents are several, a batch that leaves a gap is refused for
now as well, for `producers.settle_s` from the producer's first gap: what comes before it is probably on its way. Told
that it is out of order instead, librdkafka begins another epoch and stores again what it is unsure of in other
partitions. Clients wait before they send a refused batch again: a second and a fifth at most (the default of
`retry.backoff.max.ms` and its jitter, as in the Java client), and some more to learn who leads and to connect. Time-
outs of requests need no room: librdkafka sends nothing to the next leader while an answer of the one before is due,
but counts an answer as there a moment before it has put the batches back; the Java client goes on, and takes a gap
for a loss only when nothing before it is under way. A longer time would keep a producer that was forgotten, or whose
records were lost with the power, waiting for nothing.

Rules: what a topic demands of the records it takes.

Data path   wire -> broker asks **rules** after a batch was found well formed, before its log sees it
Owns        which rule of its topic a batch breaks, and how a record that breaks it is recognised
Leaves      the structure of records to `format.records`, refusing to `broker`

A batch is judged by the summary of its records, which costs nothing. Only when it breaks a rule are its records looked
at one by one, so that the producer learns which of them were to blame and may send the others again.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from streamhouse.broker.partition.producer_state import FIRST_KEY_ID, precedes
from streamhouse.errors import BadRecords, InvalidRecord, InvalidTimestamp
from streamhouse.format.batch import BatchHeader
from streamhouse.format.records import Record, RecordsSummary
from streamhouse.model.names import TopicPartition
from streamhouse.model.topic import TopicConfig

REMEMBERED_S: Final = 60.0


class _RejectedBatch(NamedTuple):
    sequence: int
    at: float
    since: float
    """When a batch of this producer was refused, and none had been, or all of them were stored since."""


class SequenceGapGuard:
    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._first: OrderedDict[tuple[TopicPartition, int, int], _RejectedBatch] = OrderedDict()

    def __repr__(self) -> str:
        return f"<SequenceGapGuard producers={len(self._first)}>"

    def __len__(self) -> int:
        return len(self._first)

    def refused(self, name: TopicPartition, headers: Iterable[BatchHeader], *, now: float) -> None:
        """These batches were not stored, and their producers were told to send them again."""
        for header in headers:
            if not 0 <= header.producer_id < FIRST_KEY_ID:  # an idempotency key has nothing that could overtake
                continue
            key = (name, header.producer_id, header.producer_epoch)
            first = self._find(key, now)
            if first is None or not precedes(first.sequence, header.base_sequence):
                self._first[key] = _RejectedBatch(header.base_sequence, now, first.since if first is not None else now)
                if len(self._first) > self._limit:
                    self._first.popitem(last=False)

    def awaited(self, name: TopicPartition, header: BatchHeader, *, now: float) -> int | None:
        """The refused sequence that must come before this batch, if there is one."""
        first = self._find((name, header.producer_id, header.producer_epoch), now)
        return first.sequence if first is not None and precedes(first.sequence, header.base_sequence) else None

    def since(self, name: TopicPartition, header: BatchHeader, *, now: float) -> float | None:
        """Since when batches of this producer are refused, none of which was stored yet."""
        first = self._find((name, header.producer_id, header.producer_epoch), now)
        return first.since if first is not None else None

    def _find(self, key: tuple[TopicPartition, int, int], now: float) -> _RejectedBatch | None:
        found = self._first.get(key)
        return found if found is not None and now - found.at < REMEMBERED_S else None

    def stored(self, name: TopicPartition, header: BatchHeader) -> None:
        """A log knows the producer now, and looks after the order itself."""
        self._first.pop((name, header.producer_id, header.producer_epoch), None)


NO_TIMESTAMP: Final = -1


class RuleViolation(NamedTuple):
    """A rule that a batch breaks."""

    error: type[BadRecords]
    text: str
    is_broken_by: Callable[[Record], bool]


def find_violation(summary: RecordsSummary, config: TopicConfig, *, now_ms: int) -> RuleViolation | None:
    """The first rule that these records break, if there is one."""
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
