"""The checker finds each anomaly in a history that is right but for it, and nothing in one that is right."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.history.anomaly import MAX_PER_KIND, Kind

from .checker import check, promises
from .history import Commit, Consumed, Fault, History, Note, Observed, RecordId, Send, Stored, load_history, parse_value

Change = Callable[[History], None]
GROUP, MEMBER = "readers", "readers-1"


def right() -> History:
    """Two producers that take turns in one partition, one of them idempotent; a group that reads and commits it all."""
    history = History(seed=1, minutes=1.0, lease_ttl_s=3.0, partitions=1, idempotent=["once"], healed_at=0.5)
    for offset in range(10):
        record = RecordId(("once", "plain")[offset % 2], 0, offset // 2)
        history.sends.append(Send(record=record, sent_at=offset, answered_at=offset + 0.5, offset=offset))
        history.consumed.append(Consumed(offset + 0.6, GROUP, MEMBER, 0, offset, record))
        history.commits.append(commit(offset + 1, sent_at=offset + 0.7))
        history.observed.append(Observed(offset + 0.9, offset + 0.95, GROUP, 0, offset + 1))
    history.log = {0: [Stored(send.offset or 0, send.record) for send in history.sends]}
    history.log_again = {0: list(history.log[0])}
    return history


def commit(offset: int, *, sent_at: float, accepted: bool | None = True) -> Commit:
    answered_at = None if accepted is None else sent_at + 0.1
    return Commit(
        group=GROUP,
        member=MEMBER,
        partition=0,
        offset=offset,
        sent_at=sent_at,
        answered_at=answered_at,
        accepted=accepted,
    )


def kinds(history: History) -> set[str]:
    return {anomaly.kind for anomaly in check(history)}


def put(history: History, offset: int, record: RecordId | None) -> None:
    """Let the log hold something else, as both readings show it."""
    history.log[0][offset] = history.log_again[0][offset] = Stored(offset, record)


def drop(history: History, offset: int) -> None:
    for log in (history.log, history.log_again):
        log[0] = [each for each in log[0] if each.offset != offset]
    history.consumed = [each for each in history.consumed if each.offset != offset]


def test_a_history_that_is_right_has_no_anomaly() -> None:
    assert check(right()) == []


def test_a_refused_record_may_be_in_the_log_or_not() -> None:
    history = right()
    history.sends[3].error = history.sends[8].error = "timed out"
    drop(history, 8)
    assert check(history) == []


def test_a_plain_record_may_be_stored_twice() -> None:
    history = right()
    again = Stored(10, history.sends[1].record)
    history.log[0].append(again)
    history.log_again[0].append(again)
    history.consumed.append(Consumed(10.6, GROUP, MEMBER, 0, 10, again.record))
    assert check(history) == []


def test_a_producer_with_several_requests_under_way_does_not_have_to_keep_order() -> None:
    history = right()
    reorder_acks_of_a_plain_producer(history)
    history.unordered.append("plain")
    assert check(history) == []


def test_an_ack_that_follows_from_the_next_one_has_no_offset() -> None:
    history = right()
    history.sends[4].offset = None
    assert check(history) == []
    drop(history, 4)
    assert kinds(history) == {Kind.LOST}


def test_what_nobody_answered_may_be_written_while_the_log_is_read() -> None:
    history = right()
    late = RecordId("plain", 0, 5)
    history.sends.append(Send(record=late, sent_at=9.8, answered_at=9.9, error="closed"))
    history.log_again[0].append(Stored(10, late))
    assert check(history) == []


def test_what_nobody_answered_may_be_written_when_the_groups_have_ended() -> None:
    history = right()
    late = RecordId("plain", 0, 5)
    history.sends.append(Send(record=late, sent_at=9.8, answered_at=9.9, error="closed"))
    for log in (history.log, history.log_again):
        log[0].append(Stored(10, late))
    assert check(history) == []


# --- each anomaly -------------------------------------------------------------------------------------------------


def lose_the_end(history: History) -> None:
    drop(history, 9)


def lose_one_to_another_record(history: History) -> None:
    other = RecordId("plain", 0, 99)
    history.sends.append(Send(record=other, sent_at=5.0, answered_at=5.2, error="timed out"))
    put(history, 5, other)
    history.consumed[5] = history.consumed[5]._replace(record=other)


def lose_one_after_a_pause(history: History) -> None:
    history.faults.append(Fault(kind="SIGSTOP", targets=["agent 2"], begun_at=2.0, ended_at=9.0))
    drop(history, 9)


def ack_without_an_offset(history: History) -> None:
    history.sends[4].offset = -1


def give_an_offset_twice(history: History) -> None:
    twin = RecordId("plain", 0, 50)
    history.sends.append(Send(record=twin, sent_at=4.1, answered_at=4.4, offset=4))


def show_an_offset_twice(history: History) -> None:
    history.log[0].insert(5, history.log[0][4])


def go_behind_an_ack(history: History) -> None:
    history.sends[2] = replace(history.sends[2], sent_at=7.8, answered_at=8.3)


def damage_a_record(history: History) -> None:
    history.sends[4].error = "timed out"
    put(history, 4, None)


def forget_after_a_restart(history: History) -> None:
    history.log_again[0].pop()


def invent_after_a_restart(history: History) -> None:
    history.log_again[0].append(Stored(10, RecordId("plain", 0, 4)))


def invent_a_record(history: History) -> None:
    put(history, 4, RecordId("nobody", 0, 0))
    history.sends[4].error = "timed out"
    history.consumed[4] = history.consumed[4]._replace(record=RecordId("nobody", 0, 0))


def store_twice(history: History) -> None:
    for log in (history.log, history.log_again):
        log[0].append(Stored(10, history.sends[8].record))
    history.consumed.append(Consumed(10.6, GROUP, MEMBER, 0, 10, history.sends[8].record))


def reorder_an_idempotent_producer(history: History) -> None:
    """Both records are unanswered, so nothing but their order is wrong."""
    first, second = history.sends[2], history.sends[4]
    first.error = second.error = "timed out"
    for offset, record in ((2, second.record), (4, first.record)):
        put(history, offset, record)
        history.consumed[offset] = history.consumed[offset]._replace(record=record)


def reorder_acks_of_a_plain_producer(history: History) -> None:
    """Sent at the same time, so that time does not order them."""
    first, second = history.sends[7], history.sends[9]
    first.sent_at = second.sent_at = 6.0
    first.answered_at = second.answered_at = 9.5
    first.offset, second.offset = 9, 7
    for offset, send in ((9, first), (7, second)):
        put(history, offset, send.record)
        history.consumed[offset] = history.consumed[offset]._replace(record=send.record)


def read_what_is_not_there(history: History) -> None:
    history.consumed.append(Consumed(9.9, GROUP, MEMBER, 0, 10, RecordId("plain", 0, 4)))


def read_another_record(history: History) -> None:
    history.consumed.append(Consumed(9.9, GROUP, MEMBER, 0, 3, RecordId("plain", 0, 4)))


def pass_over_a_record(history: History) -> None:
    del history.consumed[5]


def stay_behind(history: History) -> None:
    del history.consumed[8:]


def commit_less_than_before(history: History) -> None:
    history.commits.append(commit(4, sent_at=9.85))


def tell_an_old_commit(history: History) -> None:
    history.observed.append(Observed(9.9, 9.95, GROUP, 0, 4))


def tell_no_commit(history: History) -> None:
    history.observed.append(Observed(9.9, 9.95, GROUP, 0, -1))


def tell_a_commit_that_nobody_made(history: History) -> None:
    history.observed.append(Observed(9.9, 9.95, GROUP, 0, 77))


def tell_a_refused_commit(history: History) -> None:
    history.commits.append(commit(12, sent_at=9.7, accepted=False))
    history.observed.append(Observed(9.9, 9.95, GROUP, 0, 12))


def never_answer(history: History) -> None:
    history.sends.append(Send(record=RecordId("plain", 0, 60), sent_at=9.0))


def never_succeed_again(history: History) -> None:
    history.sends.append(Send(record=RecordId("third", 0, 0), sent_at=9.0, answered_at=9.9, error="timed out"))


def end_by_itself(history: History) -> None:
    history.troubles.append(Note(1.0, "agent 2", "ended by itself"))


ANOMALIES: dict[Change, set[str]] = {
    lose_the_end: {Kind.LOST},
    lose_one_to_another_record: {Kind.INCONSISTENT_OFFSETS, Kind.LOST},
    lose_one_after_a_pause: {"acked by a zombie", Kind.LOST},
    ack_without_an_offset: {Kind.REORDERED, Kind.SPURIOUS_ZERO},
    give_an_offset_twice: {Kind.INCONSISTENT_OFFSETS, Kind.LOST, Kind.REORDERED},
    show_an_offset_twice: {Kind.POLL_WENT_BACK},
    go_behind_an_ack: {Kind.REORDERED},
    damage_a_record: {Kind.CORRUPT, Kind.INCONSISTENT_OFFSETS},
    forget_after_a_restart: {Kind.LOST},
    invent_after_a_restart: {Kind.CHANGED_LOG, Kind.UNSEEN},
    invent_a_record: {Kind.PHANTOM},
    store_twice: {Kind.DUPLICATE},
    reorder_an_idempotent_producer: {Kind.REORDERED},
    reorder_acks_of_a_plain_producer: {Kind.REORDERED},
    read_what_is_not_there: {Kind.LOST},
    read_another_record: {Kind.INCONSISTENT_OFFSETS},
    pass_over_a_record: {Kind.SKIPPED},
    stay_behind: {Kind.UNSEEN},
    commit_less_than_before: {Kind.COMMIT_WENT_BACK},
    tell_an_old_commit: {Kind.COMMIT_WENT_BACK},
    tell_no_commit: {Kind.COMMIT_LOST},
    tell_a_commit_that_nobody_made: {Kind.COMMIT_LOST},
    tell_a_refused_commit: {Kind.COMMIT_LOST},
    never_answer: {Kind.UNANSWERED},
    never_succeed_again: {Kind.STARVED},
    end_by_itself: {"trouble"},
}


@pytest.mark.parametrize(("change", "results"), ANOMALIES.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_finds(change: Change, results: set[str]) -> None:
    history = right()
    change(history)
    assert kinds(history) == results


def test_promises_say_what_they_promise() -> None:
    assert all(promise.text and promise.name for promise in promises(right()))


def test_a_run_in_which_hardly_anything_happened_is_no_pass() -> None:
    history = right()
    history.min_acks = 11
    assert kinds(history) == {Kind.NO_EVIDENCE}


@pytest.mark.parametrize(("agents", "found"), [(1, set()), (3, {Kind.NO_EVIDENCE})])
def test_a_fault_that_nobody_felt_is_no_evidence_unless_it_was_short(agents: int, found: set[str]) -> None:
    history = right()
    targets = [f"agent {number}" for number in range(agents)]
    fault = Fault(kind="store: answers 500", targets=targets, begun_at=2.0, ended_at=4.5, hits=0)
    history.faults.append(fault)
    assert kinds(history) == found
    fault.hits = 1
    assert kinds(history) == set()


def test_a_group_that_read_nothing_after_the_faults_is_found() -> None:
    history = right()
    history.groups, history.healed_at = [GROUP], 5.0
    assert check(history) == []
    history.consumed = [each for each in history.consumed if each.at < 5.0]
    assert kinds(history) == {Kind.STOPPED_READER, Kind.UNSEEN}


def test_commits_at_the_same_time_may_end_in_any_order() -> None:
    history = right()
    history.commits += [commit(10, sent_at=10.0), commit(11, sent_at=10.01)]
    for offset in (10, 11):
        history.observed.append(Observed(11.0, 11.1, GROUP, 0, offset))
    assert check(history) == []


def test_a_commit_without_a_response_may_be_applied_or_not() -> None:
    history = right()
    history.commits.append(commit(9, sent_at=9.85, accepted=None))
    for offset in (9, 10):
        history.observed.append(Observed(11.0, 11.1, GROUP, 0, offset))
    assert check(history) == []


def test_a_thousand_effects_of_one_cause_are_summarised() -> None:
    history = right()
    history.troubles = [Note(1.0, "agent 1", "again")] * 1000
    assert len(check(history)) == MAX_PER_KIND + 1


def test_a_value_names_its_record_and_shows_a_changed_bit() -> None:
    record = RecordId("plain", 3, 41)
    value = record.value()
    assert parse_value(value) == record
    assert parse_value(value[:-1] + bytes([value[-1] ^ 1])) is None
    assert parse_value(None) is None


def test_a_history_is_the_same_when_it_was_saved_and_loaded(tmp_path: Path) -> None:
    history = right()
    history.save(tmp_path / "history.json")
    assert load_history(tmp_path / "history.json") == history
