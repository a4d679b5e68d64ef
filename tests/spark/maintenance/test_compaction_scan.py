"""Markers that many tasks look at: what a pass of theirs leaves is what an agent's leaves, and what Kafka's does."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from streamhouse.format.batch import Buffer, read_header
from streamhouse.format.compaction import CompactionPolicy, filter_batch
from streamhouse.format.transactions import AbortedTransactions, shifted
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.spark.maintenance.compaction_plan import CompactionPolicyRow
from streamhouse.spark.maintenance.compaction_scan import Edges, MarkerScan, markers_to_keep
from streamhouse.spark.maintenance.retained_offsets import OffsetGroup, busy_within, key_rows, merged
from streamhouse.spark.maintenance.run_compaction import obsolete_aborts
from tests.format.kafka_cleaner import clean
from tests.format.test_compaction_transactions import DAY_MS, ROUNDS, Cleaned, compact
from tests.format.transactional_logs import LIMIT, NOW_MS, Written, entries, write


def by_tasks(
    log: Sequence[Buffer],
    aborted: Sequence[AbortedTransaction],
    *,
    end: int,
    now_ms: int,
    split_at: Sequence[int],
) -> Cleaned:
    """A pass as Spark makes it: tasks read stretches, which overlap by a batch; others rewrite."""
    below = [batch for batch in log if read_header(batch).base_offset < end]
    cuts = [0, *sorted({cut % len(below) for cut in split_at} - {0} if below else set()), len(below)]
    edges: Edges = []
    latest: dict[tuple[int, int], int] = {}
    for first, last in pairwise(cuts):
        scan = MarkerScan()
        if first < last:
            scan.at(0, read_header(below[first]).base_offset, read_header(below[last - 1]).end, shift=0)
        rows = key_rows(below[max(first - 1, 0) : last + 1], scan, aborted=AbortedTransactions(aborted))
        edges += scan.edges()
        for _, high, low, offset in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            latest[high, low] = max(offset, latest.get((high, low), -1))
    offsets = merged(b"", sorted(latest.values()))
    stays = merged(offsets, busy_within(markers_to_keep(edges), OffsetGroup(0, 0, end)))
    terms = CompactionPolicy(
        end=end, now_ms=now_ms, delete_retention_ms=DAY_MS, limit_bytes=LIMIT, aborted=AbortedTransactions(aborted)
    )
    left = [filter_batch(batch, stays, terms, keep_empty=batch is log[-1]) for batch in log]
    row = CompactionPolicyRow(
        end=end, last_end=0, now_ms=now_ms, later_now_ms=now_ms, delete_retention_ms=DAY_MS, aborted=tuple(aborted)
    )
    return Cleaned([batch for batch in left if batch is not None], list(obsolete_aborts(log, stays, row)))


@given(ROUNDS, st.lists(st.integers(0, 40), max_size=6))
def test_tasks_leave_what_an_agent_leaves_and_what_kafka_does(
    rounds: list[tuple[list[tuple[object, ...]], int]], split_at: list[int]
) -> None:
    written = Written()
    log: list[Buffer] = []
    results: list[AbortedTransaction] = []
    now_ms = NOW_MS
    for steps, passed_ms in rounds:
        known, known_aborted = len(written.log), len(written.aborted)
        write(written, steps)
        log += written.log[known:]
        results += written.aborted[known_aborted:]
        now_ms += passed_ms
        end = written.stable_end
        expected = clean(entries(log), results, end=end, now_ms=now_ms, retention_ms=DAY_MS)
        by_agent = compact(log, results, end=end, now_ms=now_ms)
        by_spark = by_tasks(log, results, end=end, now_ms=now_ms, split_at=split_at)
        assert by_spark.log == by_agent.log
        assert entries(by_spark.log) == expected.log
        ends = {each.last_offset for each in results}
        assert by_spark.spent == [offset for offset in by_agent.spent if offset in ends]
        assert set(by_spark.spent) == set(expected.spent_aborts) & ends
        log, results = by_spark.log, [each for each in results if each.last_offset not in by_spark.spent]


def test_offsets_of_objects_that_were_placed_are_those_of_the_log() -> None:
    written = Written()
    written.plain((b"a", b"1"))
    written.send(7, (b"a", b"2"))
    written.finish(7, commit=True)
    written.send(7, (b"a", b"3"))
    written.finish(7, commit=False)
    scan = MarkerScan()
    void = AbortedTransactions(shifted(shifted(written.aborted, 100), -100))
    scan.at(0, 100, 110, shift=100)
    rows = key_rows(written.log, scan, aborted=void)
    assert sorted(rows.column(3).to_pylist()) == [100, 101, 102, 104]
    assert [(edge.offset, edge.is_marker) for edge in scan.edges()] == [(104, True)]
