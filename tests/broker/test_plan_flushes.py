"""Which partitions are flushed when, and which share an object."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from streamhouse.broker.session.flush import FlushCandidate, plan_flushes
from streamhouse.config import FlushSettings
from streamhouse.model.names import PartitionId, TopicId

SETTINGS = FlushSettings(segment_bytes=1000, age_s=10.0)
TOPIC = TopicId(uuid.UUID(int=1))
A, B, C = (PartitionId(TOPIC, number) for number in range(3))


def test_small_and_young_partitions_wait() -> None:
    assert (
        plan_flushes([FlushCandidate(A, 10, 95.0), FlushCandidate(B, 20, 99.0)], SETTINGS, now=100.0, pressed=False)
        == []
    )


def test_one_old_partition_takes_all_small_ones_along() -> None:
    packs = plan_flushes([FlushCandidate(A, 10, 90.0), FlushCandidate(B, 20, 99.9)], SETTINGS, now=100.0, pressed=False)
    assert packs == [[B, A]]


def test_one_awaited_partition_takes_all_small_ones_along() -> None:
    buffers = [FlushCandidate(A, 10, 99.0, True), FlushCandidate(B, 20, 99.0)]
    assert plan_flushes(buffers, SETTINGS, now=100.0, pressed=False) == [[B, A]]


def test_a_large_partition_goes_alone_and_leaves_the_small_ones_waiting() -> None:
    packs = plan_flushes(
        [FlushCandidate(A, 1000, 99.0), FlushCandidate(B, 20, 99.0)], SETTINGS, now=100.0, pressed=False
    )
    assert packs == [[A]]


def test_small_partitions_that_fill_a_segment_together_are_due() -> None:
    buffers = [FlushCandidate(A, 400, 99.0), FlushCandidate(B, 400, 99.0), FlushCandidate(C, 300, 99.0)]
    assert plan_flushes(buffers, SETTINGS, now=100.0, pressed=False) == [[A, B], [C]]


def test_memory_pressure_makes_everything_due_largest_first() -> None:
    buffers = [FlushCandidate(A, 10, 99.0), FlushCandidate(B, 2000, 99.0), FlushCandidate(C, 20, 99.0)]
    assert plan_flushes(buffers, SETTINGS, now=100.0, pressed=True) == [[B], [C, A]]


def test_an_empty_partition_is_never_flushed() -> None:
    assert plan_flushes([FlushCandidate(A, 0, 0.0)], SETTINGS, now=100.0, pressed=True) == []


def test_a_thousand_trickling_partitions_share_one_object() -> None:
    buffers = [FlushCandidate(PartitionId(TOPIC, n), 1, 0.0) for n in range(1000)]
    assert len(plan_flushes(buffers, SETTINGS, now=100.0, pressed=False)) == 1


@given(st.lists(st.integers(0, 3000), max_size=50), st.booleans())
def test_nothing_is_packed_twice(sizes: list[int], pressed: bool) -> None:
    buffers = [FlushCandidate(PartitionId(TOPIC, n), size, 0.0) for n, size in enumerate(sizes)]
    packed = [each for pack in plan_flushes(buffers, SETTINGS, now=100.0, pressed=pressed) for each in pack]
    assert len(packed) == len(set(packed))
    assert set(packed) == {b.partition for b in buffers if b.size_bytes}
