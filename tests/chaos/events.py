"""Events: the history of a run, in the nouns that the checker of all runs knows.

Data path   history -> **events** -> tests.history
Owns        which of the nouns is which; what each client of a run is expected to do
Leaves      judging to `tests.history` and `checker`
"""

from collections.abc import Iterator
from typing import Final

from tests.history import events as shared
from tests.history.events import Item, Outcome

from .history import History, Log, Send
from .transactions import COMMITTED, COPIERS, COPIES, DEALS, Deal, View

RECORDS: Final = "records"
OUTCOMES: Final = {COMMITTED: Outcome.COMMITTED, "aborted": Outcome.REFUSED}


def events_of(history: History) -> shared.History:
    """The same history; values that stand in no log are told by what they were sent as."""
    it = history.transactional
    events = shared.History(
        healed_at=history.healed_at,
        min_acks=history.min_acks,
        min_faults=history.min_faults,
        faults=sum(fault.hits > 0 for fault in history.faults),
        must_succeed=sorted(_families(history)),
    )
    events.writes += [_write(history, send) for send in history.sends]
    events.polls += [
        _poll(f"group {each.group}", f"{RECORDS}/{each.partition}", each.offset, each.record, at=each.at)
        for each in history.consumed
    ]
    events.commits += _commits(history)
    events.committed += [
        shared.CommittedSeen(each.group, f"{RECORDS}/{each.partition}", each.offset, each.sent_at, each.answered_at)
        for each in history.observed
    ]
    for log in (history.log, history.log_again):
        events.logs += _log_reads(log)
    for committed, view in (
        (False, it.uncommitted),
        (True, it.committed),
        (False, it.uncommitted_again),
        (True, it.committed_again),
    ):
        events.logs += _view_reads(view, is_committed=committed)
    _transactions(events, history)
    events.readers += _readers(history)
    return events


def _families(history: History) -> set[str]:
    """A copier may have no partition just when the faults are over."""
    families = {deal.entries[0].family for deal in history.transactional.deals}
    return {family for family in families if not family.startswith("copier")}


# --- records without transactions -----------------------------------------------------------------------------------


def _write(history: History, send: Send) -> shared.Write:
    producer = send.record.producer
    return shared.Write(
        producer=producer,
        partition=f"{RECORDS}/{send.record.partition}",
        value=str(send.record),
        number=(send.record.number,),
        begun=send.sent_at,
        ended=send.answered_at,
        offset=send.offset,
        is_acked=send.acked,
        once=producer in history.idempotent,
        in_order=producer in history.idempotent,
        acks_in_order=producer not in history.unordered,
        may_wait=producer in history.stubborn,
    )


def _poll(
    reader: str, partition: str, offset: int, record: object, *, at: float, is_committed: bool = False
) -> shared.Poll:
    return shared.Poll(
        reader=reader,
        partition=partition,
        start=offset,
        end=offset + 1,
        items=[_item(offset, record)],
        begun=at,
        ended=at,
        is_committed=is_committed,
    )


def _item(offset: int, record: object) -> Item:
    return Item(offset, None if record is None else str(record))


def _commits(history: History) -> Iterator[shared.Commit]:
    outcomes = {True: Outcome.COMMITTED, False: Outcome.REFUSED, None: Outcome.UNKNOWN}
    for each in history.commits:
        yield shared.Commit(
            group=each.group,
            member=each.member,
            partition=f"{RECORDS}/{each.partition}",
            offset=each.offset,
            begun=each.sent_at,
            ended=each.answered_at,
            outcome=outcomes[each.accepted],
        )


def _log_reads(log: Log) -> Iterator[shared.LogRead]:
    for partition, records in log.items():
        items = [_item(each.offset, each.record) for each in records]
        yield shared.LogRead(partition=f"{RECORDS}/{partition}", items=items)


# --- transactions ---------------------------------------------------------------------------------------------------


def _view_reads(view: View, *, is_committed: bool) -> Iterator[shared.LogRead]:
    for topic, partitions in view.items():
        for partition, records in partitions.items():
            items = [_item(each.offset, each.entry) for each in records]
            yield shared.LogRead(partition=f"{topic}/{partition}", items=items, is_committed=is_committed)


