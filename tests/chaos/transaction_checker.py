"""Transaction checker: what transactions promise, whatever happened to the cluster.

Data path   history -> **transaction_checker** -> checker
Owns        the promises about transactions, as far as clients can see them
Leaves      what an anomaly is to `anomaly`; records without transactions to `checker`

A transaction whose commit nobody ever asked for counts as aborted, whatever became of its producer.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from .anomaly import Anomaly
from .history import History
from .transactions import ABORTED, COMMITTED, COPIES, DEALS, UNKNOWN, Deal, Entry, Kept, View

NOT_ENDED: Final = "transaction left open"


def committed_transactions_are_whole(history: History) -> Iterator[Anomaly]:
    """Every record of a transaction whose commit was acknowledged is there once, where it was sent to."""
    found = _places(history.transactional.committed)
    for deal in history.transactional.deals:
        if deal.fate == COMMITTED:
            for entry in deal.entries:
                places = found[deal.topic, entry]
                if len(places) != 1 or places[0][0] != entry.partition:
                    kind = "committed twice" if len(places) > 1 else "lost commit"
                    yield Anomaly(kind=kind, text=f"{entry} for {deal.topic}/{entry.partition} is at {places}")


def aborted_transactions_show_nothing(history: History) -> Iterator[Anomaly]:
    """Nothing is seen of a transaction whose abort was acknowledged, or whose commit nobody asked for."""
    found = _by_deal(history.transactional.committed)
    for deal in history.transactional.deals:
        if expected(deal) == ABORTED and (seen := found.get((deal.topic, *deal.key))):
            text = f"{sum(seen.values())} of {len(deal.entries)} records of {deal.key} ({deal.error}) are there"
            yield Anomaly(kind="aborted, but there", text=text, at=deal.ended_at)


def transactions_in_doubt_are_whole_or_absent(history: History) -> Iterator[Anomaly]:
    """Where nobody knows how a transaction ended, all of it is there once, or nothing."""
    found = _by_deal(history.transactional.committed)
    for deal in history.transactional.deals:
        seen = found.get((deal.topic, *deal.key))
        if expected(deal) == UNKNOWN and seen and seen != Counter(deal.entries):
            text = f"{sum(seen.values())} of {len(deal.entries)} records of {deal.key} ({deal.error}) are there"
            yield Anomaly(kind="torn transaction", text=text, at=deal.ended_at)


def transactions_come_from_somebody(history: History) -> Iterator[Anomaly]:
    """Offsets grow, every record was sent to where it is, and what is committed is part of what is there."""
    sent = {(deal.topic, entry) for deal in history.transactional.deals for entry in deal.entries}
    everything = history.transactional.uncommitted
    for topic, partition, records in _logs(everything):
        before = -1
        for offset, entry in records:
            if offset <= before:
                yield Anomaly(kind="offset twice", text=f"{topic}/{partition} shows {offset} after {before}")
            before = offset
            if entry is None or entry.partition != partition or (topic, entry) not in sent:
                yield Anomaly(kind="phantom record", text=f"{entry} in {topic}/{partition} at {offset}")
    for topic, partition, records in _logs(history.transactional.committed):
        there = dict(everything.get(topic, {}).get(partition, ()))
        for offset, entry in records:
            if there.get(offset) != entry:
                text = f"{topic}/{partition} offset {offset} is {entry} to one reader, {there.get(offset)} to another"
                yield Anomaly(kind="two truths", text=text)


def transactions_keep_their_order(history: History) -> Iterator[Anomaly]:
    """Records of a transactional id stand in a partition once, in the order of its instances and of what they sent."""
    for topic, partition, records in _logs(history.transactional.uncommitted):
        last: dict[str, Entry] = {}
        for offset, entry in records:
            if entry is None:
                continue
            before = last.get(entry.family)
            if before is not None and entry.place <= before.place:
                text = f"{entry} at {offset} of {topic}/{partition} follows {before}"
                yield Anomaly(kind="stored twice" if entry == before else "out of order", text=text)
            last[entry.family] = entry


def readers_see_committed_records_only(history: History) -> Iterator[Anomaly]:
    """Whatever a reader of committed records was given, at any time, is committed at that offset in the end."""
    view = _by_offset(history.transactional.committed)
    for each in history.transactional.seen:
        found = view.get((each.topic, each.partition, each.offset))
        if found is None or found != each.entry:
            text = f"{each.reader} read {each.entry} in {each.topic}/{each.partition} at {each.offset}: {found}"
            yield Anomaly(kind="uncommitted read", text=text, at=each.at)


def readers_pass_over_nothing(history: History) -> Iterator[Anomaly]:
    """A reader of committed records gets all of them, in order and once, from zero to where it ended."""
    read: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for each in history.transactional.seen:
        read[each.reader, each.topic, each.partition].append(each.offset)
    for (reader, topic, partition), offsets in read.items():
        kept = history.transactional.committed.get(topic, {}).get(partition, ())
        due = [offset for offset, _ in kept if offset <= max(offsets)]
        if offsets != sorted(set(offsets)):
            yield Anomaly(kind="read twice", text=f"{reader} went back in {topic}/{partition}")
        if missing := sorted(set(due) - set(offsets)):
            text = f"{reader} never saw {len(missing)} records of {topic}/{partition}, first {missing[0]}"
            yield Anomaly(kind="passed over", text=text)


def copies_are_made_once(history: History) -> Iterator[Anomaly]:
    """Of every committed record there is one committed copy, however often its copier was replaced."""
    made: Counter[tuple[int, int]] = Counter()
    for _, _, records in _logs({COPIES: history.transactional.committed.get(COPIES, {})}):
        made.update(entry.source for _, entry in records if entry is not None)
    due = {
        (partition, offset)
        for _, partition, records in _logs({DEALS: history.transactional.committed.get(DEALS, {})})
        for offset, _ in records
    }
    for source in sorted(due - made.keys()):
        yield Anomaly(kind="never copied", text=f"partition {source[0]} offset {source[1]}")
    for source, times in sorted(made.items()):
        if source not in due:
            yield Anomaly(kind="copy of nothing", text=f"partition {source[0]} offset {source[1]}")
        elif times > 1:
            yield Anomaly(kind="copied twice", text=f"partition {source[0]} offset {source[1]}: {times} times")


def offsets_in_transactions_never_go_back(history: History) -> Iterator[Anomaly]:
    """What is committed for the copiers grows, and is what a transaction has committed or may have."""
    made: dict[tuple[int, int], list[Deal]] = defaultdict(list)
    for deal in history.transactional.deals:
        for partition, offset in deal.offsets.items():
            made[partition, offset].append(deal)
    last: dict[int, int] = defaultdict(lambda: -1)
    for told in history.transactional.told:  # by one who waits for the answer before he asks again
        if told.offset < last[told.partition]:
            text = f"partition {told.partition}: {told.offset} after {last[told.partition]}"
            yield Anomaly(kind="offset went back", text=text, at=told.sent_at)
        last[told.partition] = max(told.offset, last[told.partition])
        by = made[told.partition, told.offset]
        if told.offset >= 0 and not any(_may_be_told(deal, told.answered_at) for deal in by):
            text = f"partition {told.partition} was told as {told.offset}, which no transaction explains"
            yield Anomaly(kind="offset of no transaction", text=text, at=told.sent_at)
    yield from _acknowledged_offsets(history)


def _may_be_told(deal: Deal, until: float) -> bool:
    return deal.asked_at is not None and expected(deal) != ABORTED and deal.asked_at <= until


def _acknowledged_offsets(history: History) -> Iterator[Anomaly]:
    """Whoever asks after a commit was acknowledged is told of it."""
    ends = sorted(
        (deal.ended_at or 0.0, partition, offset)
        for deal in history.transactional.deals
        if deal.fate == COMMITTED
        for partition, offset in deal.offsets.items()
    )
    following, due = 0, dict[int, int]()
    for told in sorted(history.transactional.told):
        while following < len(ends) and ends[following][0] < told.sent_at:
            _, partition, offset = ends[following]
            due[partition] = max(offset, due.get(partition, -1))
            following += 1
        if told.offset < due.get(told.partition, -1):
            text = f"partition {told.partition} was told as {told.offset} after {due[told.partition]} was committed"
            yield Anomaly(kind="offset lost", text=text, at=told.sent_at)


def fenced_producers_commit_nothing(history: History) -> Iterator[Anomaly]:
    """Once another instance with its transactional id is ready, no commit that a producer asks for succeeds."""
    there = _by_deal(history.transactional.committed)
    for deal in history.transactional.deals:
        if deal.fenced_at is None or deal.asked_at is None or deal.asked_at < deal.fenced_at:
            continue
        if deal.fate == COMMITTED or (deal.topic, *deal.key) in there:
            yield Anomaly(kind="committed by a zombie", text=f"{deal.key}: {deal.fate} {deal.error}", at=deal.ended_at)


def no_transaction_stays_open(history: History) -> Iterator[Anomaly]:
    """Soon after the clients have ended, readers of committed records come to the end of every partition."""
    for place, waited_s in history.transactional.open_for_s.items():
        if waited_s is None:
            yield Anomaly(kind=NOT_ENDED, text=f"{place}: its end is not stable")


def transactions_survive_agents(history: History) -> Iterator[Anomaly]:
    """Read again by agents that were just started, the same is there, and the same of it is committed."""
    both = history.transactional
    for name, before, after in (
        ("committed", both.committed, both.committed_again),
        ("all", both.uncommitted, both.uncommitted_again),
    ):
        for topic, partition, records in _logs(before):
            again = after.get(topic, {}).get(partition, [])
            if again != records:
                changed = sorted(set(records) ^ set(again), key=lambda each: each.offset)
                text = f"{topic}/{partition} ({name}): {len(changed)} differ, first {changed[0] if changed else '?'}"
                yield Anomaly(kind="changed by a restart", text=text)


def transactions_go_on(history: History) -> Iterator[Anomaly]:
    """Every transactional id has success again after the faults."""
    if history.healed_at is None:
        return
    tried: dict[str, bool] = {}
    for deal in history.transactional.deals:
        if deal.begun_at > history.healed_at:
            family = deal.entries[0].family
            tried[family] = tried.get(family, False) or deal.fate == COMMITTED
    for family in sorted({deal.entries[0].family for deal in history.transactional.deals}):
        if not tried.get(family, family.startswith("copier")):  # a copier may have no partition just then
            yield Anomaly(kind="stuck producer", text=f"{family} has committed nothing after the faults")


def expected(deal: Deal) -> str:
    return ABORTED if deal.asked_at is None else deal.fate


def _logs(view: View) -> Iterator[tuple[str, int, list[Kept]]]:
    for topic, partitions in view.items():
        for partition, records in partitions.items():
            yield topic, partition, records


def _places(view: View) -> dict[tuple[str, Entry], list[tuple[int, int]]]:
    found: dict[tuple[str, Entry], list[tuple[int, int]]] = defaultdict(list)
    for topic, partition, records in _logs(view):
        for offset, entry in records:
            if entry is not None:
                found[topic, entry].append((partition, offset))
    return found


def _by_deal(view: View) -> dict[tuple[str, str, int], Counter[Entry]]:
    found: dict[tuple[str, str, int], Counter[Entry]] = defaultdict(Counter)
    for topic, _, records in _logs(view):
        for _, entry in records:
            if entry is not None:
                found[topic, *entry.deal][entry] += 1
    return dict(found)


def _by_offset(view: View) -> dict[tuple[str, int, int], Entry | None]:
    return {
        (topic, partition, each.offset): each.entry for topic, partition, records in _logs(view) for each in records
    }


TRANSACTION_PROMISES: Final[tuple[Callable[[History], Iterator[Anomaly]], ...]] = (
    committed_transactions_are_whole,
    aborted_transactions_show_nothing,
    transactions_in_doubt_are_whole_or_absent,
    transactions_come_from_somebody,
    transactions_keep_their_order,
    readers_see_committed_records_only,
    readers_pass_over_nothing,
    copies_are_made_once,
    offsets_in_transactions_never_go_back,
    fenced_producers_commit_nothing,
    no_transaction_stays_open,
    transactions_survive_agents,
    transactions_go_on,
)
