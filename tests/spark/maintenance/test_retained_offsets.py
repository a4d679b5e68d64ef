"""Which offsets stay: rows of keys for Spark, and the groups that offsets belong to."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.format.compaction_kernel import key_hash
from streamhouse.format.records import Record, build_batch
from streamhouse.format.transactions import NONE_ABORTED, AbortedTransactions
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.spark.maintenance.compaction_scan import MarkerScan
from streamhouse.spark.maintenance.retained_offsets import GroupTask, OffsetGroup, key_rows, pack

BOUNDS = [
    OffsetGroup(0, 5, 10),
    OffsetGroup(0, 10, 2**40),
    OffsetGroup(3, 0, 7),
    OffsetGroup(4, 0, 1),
    OffsetGroup(4, 1, 2),
]


def rows(partitions: list[int], offsets: list[int]) -> pa.RecordBatch:
    columns = [pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["partition", "offset"])


def scan_of(partition: int, *, shift: int = 0) -> MarkerScan:
    scan = MarkerScan()
    scan.at(partition, 0, 1000, shift=shift)
    return scan


def test_a_row_has_the_hash_of_a_key_and_its_offset_in_the_log() -> None:
    batch = build_batch([Record(key=b"a"), Record(key=None, value=b"v"), Record(key=b"b")], base_offset=7)
    made = key_rows([bytes(batch), bytes(batch)], scan_of(3, shift=100), aborted=NONE_ABORTED)
    assert made.column("partition").to_pylist() == [3] * 4
    assert made.column("offset").to_pylist() == [107, 109, 107, 109]
    high, low = (made.column(name).to_pylist()[0] for name in ("high", "low"))
    assert np.array([high, low], "<i8").tobytes() == key_hash(b"a")


def test_batches_of_aborted_transactions_have_no_rows() -> None:
    batch = build_batch([Record(key=b"a")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    for void, rows in (
        (AbortedTransactions([AbortedTransaction(1, 0, 1)]), 0),
        (AbortedTransactions([AbortedTransaction(2, 0, 1)]), 1),
    ):
        assert key_rows([bytes(batch)], scan_of(0), aborted=void).num_rows == rows


def test_an_offset_belongs_to_the_group_whose_bounds_hold_it() -> None:
    (made,) = GroupTask(BOUNDS)([rows([4, 0, 3, 0, 4, 0, 0], [1, 9, 6, 10, 0, 2**40 - 1, 4])])
    assert made.column("group").to_pylist() == [4, 0, 2, 1, 3, 1, 0]
    assert made.column("offset").to_pylist() == [1, 9, 6, 10, 0, 2**40 - 1, 4]


@given(st.lists(st.tuples(st.sampled_from([0, 3, 4]), st.integers(0, 2**41)), max_size=20))
def test_no_offset_is_lost_and_none_comes_to_another_partition(pairs: list[tuple[int, int]]) -> None:
    (made,) = GroupTask(BOUNDS)([rows([each for each, _ in pairs], [each for _, each in pairs])])
    results = [BOUNDS[group].partition for group in made.column("group").to_pylist()]
    assert results == [partition for partition, _ in pairs]


def test_the_offsets_of_a_group_are_sorted_whatever_came_first() -> None:
    batches = [rows([0, 0], [7, 3]), rows([0], [5])]
    (packed,) = pack(batches)
    assert np.frombuffer(packed.column(0)[0].as_py(), "<i8").tolist() == [3, 5, 7]
    (nothing,) = pack([])
    assert nothing.column(0)[0].as_py() == b""
