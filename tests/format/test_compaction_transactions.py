"""Compaction of transactions: what was aborted goes, what is open stays as it is, markers outlive their records."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.format.batch import Buffer, read_header
from streamhouse.format.compaction import FilterRules, KeyMap, SeenTransactions, compact_batch
from streamhouse.format.records import read_records
from streamhouse.format.transactions import AbortedTransactions
from streamhouse.model.transaction import AbortedTransaction
from tests.format.kafka_cleaner import clean, committed
from tests.format.transactional_logs import KEYS, LIMIT, NOW_MS, STEPS, Written, entries, write

DAY_MS = 86_400_000


class Cleaned(NamedTuple):
    log: list[Buffer]
    spent: list[int]


def compact(log: Sequence[Buffer], aborted: Sequence[AbortedTransaction], *, end: int, now_ms: int = NOW_MS) -> Cleaned:
    """A pass as agents make it."""
    void = AbortedTransactions(aborted)
    keys = KeyMap(max_keys=1000, limit_bytes=LIMIT, aborted=void)
    for batch in log:
        if read_header(batch).base_offset < end:
            assert keys.add(batch)
    rules = FilterRules(
        latest=keys.latest,
        end=end,
        now_ms=now_ms,
        delete_retention_ms=DAY_MS,
        limit_bytes=LIMIT,
        aborted=void,
    )
    seen, left = SeenTransactions(), list[Buffer]()
    for batch in log:
        new = compact_batch(batch, rules, keep_empty=batch is log[-1], seen=seen)
        if new is not None:
            left.append(new)
    return Cleaned(left, seen.spent)


def values(log: Sequence[Buffer]) -> list[tuple[int, bytes | None]]:
    return [(item.offset, item.value) for entry in entries(log) for item in entry.items]


def markers(log: Sequence[Buffer]) -> list[int]:
    return [read_header(batch).base_offset for batch in log if read_header(batch).is_control]


def test_records_of_an_aborted_transaction_go_and_supersede_nothing() -> None:
    written = Written()
    written.plain((b"a", b"1"), (b"b", b"2"))
    written.send(7, (b"a", b"3"), (b"c", b"4"))
    written.finish(7, commit=False)
    written.plain((b"d", b"5"))
    left, _ = compact(written.log, written.aborted, end=written.end)
    assert values(left) == [(0, b"1"), (1, b"2"), (5, b"5")]
    assert markers(left) == [4]


def test_records_of_a_committed_transaction_count_as_any_others() -> None:
    written = Written()
    written.plain((b"a", b"1"), (b"b", b"2"))
    written.send(7, (b"a", b"3"), (b"c", None))
    written.finish(7, commit=True)
    written.plain((b"c", b"5"))
    left, _ = compact(written.log, written.aborted, end=written.end)
    assert values(left) == [(1, b"2"), (2, b"3"), (5, b"5")]


def test_nothing_from_the_first_open_transaction_on_is_touched_or_counts() -> None:
    written = Written()
    written.plain((b"a", b"1"))
    written.send(7, (b"a", b"2"))
    written.plain((b"a", b"3"), (b"a", b"4"))
    left, _ = compact(written.log, written.aborted, end=written.stable_end)
    assert left == written.log


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_outlives_its_records_by_the_retention_of_tombstones(commit: bool) -> None:
    written = Written()
    written.send(7, (b"a", b"1"))
    written.finish(7, commit=commit)
    written.plain((b"a", b"2"))
    end, aborted = written.end, written.aborted
    first = compact(written.log, aborted, end=end)
    assert (markers(first.log), first.spent) == ([1], [])
    assert not read_header(first.log[0]).has_delete_horizon, "there was something of it when the pass came by"
    second = compact(first.log, aborted, end=end, now_ms=NOW_MS + 5)
    assert (markers(second.log), second.spent) == ([1], [1])
    header = read_header(second.log[0])
    assert (header.has_delete_horizon, header.base_timestamp_ms) == (True, NOW_MS + 5 + DAY_MS)
    assert read_records(second.log[0], limit_bytes=LIMIT) == read_records(written.log[1], limit_bytes=LIMIT)
    waiting = compact(second.log, (), end=end, now_ms=NOW_MS + 4 + DAY_MS)
    assert waiting == second
    third = compact(second.log, (), end=end, now_ms=NOW_MS + 5 + DAY_MS)
    assert markers(third.log) == []
    assert values(third.log) == [(2, b"2")]


def test_a_marker_at_the_end_of_a_log_stays() -> None:
    written = Written()
    written.send(7, (b"a", b"1"))
    written.finish(7, commit=False)
    log: list[Buffer] = list(written.log)
    for days in range(4):
        log = compact(log, written.aborted, end=written.end, now_ms=NOW_MS + 2 * days * DAY_MS).log
    assert [read_header(batch).end for batch in log] == [written.end]


def test_a_marker_stays_where_nobody_says_what_came_before_it() -> None:
    written = Written()
    written.send(7, (b"a", b"1"))
    written.finish(7, commit=True)
    rules = FilterRules(latest={}, end=2, now_ms=NOW_MS, delete_retention_ms=0, limit_bytes=LIMIT)
    assert compact_batch(written.log[1], rules) is written.log[1]


ROUNDS = st.lists(st.tuples(st.lists(STEPS, max_size=12), st.sampled_from([0, DAY_MS // 2, 2 * DAY_MS])), max_size=6)


@given(ROUNDS)
def test_any_history_is_left_as_kafka_leaves_it(rounds: list[tuple[list[tuple[object, ...]], int]]) -> None:
    written = Written()
    log: list[Buffer] = []
    results: list[AbortedTransaction] = []
    finals: dict[bytes | None, bytes | None] = {}
    now_ms = NOW_MS
    for steps, passed_ms in rounds:
        known, known_aborted = len(written.log), len(written.aborted)
        write(written, steps)
        log += written.log[known:]
        results += written.aborted[known_aborted:]
        now_ms += passed_ms
        end = written.stable_end
        expected = clean(entries(log), results, end=end, now_ms=now_ms, retention_ms=DAY_MS)
        log, spent = compact(log, results, end=end, now_ms=now_ms)
        assert entries(log) == expected.log
        results = [each for each in results if each.last_offset not in spent]
        assert {each.last_offset for each in results}.isdisjoint(expected.spent_aborts)
        stable = [entry for entry in entries(written.log) if entry.base < end]
        finals = {item.key: item.value for item in committed(stable, written.aborted) if item.key in KEYS}
        seen = committed([entry for entry in entries(log) if entry.base < end], results)
        assert present({item.key: item.value for item in seen}) == present(finals)
        uncommitted = [item for entry in entries(log) if entry.base < end for item in entry.items]
        assert uncommitted == seen, "after a pass nobody sees what was aborted"


def present(finals: dict[bytes | None, bytes | None]) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in finals.items() if value is not None}
