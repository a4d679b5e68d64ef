"""The checker of transactions finds each anomaly in a history that is right but for it, and nothing in one that is."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.history.anomaly import Kind

from .checker import check
from .history import History, load_history
from .transactions import (
    ABORTED,
    COMMITTED,
    COPIES,
    DEALS,
    UNKNOWN,
    Deal,
    Entry,
    Kept,
    Seen,
    Told,
    View,
    parse_entry,
)

Change = Callable[[History], None]
HALF = 0.5


def a_deal(number: int, outcome: str, *, asked: bool = True, producer: str = "steady#1") -> Deal:
    """One of two records, for two partitions; it begins at its number and lasts for less than a second."""
    entries = [Entry(producer, number, each, 2, each, (0, 1)) for each in (0, 1)]
    at = float(number)
    return Deal(
        topic=DEALS,
        entries=entries,
        begun_at=at,
        requested_at=at + 0.2 if asked else None,
        ended_at=at + HALF,
        outcome=outcome,
    )


def right() -> History:
    """Committed, aborted, in doubt and there, in doubt and not there; a marker follows each; copies are made of all."""
    history = History(seed=1, minutes=1.0, lease_ttl_s=3.0, partitions=1, healed_at=0.1)
    it = history.transactional
    it.partitions = 2
    it.deals = [a_deal(0, COMMITTED), a_deal(1, ABORTED), a_deal(2, UNKNOWN), a_deal(3, UNKNOWN), a_deal(4, COMMITTED)]
    it.committed = {DEALS: {0: [], 1: []}, COPIES: {0: [], 1: []}}
    it.uncommitted = {DEALS: {0: [], 1: []}, COPIES: {0: [], 1: []}}
    for deal, is_there in zip(it.deals, (True, False, True, False, True), strict=True):
        for entry in deal.entries:
            kept = Kept(2 * deal.key[1], entry)
            it.uncommitted[DEALS][entry.partition].append(kept)
            if is_there:
                it.committed[DEALS][entry.partition].append(kept)
                it.seen.append(Seen(9.0, "follower", DEALS, entry.partition, kept.offset, entry))
    copy_all(history)
    it.told = [Told(1.5 + number / 2, 1.6 + number / 2, 0, number) for number in (1, 5, 9)]
    it.told.insert(0, Told(0.0, 0.1, 0, -1))
    it.open_for_s = {"transactions/0": 0.1}
    it.committed_again, it.uncommitted_again = again(it.committed), again(it.uncommitted)
    return history


def copy_all(history: History) -> None:
    it = history.transactional
    for number, offset in enumerate((0, 4, 8)):
        sources = ((0, offset), (1, offset))
        entries = [Entry("copier-1#1", number, each, 2, each, (0, 1), sources[each]) for each in (0, 1)]
        at = 1.0 + offset / 2
        it.deals.append(
            Deal(
                topic=COPIES,
                entries=entries,
                begun_at=at,
                requested_at=at + 0.2,
                ended_at=at + HALF,
                outcome=COMMITTED,
                offsets={0: offset + 1, 1: offset + 1},
            )
        )
        for entry in entries:
            for view in (it.committed, it.uncommitted):
                view[COPIES][entry.partition].append(Kept(2 * number, entry))


def again(view: View) -> View:
    return {topic: {number: list(records) for number, records in parts.items()} for topic, parts in view.items()}


def kinds(history: History) -> set[str]:
    it = history.transactional
    if not it.committed_again:
        it.committed_again, it.uncommitted_again = again(it.committed), again(it.uncommitted)
    return {anomaly.kind for anomaly in check(history)}


def test_a_history_that_is_right_has_no_anomaly() -> None:
    assert check(right()) == []


def lose_half_of_a_commit(history: History) -> None:
    drop(history, COPIES, 0, 4)
    drop(history, DEALS, 1, 8)


def drop(history: History, topic: str, partition: int, offset: int) -> None:
    """As if it had never been there, to whoever reads."""
    it = history.transactional
    it.committed_again = {}
    for view in (it.committed, it.uncommitted):
        view[topic][partition] = [each for each in view[topic][partition] if each.offset != offset]
    it.seen = [each for each in it.seen if (each.topic, each.partition, each.offset) != (topic, partition, offset)]


def show(history: History, deal: Deal, parts: int) -> None:
    """Of a transaction that is not there."""
    it = history.transactional
    it.committed_again = {}
    copies: list[Entry] = []
    for entry in deal.entries[:parts]:
        records = it.committed[deal.topic][entry.partition]
        records.append(Kept(2 * deal.key[1], entry))
        records.sort()
        it.seen = [each for each in it.seen if each.partition != entry.partition]
        source = entry.partition, 2 * deal.key[1]
        copied = Entry("copier-9#1", deal.key[1], entry.ordinal, parts, entry.partition, tuple(range(parts)), source)
        for view in (it.committed, it.uncommitted):
            view[COPIES][entry.partition].append(Kept(100 + deal.key[1], copied))
        copies.append(copied)
    it.deals.append(
        replace(deal, topic=COPIES, entries=copies, outcome=COMMITTED, begun_at=4.9, requested_at=5.0, ended_at=5.1)
    )


def show_an_aborted_one(history: History) -> None:
    show(history, history.transactional.deals[1], 2)


def show_half_of_one_in_doubt(history: History) -> None:
    show(history, history.transactional.deals[3], 1)


def show_one_that_nobody_asked_for(history: History) -> None:
    history.transactional.deals[2].requested_at = None


def commit_after_another_came(history: History) -> None:
    history.transactional.deals[0].fenced_at = 0.1


def go_on_after_another_came(history: History) -> None:
    """A record of the first instance stands behind one of the second."""
    it = history.transactional
    it.committed_again = {}
    for view in (it.committed, it.uncommitted):
        view[DEALS][0] = [
            each._replace(entry=each.entry and each.entry._replace(producer="steady#2")) if each.offset == 4 else each
            for each in view[DEALS][0]
        ]
    moved = it.committed[DEALS][0][1]
    it.seen = [each._replace(entry=moved.entry) if each[3:5] == (0, 4) else each for each in it.seen]
    it.deals[2].entries[0] = moved.entry or it.deals[2].entries[0]
    it.deals[2].outcome = UNKNOWN


def store_an_aborted_one_twice(history: History) -> None:
    records = history.transactional.uncommitted[DEALS][0]
    records.insert(2, Kept(3, records[1].entry))
    history.transactional.committed_again = {}


def read_what_was_aborted(history: History) -> None:
    it = history.transactional
    it.seen.append(Seen(9.0, "rereader/1", DEALS, 0, 0, it.deals[0].entries[0]))
    it.seen.append(Seen(9.0, "rereader/1", DEALS, 0, 2, it.deals[1].entries[0]))


def pass_over_a_record(history: History) -> None:
    history.transactional.seen = [each for each in history.transactional.seen if each.offset != 4]


def read_backwards(history: History) -> None:
    history.transactional.seen.append(history.transactional.seen[0])


def copy_twice(history: History) -> None:
    it = history.transactional
    it.committed_again = {}
    copied = it.deals[-1].entries[0]._replace(transaction=9, size=1, partitions=(0,))
    it.deals.append(replace(it.deals[-1], entries=[copied], begun_at=9.0, requested_at=9.1, ended_at=9.2, offsets={}))
    for view in (it.committed, it.uncommitted):
        view[COPIES][0].append(Kept(20, copied))


def copy_what_was_aborted(history: History) -> None:
    copy_twice(history)
    it = history.transactional
    copied = it.deals[-1].entries[0]._replace(source=(0, 2))
    it.deals[-1].entries[0] = copied
    for view in (it.committed, it.uncommitted):
        view[COPIES][0][-1] = Kept(20, copied)


def tell_less_than_before(history: History) -> None:
    history.transactional.told.append(Told(12.0, 12.1, 0, 5))


def tell_of_no_transaction(history: History) -> None:
    history.transactional.told.append(Told(12.0, 12.1, 0, 77))


def forget_an_offset(history: History) -> None:
    history.transactional.told = [Told(12.0, 12.1, 0, 5)]


def leave_one_open(history: History) -> None:
    history.transactional.open_for_s["copies/1"] = None


def forget_after_a_restart(history: History) -> None:
    history.transactional.committed_again[DEALS][0].pop()


def invent(history: History) -> None:
    it = history.transactional
    it.committed_again = {}
    it.uncommitted[DEALS][0].append(Kept(30, Entry("nobody#1", 0, 0, 1, 0, (0,))))


def show_another_record_to_whom_wants_all(history: History) -> None:
    it = history.transactional
    it.uncommitted[DEALS][0] = it.uncommitted[DEALS][0][:-1]
    it.committed_again = {}


def never_succeed_again(history: History) -> None:
    history.healed_at = 4.0
    history.transactional.deals[4].begun_at = 3.9


ANOMALIES: dict[Change, set[str]] = {
    lose_half_of_a_commit: {"copy of nothing", "never copied", Kind.LOST},
    show_an_aborted_one: {Kind.ABORTED_READ},
    show_half_of_one_in_doubt: {Kind.TORN},
    show_one_that_nobody_asked_for: {Kind.ABORTED_READ},
    commit_after_another_came: {Kind.ZOMBIE_COMMIT},
    go_on_after_another_came: {Kind.G0, Kind.REORDERED},
    store_an_aborted_one_twice: {Kind.DUPLICATE},
    read_what_was_aborted: {Kind.ABORTED_READ},
    pass_over_a_record: {Kind.SKIPPED},
    read_backwards: {Kind.POLL_WENT_BACK},
    copy_twice: {"copied twice"},
    copy_what_was_aborted: {"copy of nothing", Kind.ABORTED_READ},
    tell_less_than_before: {"offset went back", Kind.COMMIT_WENT_BACK},
    tell_of_no_transaction: {Kind.COMMIT_LOST},
    forget_an_offset: {Kind.COMMIT_WENT_BACK},
    leave_one_open: {Kind.STUCK_LSO},
    forget_after_a_restart: {Kind.LOST},
    invent: {Kind.PHANTOM},
    show_another_record_to_whom_wants_all: {Kind.LOST},
    never_succeed_again: {Kind.STARVED},
}


@pytest.mark.parametrize(("change", "results"), ANOMALIES.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_finds(change: Change, results: set[str]) -> None:
    history = right()
    change(history)
    assert kinds(history) == results


def test_a_value_names_its_transaction_and_shows_a_changed_bit() -> None:
    entry = Entry("copier-1#3", 17, 1, 2, 4, (0, 4), (3, 99))
    value = entry.value()
    assert parse_entry(value) == entry
    assert parse_entry(value[:-1] + bytes([value[-1] ^ 1])) is None
    assert parse_entry(None) is None


def test_a_history_is_the_same_when_it_was_saved_and_loaded(tmp_path: Path) -> None:
    history = right()
    history.save(tmp_path / "history.json")
    assert load_history(tmp_path / "history.json") == history
