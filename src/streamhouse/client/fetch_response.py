"""Fetch response: the partitions of a response as records, positions to continue from, and errors.

Control batches and aborted transactions are left out.
"""

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from aiokafka.errors import CorruptRecordException, for_code

from streamhouse.client.kafka_errors import from_code
from streamhouse.client.types import Record
from streamhouse.errors import CorruptBatch, CorruptObject, StreamhouseError, Unavailable
from streamhouse.format.batch import HEADER_BYTES, read_header
from streamhouse.format.records import iterate_batch
from streamhouse.format.transactions import NONE_ABORTED, AbortedTransactions, read_marker
from streamhouse.model.record import StoredRecord
from streamhouse.model.transaction import AbortedTransaction

MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
READ_RECORDS: Final = 1000
"""Records that are decoded at a time."""
PAST_LOG_END: Final = 2**63 - 1
_PREFIX: Final = struct.Struct(">qi")


class Chunk:
    """Batches of a partition. Records are decoded as they are taken, a few at a time, so that the event loop is not
    blocked.

    `next_offset` is the offset after the batches; it may lie beyond offsets that compaction removed.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        fetch_offset: int,
        batches: Iterable[memoryview],
        aborted: AbortedTransactions = NONE_ABORTED,
    ) -> None:
        self.topic, self.partition, self.fetch_offset = topic, partition, fetch_offset
        self._batches = deque(batches)
        self._aborted = aborted
        self.next_offset = max([fetch_offset, *(read_header(batch).end for batch in self._batches)])
        self.size_bytes = sum(map(len, self._batches))
        self._opened: Iterator[StoredRecord] | None = None
        self._opened_end = fetch_offset
        self._records: list[Record] = []
        self._taken = 0
        self._behind = fetch_offset  # end offset of the decoded records

    def __repr__(self) -> str:
        return f"<Chunk {self.topic}-{self.partition} [{self.position}, {self.next_offset})>"

    @property
    def is_done(self) -> bool:
        return not self._batches and self._opened is None and self._taken == len(self._records)

    @property
    def position(self) -> int:
        """The offset of the next record; without one, `next_offset`."""
        return self._records[self._taken].offset if self._taken < len(self._records) else self._behind

    def take(self, limit: int) -> list[Record]:
        """Return the next records, at most `limit`; fewer at the end."""
        taken: list[Record] = []
        while len(taken) < limit and not self.is_done:
            if self._taken == len(self._records):
                self._read_on()
            records = self._records[self._taken : self._taken + limit - len(taken)]
            self._taken += len(records)
            taken += records
        return taken

    def _read_on(self) -> None:
        """Decode further records of the open batch, or of the next one."""
        source = self._opened or self._open(self._batches.popleft())
        topic_partition: tuple[str, int] = (self.topic, self.partition)
        make = tuple.__new__  # as `Record(…)`, without a call in Python for each
        self._opened, self._taken, self._records = None, 0, []
        self._records = [make(Record, topic_partition + record) for record in islice(source, READ_RECORDS)]
        if len(self._records) == READ_RECORDS:
            self._opened = source
            self._behind = self._records[-1].offset + 1
        else:
            self._behind = max(self._behind, self._opened_end)

    def _open(self, batch: memoryview) -> Iterator[StoredRecord]:
        header = read_header(batch)
        self._opened_end = header.end
        if header.is_transactional and self._aborted.is_aborted(header.producer_id, header.base_offset):
            return iter(())
        return iterate_batch(batch, limit_bytes=MAX_BATCH_BYTES, from_offset=self.fetch_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartitions:
    """The records of a fetch; `error`: a retriable error of one of the partitions."""

    chunks: list[Chunk]
    error: StreamhouseError | None = None


def read_fetch_response(response: Any, topic: str, fetch_offsets: dict[int, int]) -> FetchedPartitions:
    """Read the response to a fetch at these offsets, by partition. Raises errors that are not retriable."""
    if getattr(response, "error_code", 0):
        return FetchedPartitions(chunks=[], error=from_code(response.error_code, subject=topic))
    chunks: list[Chunk] = []
    error: StreamhouseError | None = None
    for _, partitions in response.topics:
        for entry in partitions:
            partition, code, data = entry[0], entry[1], entry[-1]
            if code == CorruptRecordException.errno:
                raise CorruptObject(
                    f"of {topic}-{partition}",
                    why=f"records from offset {fetch_offsets[partition]} on are missing or damaged in the store"
                    " do=streamhouse doctor names the range; read on behind it",
                )
            if code:
                error = from_code(code, subject=f"{topic}-{partition}")
                if not (for_code(code).retriable or isinstance(error, Unavailable)):
                    raise error
                error = error
            elif data:
                batches = list(_batches(memoryview(data)))
                aborted = aborted_in(batches, _aborted_list(entry))
                chunks.append(
                    Chunk(topic, partition, fetch_offset=fetch_offsets[partition], batches=batches, aborted=aborted)
                )
    return FetchedPartitions(
        chunks=[chunk for chunk in chunks if chunk.next_offset > fetch_offsets[chunk.partition]], error=error
    )


def _aborted_list(partition: Sequence[Any]) -> list[tuple[int, int]]:
    """Producer id and first offset of each aborted transaction."""
    return next(
        ([(entry[0], entry[1]) for entry in field] for field in partition if isinstance(field, list) and field), []
    )


def aborted_in(batches: Iterable[memoryview], aborted: Sequence[tuple[int, int]]) -> AbortedTransactions:
    """Aborted transactions with their end offsets: the producer's next abort marker, if the response has it."""
    if not aborted:
        return NONE_ABORTED
    ends: dict[int, list[int]] = {}
    for batch in batches:
        header = read_header(batch)
        if header.is_control and header.record_count and not read_marker(batch).is_commit:
            ends.setdefault(header.producer_id, []).append(header.base_offset)
    return AbortedTransactions(
        AbortedTransaction(producer, first, next((end for end in ends.get(producer, ()) if end >= first), PAST_LOG_END))
        for producer, first in aborted
    )


def _batches(data: memoryview) -> Iterator[memoryview]:
    """Yield complete batches; agents may cut the last one off. Raises `CorruptBatch` for an impossible length."""
    position = 0
    while len(data) - position >= _PREFIX.size:
        _, length = _PREFIX.unpack_from(data, position)
        end = position + _PREFIX.size + length
        if end - position < HEADER_BYTES:
            raise CorruptBatch(f"a fetched batch is shorter than its header; position={position} length={length}")
        if end > len(data):
            return
        yield data[position:end]
        position = end
