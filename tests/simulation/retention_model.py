"""RetentionModel: what retention and deletions may have taken from a partition, by what clients know alone.

Owns        the rule for a log start: by the topic's settings, by the ages and sizes of what was sent, by what clients
            asked to have deleted
Leaves      when a log start is seen to `history`

Without retention a log begins at 0. By time, a record may go when it is older than the topic keeps it, and all before
it are. By size, what remains must come to as many bytes as the topic keeps; everything that was sent and is not known
to lie below the log start counts as remaining, so that this holds back no deletion that is right.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from streamhouse.model.names import TopicPartition

if TYPE_CHECKING:
    from .history import PartitionHistory, Sent

MARKER_BYTES: Final = 200
"""More than a control batch takes."""


class RetentionModel:
    def __init__(
        self,
        overrides: Mapping[str, Mapping[str, str]],
        *,
        now_ms: Callable[[], int],
        span_ms: Callable[[], int],
        transactions: Callable[[], int],
    ) -> None:
        """`now_ms`: the latest time that any clock has shown which retention goes by; `span_ms`: grows by no less than
        any two looks at a clock may lie apart; `transactions`: how many were begun, each of which may leave a marker
        in every partition."""
        self._overrides = overrides
        self._now_ms = now_ms
        self._span_ms = span_ms
        self._transactions = transactions
        self._sent_bytes: dict[TopicPartition, int] = defaultdict(int)
        self._sent_at_ms: dict[Sent, int] = {}

    def sent(self, sent: "Sent") -> None:
        self._sent_bytes[sent.name] += len(sent.data)
        self._sent_at_ms[sent] = self._span_ms()

    def allows(self, log: "PartitionHistory", start: int) -> bool:
        """Whether the log of a partition may begin at `start`."""
        if start <= log.deletion_requested:
            return True
        settings = self._overrides.get(log.name.topic, {})
        retention_ms, retention_bytes = int(settings.get("retention.ms", "-1")), settings.get("retention.bytes")
        gone = list(log.between(log.deletion_requested, start))
        if retention_ms >= 0 and all(self._is_old(fact.sent, retention_ms, settings) for fact in gone):
            return True
        return retention_bytes is not None and self._remaining_bytes(log, start) >= int(retention_bytes)

    def _is_old(self, sent: "Sent", retention_ms: int, settings: Mapping[str, str]) -> bool:
        """By its own times; where agents stamp what they append, by when it was sent, unless a query placed it."""
        if self._now_ms() - max(sent.times_ms) > retention_ms:
            return True
        is_stamped = settings.get("message.timestamp.type") == "LogAppendTime"
        return is_stamped and self._span_ms() - self._sent_at_ms[sent] > retention_ms

    def _remaining_bytes(self, log: "PartitionHistory", start: int) -> int:
        below = sum(len(fact.sent.data) for fact in log.between(0, start))
        return self._sent_bytes[log.name] - below + MARKER_BYTES * self._transactions()
