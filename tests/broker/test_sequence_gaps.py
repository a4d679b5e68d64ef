"""Whose turn it is after a refusal: the refused batch comes before its successors."""

from streamhouse.broker.partition.sequence_gaps import REMEMBERED_S, SequenceGapGuard
from streamhouse.format.batch import BatchHeader, read_header
from streamhouse.format.records import Record, build_batch
from streamhouse.model.names import TopicPartition

ORDERS = TopicPartition("orders", 0)


def header(sequence: int, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    return read_header(
        build_batch([Record(value=b"v")], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    )


def test_successors_of_a_refused_batch_wait_for_it() -> None:
    gap_guard = SequenceGapGuard(limit=10)
    gap_guard.rejected(ORDERS, [header(0), header(1)], now=0.0)
    assert gap_guard.missing(ORDERS, header(1), now=1.0) == 0
    assert gap_guard.missing(ORDERS, header(0), now=1.0) is None


def test_nobody_waits_once_a_log_knows_the_producer() -> None:
    gap_guard = SequenceGapGuard(limit=10)
    gap_guard.rejected(ORDERS, [header(0)], now=0.0)
    gap_guard.appended(ORDERS, header(0))
    assert gap_guard.missing(ORDERS, header(1), now=1.0) is None
    assert not gap_guard


def test_other_partitions_producers_and_epochs_do_not_wait() -> None:
    gap_guard = SequenceGapGuard(limit=10)
    gap_guard.rejected(ORDERS, [header(0)], now=0.0)
    assert gap_guard.missing(TopicPartition("orders", 1), header(1), now=1.0) is None
    assert gap_guard.missing(ORDERS, header(1, producer=8), now=1.0) is None
    assert gap_guard.missing(ORDERS, header(1, epoch=1), now=1.0) is None


def test_the_earliest_refused_batch_counts_whatever_the_order_of_the_refusals() -> None:
    gap_guard = SequenceGapGuard(limit=10)
    gap_guard.rejected(ORDERS, [header(5)], now=0.0)
    gap_guard.rejected(ORDERS, [header(3)], now=0.0)
    gap_guard.rejected(ORDERS, [header(9)], now=0.0)
    assert gap_guard.missing(ORDERS, header(5), now=1.0) == 3


def test_batches_without_a_producer_are_not_remembered() -> None:
    gap_guard = SequenceGapGuard(limit=10)
    gap_guard.rejected(ORDERS, [read_header(build_batch([Record(value=b"v")]))], now=0.0)
    assert not gap_guard


def test_only_so_many_producers_are_remembered() -> None:
    gap_guard = SequenceGapGuard(limit=2)
    gap_guard.rejected(ORDERS, [header(0, producer=number) for number in range(5)], now=0.0)
    assert len(gap_guard) == 2
    assert gap_guard.missing(ORDERS, header(1, producer=4), now=1.0) == 0


def test_a_batch_that_does_not_come_again_is_forgotten_and_its_successors_do_not_keep_it_alive() -> None:
    gap_guard = SequenceGapGuard(limit=10)
    gap_guard.rejected(ORDERS, [header(0)], now=0.0)
    gap_guard.rejected(ORDERS, [header(0)], now=REMEMBERED_S - 1)
    gap_guard.rejected(ORDERS, [header(1)], now=REMEMBERED_S + 1)
    assert gap_guard.missing(ORDERS, header(1), now=REMEMBERED_S + 1) == 0
    assert gap_guard.missing(ORDERS, header(1), now=2 * REMEMBERED_S) is None


def test_it_is_known_since_when_nothing_of_a_producer_was_stored() -> None:
    gap_guard = SequenceGapGuard(limit=10)
    assert gap_guard.since(ORDERS, header(4), now=0.0) is None
    gap_guard.rejected(ORDERS, [header(4)], now=1.0)
    gap_guard.rejected(ORDERS, [header(4), header(5)], now=2.0)
    gap_guard.rejected(ORDERS, [header(3)], now=3.0)
    assert gap_guard.since(ORDERS, header(5), now=4.0) == 1.0
    gap_guard.appended(ORDERS, header(3))
    gap_guard.rejected(ORDERS, [header(5)], now=5.0)
    assert gap_guard.since(ORDERS, header(5), now=6.0) == 5.0
    assert gap_guard.since(ORDERS, header(5), now=5.0 + REMEMBERED_S) is None
