"""Spark data: the records that Spark's readers are compared with, no two of them alike.

Data path   **spark_data** -> an agent or a Kafka broker -> `spark_read`
Owns        what the records look like, how many there are, and how they come into a broker
Leaves      brokers to `peer` and `tests.support.agent`, measuring to `spark_read`

Values are words of a small vocabulary between random hex digits, as `batches` has them. There those of one batch come
again and again, which a broker doesn't see; Parquet would put each of them into its file once.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.batches import TIMESTAMP_MS, WORDS
from benchmarks.measure import TOPIC_TIMEOUT_S
from benchmarks.peer import POLL_S
from benchmarks.raw_client import (
    BrokerRefused,
    Connection,
    create_topic,
    first_offsets,
    produce_frame,
    topic_is_served,
)
from streamhouse.format.columnar_encoder import BytesColumn, RecordColumns, encode_columns, finished
from streamhouse.format.compression import Codec

TOPIC: Final = "measured"
PARTITIONS: Final = 4
BATCH_BYTES: Final = 256 * 1024
PATTERNS: Final = 64
HEX: Final = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
BLOCK_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """How many of which size."""

    count: int
    record_bytes: int

    def __str__(self) -> str:
        return f"{self.count:,} records of {self.record_bytes:,} B"


def patterns(size_bytes: int) -> tuple["np.ndarray[tuple[int, int], np.dtype[np.uint8]]", ...]:
    """Values, and where their digits stand."""
    chance = random.Random(7)
    texts, digits = bytearray(), bytearray()
    for _ in range(PATTERNS):
        text, is_digit = bytearray(), bytearray()
        while len(text) < size_bytes:
            word = chance.choice(WORDS)
            text += word + b"0" * 16 + b","
            is_digit += b"\0" * len(word) + b"\1" * 16 + b"\0"
        texts += text[:size_bytes]
        digits += is_digit[:size_bytes]
    shape = PATTERNS, size_bytes
    return np.frombuffer(texts, np.uint8).reshape(shape), np.frombuffer(digits, np.uint8).reshape(shape)


def batches(records: Records) -> Iterator[tuple[int, bytes]]:
    """Partition and batch, in turns of a few mebibytes; the same in every run but for the time."""
    chance = np.random.default_rng(7)
    texts, digits = patterns(records.record_bytes)
    left, turn = records.count, 0
    while left:
        rows = min(left, max(1, BLOCK_BYTES // records.record_bytes))
        chosen = chance.integers(PATTERNS, size=rows)
        random_digits = HEX[chance.integers(16, size=(rows, records.record_bytes), dtype=np.uint8)]
        values = np.where(digits[chosen], random_digits, texts[chosen])
        offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(records.record_bytes)
        columns = RecordColumns(rows, None, BytesColumn(0, None, offsets.tobytes(), values.tobytes()))
        for made in encode_columns(columns, bytes(4 * rows), count=1, now_ms=TIMESTAMP_MS, batch_bytes=BATCH_BYTES):
            yield turn % PARTITIONS, bytes(finished(made, codec=Codec.NONE, base_offset=0))
        left, turn = left - rows, turn + 1


def fill(bootstrap: str, records: Records) -> None:
    """All records into a new topic, over Kafka's protocol."""
    host, _, port = bootstrap.partition(":")
    with Connection(host, int(port)) as connection:
        create_topic(connection, TOPIC, PARTITIONS)
        deadline = time.monotonic() + TOPIC_TIMEOUT_S
        while not topic_is_served(connection, TOPIC, PARTITIONS):
            if time.monotonic() > deadline:
                raise BrokerRefused(f"no leader for {TOPIC} after {TOPIC_TIMEOUT_S:.0f} s")
            time.sleep(POLL_S)
        for partition, batch in batches(records):
            first_offsets(connection.call(produce_frame(TOPIC, [(partition, batch)], acks=-1)))