def _transactions(events: shared.History, history: History) -> None:
    it = history.transactional
    inputs = {
        (partition, each.offset): str(each.entry)
        for partition, records in it.uncommitted.get(DEALS, {}).items()
        for each in records
    }
    for deal in it.deals:
        transaction = _transaction(deal)
        events.transactions.append(transaction)
        events.writes += _entries(deal, transaction.label)
        events.polls += _copied(deal, transaction.label, inputs)
        events.commits += _offsets(deal, transaction)
    for seen in it.seen:
        partition = f"{seen.topic}/{seen.partition}"
        events.polls.append(_poll(seen.reader, partition, seen.offset, seen.entry, at=seen.at, is_committed=True))
    for entry in it.told:
        partition = f"{DEALS}/{entry.partition}"
        events.committed.append(
            shared.CommittedSeen(COPIERS, partition, entry.offset, entry.sent_at, entry.answered_at)
        )
    for partition, waited_s in it.open_for_s.items():
        events.stable.append(shared.StableSeen(partition, 0 if waited_s is None else 1, 1))


def _transaction(deal: Deal) -> shared.Transaction:
    producer, number = deal.key
    return shared.Transaction(
        label=f"{deal.topic} {producer}/{number}",
        transactional_id=deal.entries[0].family,
        order=deal.entries[0].place[:2],
        begun=deal.begun_at,
        commit_begun=deal.requested_at,
        ended=deal.ended_at,
        outcome=OUTCOMES.get(deal.outcome, Outcome.UNKNOWN),
        fenced=deal.fenced_at,
        consumed=list(_consumed(deal)),
    )


def _consumed(deal: Deal) -> Iterator[shared.Range]:
    for partition, end in deal.offsets.items():
        offsets = [entry.source[1] for entry in deal.entries if entry.source[0] == partition]
        if offsets:
            yield shared.Range(COPIERS, f"{DEALS}/{partition}", min(offsets), end)


def _entries(deal: Deal, label: str) -> Iterator[shared.Write]:
    for entry in deal.entries:
        yield shared.Write(
            producer=entry.family,
            partition=f"{deal.topic}/{entry.partition}",
            value=str(entry),
            number=entry.place,
            begun=deal.begun_at,
            ended=deal.ended_at,
            is_acked=deal.outcome == COMMITTED,
            transaction=label,
            may_wait=True,
        )


def _copied(deal: Deal, label: str, inputs: dict[tuple[int, int], str]) -> Iterator[shared.Poll]:
    """What a copier had read before its transaction began."""
    for entry in deal.entries:
        record = inputs.get(entry.source)
        if record is not None:
            partition, offset = entry.source
            poll = _poll(deal.key[0], f"{DEALS}/{partition}", offset, record, at=deal.begun_at, is_committed=True)
            poll.transaction = label
            yield poll


def _offsets(deal: Deal, transaction: shared.Transaction) -> Iterator[shared.Commit]:
    if deal.requested_at is None:
        return
    for partition, offset in deal.offsets.items():
        yield shared.Commit(
            group=COPIERS,
            member=deal.key[0],
            partition=f"{DEALS}/{partition}",
            offset=offset,
            begun=deal.requested_at,
            ended=deal.ended_at,
            outcome=transaction.outcome,
        )


# --- readers ------------------------------------------------------------------------------------------------------


def _readers(history: History) -> Iterator[shared.Reader]:
    """Groups come to the end and read on after the faults. Readers of committed records begin at zero; who reads again
    and again has another name each time, and may be told to end anywhere."""
    groups = {each.group for each in history.commits} | {each.group for each in history.consumed} | set(history.groups)
    for group in sorted(groups):
        yield shared.Reader(name=f"group {group}", topics=(RECORDS,), reads_after_healing=group in history.groups)
    for name in sorted({each.reader for each in history.transactional.seen} | set(history.followers)):
        yield shared.Reader(
            name=name,
            topics=(DEALS, COPIES),
            comes_to_the_end=False,
            in_order=True,
            is_committed=True,
            reads_after_healing=name in history.followers,
        )
