"""Fetching: what an agent answered to a fetch becomes records.

Data path   an agent's Kafka listener -> **fetching** -> `consumer`
Owns        the answer's partitions: records, places to go on from, codes that mean trouble
Leaves      asking and waiting to `consumer`; bytes of batches to `format`
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.errors import for_code

from streamhouse.client.failures import from_code
from streamhouse.client.nouns import Record
from streamhouse.errors import Rejected, StreamhouseError, Unavailable
from streamhouse.format.batch import read_header
from streamhouse.format.records import decode_batch

MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
_PREFIX: Final = struct.Struct(">qi")


@dataclass(slots=True)
class Chunk:
    """Records of a partition, and where it goes on behind them: further on where compaction left gaps."""

    partition: int
    asked_from: int
    records: list[Record]
    next_offset: int
    size_bytes: int
    given: int = 0

    @property
    def left(self) -> int:
        return len(self.records) - self.given

    def take(self, most: int) -> list[Record]:
        taken = self.records[self.given : self.given + most] if self.given or most < self.left else self.records
        self.given += len(taken)
        return taken

    def position(self) -> int:
        """The offset of the next record that is taken."""
        return self.records[self.given].offset if self.left else self.next_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What a fetch brought; `trouble`: why some partitions have to be looked for elsewhere, or later."""

    chunks: list[Chunk]
    trouble: StreamhouseError | None = None


def answered(answer: Any, topic: str, asked: dict[int, int]) -> Answered:
    """Read an answer to a fetch of these partitions from these offsets; raises what no patience helps against."""
    if getattr(answer, "error_code", 0):
        return Answered(chunks=[], trouble=from_code(answer.error_code, subject=topic))
    chunks: list[Chunk] = []
    trouble: StreamhouseError | None = None
    for _, partitions in answer.topics:
        for told in partitions:
            partition, code, data = told[0], told[1], told[-1]
            if code:
                error = from_code(code, subject=f"{topic}-{partition}")
                if not (for_code(code).retriable or isinstance(error, Unavailable)):
                    raise error
                trouble = error
            elif _aborted(told):
                raise Rejected(f"transactions that were aborted can't be read past yet; name={topic}-{partition}")
            elif data:
                chunks.append(_chunk(topic, partition, asked[partition], memoryview(data)))
    return Answered(chunks=[chunk for chunk in chunks if chunk.next_offset > asked[chunk.partition]], trouble=trouble)


def _aborted(told: Sequence[Any]) -> bool:
    """Whether some of the records don't count; agents have no transactions, other brokers may."""
    return any(isinstance(field, list) and field for field in told)


def _chunk(topic: str, partition: int, offset: int, data: memoryview) -> Chunk:
    chunk = Chunk(partition=partition, asked_from=offset, records=[], next_offset=offset, size_bytes=len(data))
    place: tuple[str, int] = (topic, partition)
    make = tuple.__new__  # as `Record(…)`, without a call in Python for each
    for batch in _batches(data):
        stored = decode_batch(batch, limit_bytes=MAX_BATCH_BYTES, from_offset=offset)
        chunk.records += [make(Record, place + each) for each in stored]
        chunk.next_offset = max(chunk.next_offset, read_header(batch).end)
    return chunk


def _batches(data: memoryview) -> Iterator[memoryview]:
    """Whole batches; agents may cut the last one off in the middle."""
    position = 0
    while len(data) - position >= _PREFIX.size:
        _, length = _PREFIX.unpack_from(data, position)
        end = position + _PREFIX.size + length
        if end > len(data):
            return
        yield data[position:end]
        position = end
