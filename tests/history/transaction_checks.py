"""Transaction checks: what readers of committed records may see of a transaction, and who may commit.

Data path   history -> **transaction_checks** -> anomalies
Owns        aborted and early reads, torn transactions, commits of producers that were replaced
Leaves      how transactions depend on each other to `cycles`
"""

from collections import defaultdict
from collections.abc import Iterator

from .anomaly import Anomaly, Kind
from .events import Outcome, Write
from .index import Index


def readers_see_committed_records_only(index: Index) -> Iterator[Anomaly]:
    """A reader of committed records is given nothing of a transaction that was aborted, or that nobody had asked to
    commit by then; and what it was given is committed at the end."""
    for sight in index.sights():
        transaction = index.transaction_of(sight.item.value)
        if not sight.is_committed or transaction is None or transaction.is_given_up:
            continue
        text = f"{sight.who} was given {sight.item.value} of {transaction.label} ({transaction.outcome})"
        if not transaction.may_be_committed:
            yield Anomaly(kind=Kind.ABORTED_READ, text=text, at=sight.at)
        elif sight.at is not None and (transaction.commit_begun or 0.0) > sight.at:
            yield Anomaly(kind=Kind.PRECOMMITTED_READ, text=text, at=sight.at)
        elif _is_not_committed(index, sight.partition, sight.item.value or "", sight.item.offset):
            kind = Kind.LOST if transaction.outcome is Outcome.COMMITTED else Kind.ABORTED_READ
            yield Anomaly(kind=kind, text=f"{text}: it is not committed at the end", at=sight.at)


def _is_not_committed(index: Index, partition: str, value: str, offset: int) -> bool:
    if partition not in index.committed_logs or index.excuses(partition, offset):
        return False
    return offset not in index.offsets_of(value, partition, is_committed=True)


def transactions_are_whole(index: Index) -> Iterator[Anomaly]:
    """All records of a committed transaction are committed; of one in doubt, all or none."""
    by_transaction: dict[str, list[Write]] = defaultdict(list)
    for write in index.history.writes:
        is_known = write.partition in index.committed_logs and not index.excuses(write.partition, None)
        if write.transaction is not None and is_known:
            by_transaction[write.transaction].append(write)
    for label, writes in by_transaction.items():
        transaction = index.transactions[label]
        there = [each for each in writes if index.offsets_of(each.value, each.partition, is_committed=True)]
        if transaction.is_given_up or not transaction.may_be_committed or len(there) == len(writes):
            continue
        text = f"{len(there)} of {len(writes)} records of {label} ({transaction.outcome}) are committed"
        if transaction.outcome is Outcome.COMMITTED:
            yield Anomaly(kind=Kind.LOST, text=text, at=transaction.ended)
        elif there:
            yield Anomaly(kind=Kind.TORN, text=text, at=transaction.ended)


def replaced_producers_commit_nothing(index: Index) -> Iterator[Anomaly]:
    """Once another producer with its transactional id is ready, no commit that a producer asks for succeeds."""
    for each in index.history.transactions:
        if each.fenced is None or each.commit_begun is None or each.commit_begun < each.fenced:
            continue
        if each.outcome is Outcome.COMMITTED or each.label in index.seen_committed:
            yield Anomaly(kind=Kind.ZOMBIE_COMMIT, text=f"{each.label} ({each.outcome})", at=each.ended)
