"""What the segment tests share: batches to put in, and a reader that looks at every byte of a file."""

import uuid
from collections.abc import Sequence

from streamhouse.format.batch import Buffer
from streamhouse.format.block import decode_block
from streamhouse.format.key_filter import FilteredKeys, KeyFilters, decode_key_filters
from streamhouse.format.records import Record, build_batch
from streamhouse.format.run_index import decode_run_index
from streamhouse.format.segment import Directory, DirectoryEntry, RunInput, check_header, encode_segment, read_directory
from streamhouse.model.names import Epoch, PartitionId, TopicId

KEY = "segments/s-0/1"
ORDERS = PartitionId(TopicId(uuid.UUID(int=0xA11CE)), 3)
CLICKS = PartitionId(TopicId(uuid.UUID(int=2**128 - 1)), 2**31 - 1)


def batches_from(base: int, values: Sequence[bytes], *, codec: int = 0, per_batch: int = 2) -> list[bytearray]:
    """Placed batches of a few records each; the last one may be smaller."""
    batches = []
    for at in range(0, len(values), per_batch):
        records = [Record(timestamp_ms=1000 + at, value=value) for value in values[at : at + per_batch]]
        batches.append(build_batch(records, codec=codec, base_offset=base + at, leader_epoch=7))
    return batches


def run_of(
    partition: PartitionId, base: int, values: Sequence[bytes], *, codec: int = 0, producers: bytes = b""
) -> RunInput:
    batches = batches_from(base, values, codec=codec)
    return RunInput(
        partition=partition, epoch=Epoch(7), base=base, end=base + len(values), batches=batches, producers=producers
    )


def stored(runs: Sequence[RunInput], *, block_bytes: int = 1 << 20, key_filters: FilteredKeys = "all") -> bytes:
    encoded = encode_segment(runs, block_bytes=block_bytes, key_filters=key_filters)
    data = b"".join(encoded.body)
    assert len(data) == encoded.size_bytes
    return data


def joined(batches: Sequence[Buffer]) -> bytes:
    return b"".join(batches)


def directory_of(data: bytes) -> Directory:
    directory = read_directory(data, size_bytes=len(data), key=KEY)
    assert isinstance(directory, Directory)
    return directory


def filters_of(data: bytes, entry: DirectoryEntry) -> KeyFilters | None:
    """The key filters of a run, if it has any."""
    index = decode_run_index(data[entry.index_position : entry.index_position + entry.index_length], key=KEY)
    start = entry.position + entry.length
    stored_filters = data[start : start + index.key_filter_bytes]
    return decode_key_filters(stored_filters, key=KEY) if index.key_filter_bytes else None


def read_everything(data: bytes) -> list[RunInput]:
    """All runs of a file, from its bytes alone, each run's blocks joined to one buffer."""
    check_header(data, key=KEY)
    runs = []
    for entry in directory_of(data).runs:
        index = decode_run_index(data[entry.index_position : entry.index_position + entry.index_length], key=KEY)
        raw = [decode_block(data[b.position : b.position + b.stored_bytes], b, key=KEY) for b in index.blocks]
        assert (index.partition, index.epoch, index.stored_base) == (entry.partition, entry.epoch, entry.base)
        filters_of(data, entry)
        runs.append(
            RunInput(
                partition=entry.partition,
                epoch=entry.epoch,
                base=entry.base,
                end=entry.end,
                batches=[joined(raw)],
                producers=index.producers,
            )
        )
    return runs


def contents(runs: Sequence[RunInput]) -> list[tuple[PartitionId, int, int, int, bytes, bytes]]:
    return [(r.partition, r.epoch, r.base, r.end, joined(r.batches), r.producers) for r in runs]
