"""Batches: record batches with prepared values, built once before the clock starts.

Data path   **batches** -> `raw_client.produce_frame`
Owns        what a benchmark's records look like: their size, how well they compress, how many make a batch
Leaves      offsets to the broker

Values are made of words of a small vocabulary between random hex digits, so that LZ4 halves them, as it does with JSON
events. Batches have no producer id: a broker appends the same bytes again and again without calling them duplicates.
"""

import random
import time
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from aiokafka.record.default_records import DefaultRecordBatchBuilder

Codec = Literal["none", "lz4"]
CODEC_BITS: Final[dict[Codec, int]] = {"none": 0, "lz4": 3}
# Records of long ago would be deleted by retention in the middle of a run.
TIMESTAMP_MS: Final = int(time.time() * 1000)
WORDS: Final = (b'"order":', b'"customer":', b'"status":"paid",', b'"amount":', b'"currency":"EUR",', b'"warehouse":')
BUILDER_LIMIT_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A record batch as bytes, and what it holds."""

    body: bytes
    records: int


@cache
def values(count: int, size_bytes: int, seed: int = 7) -> list[bytes]:
    """Distinct values of one size, the same in every run."""
    chance = random.Random(seed)
    return [_value(chance, size_bytes) for _ in range(count)]


def _value(chance: random.Random, size_bytes: int) -> bytes:
    out = bytearray()
    while len(out) < size_bytes:
        out += chance.choice(WORDS) + b"%016x," % chance.getrandbits(64)
    return bytes(out[:size_bytes])


@cache
def batch(*, record_bytes: int, records: int, codec: Codec) -> Batch:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODEC_BITS[codec],
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=BUILDER_LIMIT_BYTES,
    )
    for offset, value in enumerate(values(records, record_bytes)):
        builder.append(offset, TIMESTAMP_MS, None, value, [])
    return Batch(body=bytes(builder.build()), records=records)
