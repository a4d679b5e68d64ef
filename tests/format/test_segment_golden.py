"""Golden segments: files of an earlier day must read as they did, and raw ones be written as they were.

`python -m tests.format.test_segment_golden` writes the files anew; do that only for a new format version.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from streamhouse.format.block import LZ4, RAW
from streamhouse.format.compression import Codec
from streamhouse.format.key_filter import FilteredKeys, key_hash
from streamhouse.format.producer_snapshot import ProducerEntry, SequenceSpan, decode_producers, encode_producers
from streamhouse.format.records import Record, build_batch
from streamhouse.format.run_index import decode_run_index
from streamhouse.format.segment import RunInput
from tests.format.segments import CLICKS, ORDERS, contents, directory_of, filters_of, read_everything, run_of, stored

GOLDEN = Path(__file__).parent / "golden"
BLOCK_BYTES = 2000
PRODUCER = ProducerEntry(
    producer_id=2**40,
    epoch=3,
    batches=(SequenceSpan(2**31 - 2, 0, 2**53 + 1, 2**53 + 4, 1_700_000_000_000),),
    last_timestamp_ms=1_700_000_000_000,
)


def noise(seed: int) -> list[bytes]:
    chance = random.Random(seed)
    return [chance.randbytes(600) for _ in range(6)]


def raw_runs() -> list[RunInput]:
    """Nothing that LZ4 shrinks; offsets beyond what a double can count."""
    return [
        run_of(ORDERS, 2**53 + 1, noise(1), producers=encode_producers([PRODUCER])),
        run_of(CLICKS, 0, noise(2)),
    ]


def lz4_runs() -> list[RunInput]:
    """One run that LZ4 shrinks, and one that it does not."""
    return [
        run_of(ORDERS, 2**32 - 4, [b"the same words again and again " * 20] * 8),
        run_of(CLICKS, 2**31 - 4, noise(3), codec=Codec.NONE, producers=encode_producers([])),
    ]


def keyed_runs() -> list[RunInput]:
    """Keys of several lengths, one of them in all blocks; then records without keys."""
    values = noise(4)
    batches = [
        build_batch(
            [Record(key=KEYS[n], value=value), Record(key=b"all", value=b"")], base_offset=2 * n, leader_epoch=7
        )
        for n, value in enumerate(values)
    ]
    keyed = replace(run_of(ORDERS, 0, [b""] * 12), batches=batches)
    return [keyed, run_of(CLICKS, 5, noise(5))]


KEYS = [b"", b"a", b"seven..", b"eight...", b"nine.....", bytes(range(256))]
FILES: dict[str, tuple[Callable[[], list[RunInput]], FilteredKeys]] = {
    "raw-v1.segment": (raw_runs, "none"),
    "lz4-v1.segment": (lz4_runs, "none"),
    "filters-v1.segment": (keyed_runs, "all"),
}


@pytest.mark.parametrize("name", FILES)
def test_golden_files_read_as_they_were_meant(name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    assert contents(read_everything(data)) == contents(FILES[name][0]())


@pytest.mark.parametrize("name", ["raw-v1.segment", "filters-v1.segment"])
def test_a_raw_segment_is_written_byte_for_byte_as_before(name: str) -> None:
    runs, key_filters = FILES[name]
    assert stored(runs(), block_bytes=BLOCK_BYTES, key_filters=key_filters) == (GOLDEN / name).read_bytes()


def test_a_golden_filter_knows_its_keys() -> None:
    data = (GOLDEN / "filters-v1.segment").read_bytes()
    keyed, keyless = (filters_of(data, entry) for entry in directory_of(data).runs)
    assert keyed is not None
    assert keyless is not None
    results = [[number for number in range(len(keyed)) if keyed.may_hold(number, key_hash(key))] for key in KEYS]
    assert results == [[0], [0], [1], [1], [2], [2]]
    assert all(keyed.may_hold(number, key_hash(b"all")) for number in range(len(keyed)))
    assert not any(keyless.may_hold(number, key_hash(b"all")) for number in range(len(keyless)))


def test_a_compressed_segment_is_laid_out_as_before() -> None:
    # LZ4's output may differ between its versions; what it stands for may not.
    data = stored(lz4_runs(), block_bytes=BLOCK_BYTES, key_filters="none")
    assert contents(read_everything(data)) == contents(read_everything((GOLDEN / "lz4-v1.segment").read_bytes()))


@pytest.mark.parametrize(("name", "kinds"), [("raw-v1.segment", [{RAW}, {RAW}]), ("lz4-v1.segment", [{LZ4}, {RAW}])])
def test_golden_files_hold_the_kinds_of_blocks_that_they_are_named_for(name: str, kinds: list[set[int]]) -> None:
    data = (GOLDEN / name).read_bytes()
    results = []
    for entry in directory_of(data).runs:
        index = decode_run_index(data[entry.index_position : entry.index_position + entry.index_length])
        assert len(index.blocks) > 1
        results.append({block.codec for block in index.blocks})
    assert results == kinds


def test_a_golden_producer_snapshot_reads_as_it_was_meant() -> None:
    first = read_everything((GOLDEN / "raw-v1.segment").read_bytes())[0]
    assert decode_producers(first.producers) == [PRODUCER]


def write_golden_files() -> None:
    for name, (runs, key_filters) in FILES.items():
        (GOLDEN / name).write_bytes(stored(runs(), block_bytes=BLOCK_BYTES, key_filters=key_filters))


if __name__ == "__main__":
    write_golden_files()
