"""The checker finds each anomaly in a history that is right but for it, and nothing in one that is right."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .anomaly import MAX_PER_KIND, Kind
from .checker import CHECKS, check
from .clean import clean_history
from .events import (
    Assignment,
    Commit,
    CommittedSeen,
    History,
    Item,
    LogRead,
    Outcome,
    Poll,
    Range,
    Reader,
    StableSeen,
    Transaction,
    Write,
)

Change = Callable[[History], None]


def right() -> History:
    """Two producers in one partition, one of them idempotent; a group that reads and commits; transactions of one id,
    each with a record in t and in u: committed, aborted, in doubt and there, committed."""
    history = History(healed_at=0.5, readers=[Reader(name="group"), Reader(name="follower", in_order=True)])
    for offset in range(8):
        producer = ("once", "plain")[offset % 2]
        value = f"{producer}/{offset}"
        at = float(offset)
        history.writes.append(
            Write(
                producer=producer,
                partition="p",
                value=value,
                number=(offset,),
                begun=at,
                ended=at + 0.3,
                offset=offset,
                is_acked=True,
                once=producer == "once",
                in_order=producer == "once",
            )
        )
        for reader in ("group", "follower"):
            poll(history, reader, "p", Item(offset, value), at=at + 0.4)
        history.commits.append(a_commit(offset + 1, at=at + 0.6))
        history.committed.append(CommittedSeen("group", "p", offset + 1, at + 0.8, at + 0.9))
    outcomes = (Outcome.COMMITTED, Outcome.REFUSED, Outcome.UNKNOWN, Outcome.COMMITTED)
    for number, outcome in enumerate(outcomes):
        add_transaction(history, "t1", number, outcome, at=float(number))
    read_logs(history)
    history.assignments = [Assignment("group", 1, "m1", ("p", "t")), Assignment("group", 2, "m2", ("p", "t"))]
    history.stable = [StableSeen("t", 8, 8)]
    return history


def a_commit(offset: int, *, at: float, outcome: Outcome = Outcome.COMMITTED) -> Commit:
    return Commit(group="group", member="m", partition="p", offset=offset, begun=at, ended=at + 0.1, outcome=outcome)


def poll(
    history: History, reader: str, partition: str, *items: Item, at: float, committed: bool = False, into: str = ""
) -> None:
    history.polls.append(
        Poll(
            reader=reader,
            partition=partition,
            start=items[0].offset,
            end=items[-1].offset + 1,
            items=list(items),
            begun=at,
            ended=at + 0.05,
            is_committed=committed,
            transaction=into or None,
        )
    )


def add_transaction(
    history: History,
    name: str,
    number: int,
    outcome: Outcome,
    *,
    at: float,
    consumed: tuple[Range, ...] = (),
    offsets: tuple[int, int] | None = None,
) -> Transaction:
    """One record in t and one in u; a marker stands behind each."""
    transaction = Transaction(
        label=f"{name}/{number}",
        transactional_id=name,
        order=(number,),
        begun=at,
        commit_begun=None if outcome is Outcome.REFUSED else at + 0.2,
        ended=at + 0.4,
        outcome=outcome,
        consumed=consumed,
    )
    history.transactions.append(transaction)
    for partition, offset in zip(("t", "u"), offsets or (2 * number, 2 * number), strict=True):
        history.writes.append(
            Write(
                producer=name,
                partition=partition,
                value=f"{name}/{number}/{partition}",
                number=(number,),
                begun=at,
                ended=at + 0.1,
                offset=offset,
                is_acked=True,
                transaction=transaction.label,
            )
        )
    return transaction


def read_logs(history: History) -> None:
    """Twice, at both levels, as the acknowledgements say."""
    history.logs = []
    aborted = {each.label for each in history.transactions if not each.may_be_committed}
    for is_committed in (False, True, False, True):
        for partition in ("p", "t", "u"):
            items = [
                Item(write.offset or 0, write.value)
                for write in history.writes
                if write.partition == partition and not (is_committed and write.transaction in aborted)
            ]
            history.logs.append(LogRead(partition=partition, items=sorted(items), is_committed=is_committed))
    known = {(each.reader, each.partition, item) for each in history.polls for item in each.items}
    for reader in history.readers:
        for log in history.logs[:3]:
            for item in log.items:
                if (reader.name, log.partition, item) not in known:
                    poll(history, reader.name, log.partition, item, at=20.0 + item.offset)


def write_of(history: History, value: str) -> Write:
    return next(write for write in history.writes if write.value == value)


def edit(history: History, partition: str, change: Callable[[list[Item]], list[Item]]) -> None:
    """In all readings of the log, and for all readers."""
    for log in history.logs:
        if log.partition == partition:
            log.items = change(list(log.items))
    for each in history.polls:
        if each.partition == partition:
            each.items = change(list(each.items))
    history.polls = [each for each in history.polls if each.items]


def drop(history: History, partition: str, offset: int) -> None:
    edit(history, partition, lambda items: [item for item in items if item.offset != offset])


def put(history: History, partition: str, offset: int, value: str | None) -> None:
    edit(history, partition, lambda items: [Item(offset, value) if item.offset == offset else item for item in items])


def kinds(history: History) -> set[str]:
    return {anomaly.kind for anomaly in check(history)}


def test_a_history_that_is_right_has_no_anomaly() -> None:
    assert check(right()) == []


@given(seed=st.integers(0, 10**9), steps=st.integers(1, 150))
def test_a_cluster_that_keeps_every_promise_makes_no_anomaly(seed: int, steps: int) -> None:
    assert check(clean_history(seed, steps=steps)) == []


# --- each anomaly -------------------------------------------------------------------------------------------------


def lose_the_end(history: History) -> None:
    drop(history, "p", 7)


def lose_what_only_a_reader_has_seen(history: History) -> None:
    write_of(history, "plain/7").is_acked = False
    for log in history.logs:
        log.items = [item for item in log.items if item.value != "plain/7"]


def lose_between_two_readings(history: History) -> None:
    for log in history.logs[6:]:
        log.items = [item for item in log.items if item.value != "plain/7"]
    history.polls = [each for each in history.polls if each.items[0].value != "plain/7"]
    write_of(history, "plain/7").is_acked = False


def pass_over_a_record(history: History) -> None:
    history.polls = [each for each in history.polls if (each.reader, each.items[0]) != ("follower", Item(3, "plain/3"))]


def never_come_to_the_end(history: History) -> None:
    history.polls = [each for each in history.polls if each.reader != "group" or each.items[0].offset < 6]


def store_twice(history: History) -> None:
    """The last one: another would stand behind a later one as well."""
    twice = Item(20, "once/6")
    for log in history.logs:
        if log.partition == "p":
            log.items = [*log.items, twice]
    for reader in ("group", "follower"):
        poll(history, reader, "p", twice, at=30.0)


def acknowledge_another_offset(history: History) -> None:
    edit(history, "p", lambda items: [item._replace(offset=20) if item.offset == 7 else item for item in items])


def acknowledge_offset_zero(history: History) -> None:
    history.writes = [write for write in history.writes if write.value != "once/0"]
    history.polls = [each for each in history.polls if (each.partition, each.items[0].offset) != ("p", 0)]
    for log in history.logs:
        log.items = [item for item in log.items if item.value != "once/0"]
    write_of(history, "plain/1").offset = 0


def show_two_records_at_one_offset(history: History) -> None:
    history.writes.append(
        Write(
            producer="third",
            partition="p",
            value="third/0",
            number=(0,),
            begun=3.0,
            ended=9.0,
            once=False,
            in_order=False,
        )
    )
    poll(history, "someone", "p", Item(4, "third/0"), at=9.0)
    history.healed_at = None


def swap_an_idempotent_producers_records(history: History) -> None:
    for value in ("once/2", "once/4"):
        write_of(history, value).is_acked = False
    put(history, "p", 2, "once/4")
    edit(history, "p", lambda items: [Item(4, "once/2") if item.offset == 4 else item for item in items])


def acknowledge_behind_an_earlier_one(history: History) -> None:
    write = write_of(history, "plain/3")
    write.begun, write.ended, write.number = 7.9, 8.2, (9,)
    write.acks_in_order = False


def read_what_nobody_sent(history: History) -> None:
    write_of(history, "plain/5").is_acked = False
    put(history, "p", 5, "nobody/0")


def change_a_byte(history: History) -> None:
    write_of(history, "plain/5").is_acked = False
    put(history, "p", 5, None)


def poll_backwards(history: History) -> None:
    poll(history, "follower", "p", Item(3, "plain/3"), at=9.0)


def poll_below_the_position(history: History) -> None:
    poll(history, "someone", "p", Item(3, "plain/3"), at=9.0)
    history.polls[-1].start = 5


def grow_in_the_middle(history: History) -> None:
    write = write_of(history, "plain/3")
    write.is_acked = False
    for log in history.logs[:6]:
        log.items = [item for item in log.items if item.value != "plain/3"]


def read_an_aborted_record(history: History) -> None:
    poll(history, "someone", "t", Item(2, "t1/1/t"), at=9.0, committed=True)


def commit_an_aborted_record(history: History) -> None:
    for log in history.logs:
        if log.is_committed and log.partition == "t":
            log.items = sorted([*log.items, Item(2, "t1/1/t")])


def read_before_the_commit(history: History) -> None:
    poll(history, "someone", "t", Item(0, "t1/0/t"), at=0.1, committed=True)


def tear_one_in_doubt(history: History) -> None:
    for log in history.logs:
        if log.is_committed and log.partition == "u":
            log.items = [item for item in log.items if item.value != "t1/2/u"]


def lose_half_of_a_commit(history: History) -> None:
    for log in history.logs:
        if log.is_committed and log.partition == "u":
            log.items = [item for item in log.items if item.value != "t1/0/u"]


def commit_though_replaced(history: History) -> None:
    history.transactions[0].fenced = 0.1


def write_around_each_other(history: History) -> None:
    """Two of one id, of which each is behind the other in some partition."""
    add_transaction(history, "t2", 0, Outcome.COMMITTED, at=5.0, offsets=(10, 12))
    add_transaction(history, "t2", 1, Outcome.COMMITTED, at=5.0, offsets=(12, 10))
    for write in history.writes:
        if write.producer == "t2":
            write.in_order = write.acks_in_order = False
    read_logs(history)


def read_each_other(history: History) -> None:
    for number, name in enumerate(("t2", "t3")):
        add_transaction(history, name, 0, Outcome.COMMITTED, at=5.0, offsets=(10 + 2 * number, 10 + 2 * number))
    poll(history, "someone", "t", Item(12, "t3/0/t"), at=5.3, committed=True, into="t2/0")
    poll(history, "someone", "t", Item(10, "t2/0/t"), at=5.3, committed=True, into="t3/0")
    read_logs(history)


def consume_the_same_input(history: History) -> None:
    for number, name in enumerate(("t2", "t3")):
        consumed = (Range("copiers", "p", 0, 4 + number),)
        offsets = (10 + 2 * number, 10 + 2 * number)
        add_transaction(history, name, 0, Outcome.COMMITTED, at=5.0, consumed=consumed, offsets=offsets)
    read_logs(history)


def consume_around_each_other(history: History) -> None:
    """Two inputs of two transactions: each has consumed what the other had consumed already."""
    for number, name in enumerate(("t2", "t3", "t4")):
        consumed = (Range("copiers", "p", 0, 4 + number), Range("copiers", "q", 0, 9 - number))
        offsets = (10 + 2 * number, 10 + 2 * number)
        add_transaction(history, name, 0, Outcome.COMMITTED, at=5.0, consumed=consumed, offsets=offsets)
    read_logs(history)


def commit_less_than_before(history: History) -> None:
    history.commits.append(a_commit(4, at=9.0))


def tell_an_old_commit(history: History) -> None:
    history.committed.append(CommittedSeen("group", "p", 4, 9.0, 9.1))


def tell_no_commit(history: History) -> None:
    history.committed.append(CommittedSeen("group", "p", -1, 9.0, 9.1))


def tell_a_commit_that_nobody_made(history: History) -> None:
    history.committed.append(CommittedSeen("group", "p", 77, 9.0, 9.1))


def tell_a_refused_commit(history: History) -> None:
    history.commits.append(a_commit(12, at=9.0, outcome=Outcome.REFUSED))
    history.committed.append(CommittedSeen("group", "p", 12, 9.5, 9.6))


def give_a_partition_twice(history: History) -> None:
    history.assignments.append(Assignment("group", 2, "m1", ("t",)))


def hold_readers_back(history: History) -> None:
    history.stable.append(StableSeen("u", 4, 8))


def never_answer(history: History) -> None:
    history.writes.append(Write(producer="p", partition="p", value="p/0", number=(0,), begun=0.1, once=False))


def starve_a_producer(history: History) -> None:
    history.writes.append(
        Write(producer="p", partition="p", value="p/0", number=(0,), begun=9.0, ended=9.9, once=False)
    )


def starve_a_transactional_id(history: History) -> None:
    history.must_succeed.append("t9")


def stop_reading(history: History) -> None:
    history.healed_at = 5.0
    history.readers[1] = replace(history.readers[1], reads_after_healing=True, is_complete=False)
    history.polls = [each for each in history.polls if each.reader != "follower" or each.ended < 5.0]


def read_nothing(history: History) -> None:
    history.readers.append(Reader(name="idle", is_complete=False))


def hardly_do_anything(history: History) -> None:
    history.min_acks, history.min_faults, history.faults = 10_000, 3, 3


def hardly_suffer_anything(history: History) -> None:
    history.min_faults = 1


ANOMALIES: dict[Change, set[Kind]] = {
    lose_the_end: {Kind.LOST},
    lose_what_only_a_reader_has_seen: {Kind.LOST},
    lose_between_two_readings: {Kind.LOST},
    pass_over_a_record: {Kind.SKIPPED},
    never_come_to_the_end: {Kind.UNSEEN},
    store_twice: {Kind.DUPLICATE},
    acknowledge_another_offset: {Kind.DUPLICATE_NONZERO},
    acknowledge_offset_zero: {Kind.SPURIOUS_ZERO},
    show_two_records_at_one_offset: {Kind.INCONSISTENT_OFFSETS},
    swap_an_idempotent_producers_records: {Kind.REORDERED},
    acknowledge_behind_an_earlier_one: {Kind.REORDERED},
    read_what_nobody_sent: {Kind.PHANTOM},
    change_a_byte: {Kind.CORRUPT},
    poll_backwards: {Kind.POLL_WENT_BACK},
    poll_below_the_position: {Kind.POLL_WENT_BACK},
    grow_in_the_middle: {Kind.CHANGED_LOG},
    read_an_aborted_record: {Kind.ABORTED_READ},
    commit_an_aborted_record: {Kind.ABORTED_READ},
    read_before_the_commit: {Kind.PRECOMMITTED_READ},
    tear_one_in_doubt: {Kind.TORN},
    lose_half_of_a_commit: {Kind.LOST},
    commit_though_replaced: {Kind.ZOMBIE_COMMIT},
    write_around_each_other: {Kind.G0},
    read_each_other: {Kind.G1C},
    consume_the_same_input: {Kind.G_SINGLE},
    consume_around_each_other: {Kind.G0},
    commit_less_than_before: {Kind.COMMIT_WENT_BACK},
    tell_an_old_commit: {Kind.COMMIT_WENT_BACK},
    tell_no_commit: {Kind.COMMIT_LOST},
    tell_a_commit_that_nobody_made: {Kind.COMMIT_LOST},
    tell_a_refused_commit: {Kind.COMMIT_LOST},
    give_a_partition_twice: {Kind.TWO_OWNERS},
    hold_readers_back: {Kind.STUCK_LSO},
    never_answer: {Kind.UNANSWERED},
    starve_a_producer: {Kind.STARVED},
    starve_a_transactional_id: {Kind.STARVED},
    stop_reading: {Kind.STOPPED_READER},
    read_nothing: {Kind.NOTHING_READ},
    hardly_do_anything: {Kind.NO_EVIDENCE},
    hardly_suffer_anything: {Kind.NO_EVIDENCE},
}


@pytest.mark.parametrize(("change", "found"), ANOMALIES.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_finds(change: Change, found: set[Kind]) -> None:
    history = right()
    change(history)
    assert kinds(history) == found


def test_every_kind_of_anomaly_has_a_history_that_contains_it() -> None:
    assert {kind for each in ANOMALIES.values() for kind in each} == set(Kind)


# --- what is no anomaly -------------------------------------------------------------------------------------------


def test_records_of_plain_producers_may_be_stored_twice() -> None:
    history = right()
    for log in history.logs:
        if log.partition == "p":
            log.items = [*log.items, Item(20, "plain/7")]
    for reader in ("group", "follower"):
        poll(history, reader, "p", Item(20, "plain/7"), at=30.0)
    write_of(history, "plain/7").is_acked = True
    assert check(history) == []


def test_what_retention_may_delete_may_be_gone() -> None:
    history = right()
    for log in history.logs:
        log.items = [item for item in log.items if log.partition != "p" or item.offset >= 3]
    assert kinds(history) == {Kind.LOST}
    history.deletable["p"] = 3
    assert check(history) == []


def test_what_a_power_failure_may_take_is_forgotten_and_nothing_else() -> None:
    history = right()
    history.power_failed("p", lambda value: value not in ("once/6", "plain/7"))
    drop(history, "p", 7)
    drop(history, "p", 6)
    history.commits, history.committed = [], []
    assert check(history) == []
    history = right()
    history.power_failed("p", lambda value: True)
    drop(history, "p", 7)
    assert kinds(history) == {Kind.LOST}


def test_a_reader_that_passed_a_marker_may_miss_the_record_that_has_its_offset_after_a_power_failure() -> None:
    history = right()
    for each in history.polls:
        if each.partition == "p":
            each.items = [item for item in each.items if item.offset != 2]
    assert Kind.SKIPPED in kinds(history)
    history.power_failed("p", lambda value: True, markers=[2])
    assert check(history) == []


def test_commits_at_the_same_time_may_end_in_any_order() -> None:
    history = right()
    history.commits += [a_commit(10, at=10.0), a_commit(11, at=10.01)]
    history.committed += [CommittedSeen("group", "p", offset, 11.0, 11.1) for offset in (10, 11)]
    assert check(history) == []


def test_a_commit_without_a_response_may_be_applied_or_not() -> None:
    history = right()
    history.commits.append(a_commit(9, at=9.0, outcome=Outcome.UNKNOWN))
    history.committed += [CommittedSeen("group", "p", offset, 11.0, 11.1) for offset in (8, 9)]
    assert check(history) == []


def test_transactions_of_different_ids_may_write_around_each_other() -> None:
    """As in Kafka: their records stand in any order."""
    history = right()
    add_transaction(history, "t2", 0, Outcome.COMMITTED, at=5.0, offsets=(10, 12))
    add_transaction(history, "t3", 0, Outcome.COMMITTED, at=5.0, offsets=(12, 10))
    read_logs(history)
    assert check(history) == []


def test_a_thousand_effects_of_one_cause_are_summarised() -> None:
    history = right()
    history.assignments += [Assignment("group", 2, f"n{number}", ("t",)) for number in range(1000)]
    assert len(check(history)) == MAX_PER_KIND + 1


def test_checks_say_what_they_check() -> None:
    assert all((each.__doc__ or "").strip() for each in CHECKS)


def test_a_history_that_is_ten_times_longer_takes_about_ten_times_as_long() -> None:
    """So that hours of chaos can be judged; the bound leaves room for busy machines."""

    def seconds(steps: int) -> float:
        history = clean_history(7, steps=steps)
        begun = time.process_time()
        assert check(history) == []
        return time.process_time() - begun

    short = min(seconds(150) for _ in range(3))
    assert seconds(1500) < 60 * short
