"""Fetch requests and results, as the broker and its clients among the agents exchange them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streamhouse.errors import StreamhouseError
from streamhouse.model.names import TopicPartition
from streamhouse.model.transaction import AbortedTransaction


class PartitionFetch(NamedTuple):
    """The position of a read in a partition. `leader_epoch` is -1 if the client knows none; with `committed` the read
    ends at the last stable offset."""

    name: TopicPartition
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    committed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResult:
    """The result for one partition: records or an error. `readable_end` is the high watermark, or with `committed` the
    last stable offset, at the time of the read."""

    name: TopicPartition
    error: StreamhouseError | None = None
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    records: Sequence[bytes | bytearray | memoryview] = field(default=())
    aborted: Sequence[AbortedTransaction] = field(default=())
    committed: bool = False

    @property
    def readable_end(self) -> int:
        return self.last_stable if self.committed else self.high_watermark

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.records))


class OffsetResult(NamedTuple):
    """The offset of a time or of an end of the log."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1
