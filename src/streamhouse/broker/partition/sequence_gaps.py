"""SequenceGapGuard: rejects batches of an idempotent producer after a gap, while the missing ones may be in flight.

Data path   append -> **sequence_gaps** -> partition log

A log accepts the first batch that it sees of an unknown producer, because it may have forgotten
that producer. So after a batch was rejected for now (memory was full, the lease could not be acquired, the log was
sealed with the batch in flight), the log would accept its successor; the rejected batch, sent again, would then look
like a duplicate of something stored. The guard remembers the first rejected sequence number of each producer and
partition, and rejects what comes after it, until a batch of that producer is stored. A producer that hasn't sent the
rejected batch again for a while has stored it through another agent, or given it up.

What another agent rejected isn't known here. Therefore, in a cluster, a batch that leaves a gap is rejected for now for
`producers.settle_s` after the producer's first gap: its predecessor is probably in flight. If the answer were
OUT_OF_ORDER_SEQUENCE_NUMBER instead, librdkafka would start another epoch and store again what it is unsure of in other
partitions. Clients wait before they send a rejected batch again: at most 1.2 s (`retry.backoff.max.ms` and its jitter),
and the time to find the leader and to connect. Request timeouts need no extra time: librdkafka sends nothing to the
next leader while a response of the previous one is due, but counts a response as received a moment before it has
queued the batches again; the Java client continues, and treats a gap as a loss only when nothing before it is in
flight. A longer time would delay producers that were forgotten, or whose records were lost in a power cut, for nothing.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from streamhouse.broker.partition.producer_state import FIRST_KEY_ID, precedes
from streamhouse.format.batch import BatchHeader
from streamhouse.model.names import TopicPartition

REMEMBERED_S: Final = 60.0


class _RejectedBatch(NamedTuple):
    sequence: int
    at: float
    since: float
    """Since when batches of this producer are rejected, without one being stored since."""


class SequenceGapGuard:
    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._first: OrderedDict[tuple[TopicPartition, int, int], _RejectedBatch] = OrderedDict()

    def __repr__(self) -> str:
        return f"<SequenceGapGuard producers={len(self._first)}>"

    def __len__(self) -> int:
        return len(self._first)

    def rejected(self, name: TopicPartition, headers: Iterable[BatchHeader], *, now: float) -> None:
        """Record batches that were rejected with a retriable error."""
        for header in headers:
            if (
                not 0 <= header.producer_id < FIRST_KEY_ID
            ):  # an idempotency key has a single batch, so nothing can overtake it
                continue
            key = (name, header.producer_id, header.producer_epoch)
            first = self._find(key, now)
            if first is None or not precedes(first.sequence, header.base_sequence):
                self._first[key] = _RejectedBatch(header.base_sequence, now, first.since if first is not None else now)
                if len(self._first) > self._limit:
                    self._first.popitem(last=False)

    def missing(self, name: TopicPartition, header: BatchHeader, *, now: float) -> int | None:
        """The rejected sequence number that must be stored before this batch, if there is one."""
        first = self._find((name, header.producer_id, header.producer_epoch), now)
        return first.sequence if first is not None and precedes(first.sequence, header.base_sequence) else None

    def since(self, name: TopicPartition, header: BatchHeader, *, now: float) -> float | None:
        """Since when batches of this producer are rejected without one being stored."""
        first = self._find((name, header.producer_id, header.producer_epoch), now)
        return first.since if first is not None else None

    def _find(self, key: tuple[TopicPartition, int, int], now: float) -> _RejectedBatch | None:
        rejected = self._first.get(key)
        return rejected if rejected is not None and now - rejected.at < REMEMBERED_S else None

    def appended(self, name: TopicPartition, header: BatchHeader) -> None:
        """The batch is appended: the log knows the producer now and checks the order itself."""
        self._first.pop((name, header.producer_id, header.producer_epoch), None)
