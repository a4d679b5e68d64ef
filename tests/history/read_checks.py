"""Read checks: what must hold of polls, and of readers that follow a log.

Data path   history -> **read_checks** -> anomalies
Owns        order within and between polls; records that a reader passed over or never came to
Leaves      what readers of committed records may see to `transaction_checks`
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from .anomaly import Anomaly, Kind
from .events import Item, Outcome, Reader, Transaction
from .index import Index


def polls_go_forward(index: Index) -> Iterator[Anomaly]:
    """Offsets grow within a poll, from where it began; for readers in order, also from poll to poll."""
    in_order = {reader.name for reader in index.history.readers if reader.in_order}
    last: dict[tuple[str, str], int] = {}
    for poll in index.history.polls:
        key = (poll.reader, poll.partition)
        least = max(poll.start, last.get(key, -1) + 1 if poll.reader in in_order else 0)
        yield from _growing(poll.items, least, f"{poll.reader} in {poll.partition}", poll.ended)
        if poll.items:
            last[key] = max(last.get(key, -1), poll.items[-1].offset)
    for log in index.history.logs:
        yield from _growing(log.items, 0, f"the log of {log.partition}", None)


def _growing(items: Iterable[Item], least: int, who: str, at: float | None) -> Iterator[Anomaly]:
    for offset, _ in items:
        if offset < least:
            text = f"{who}: offset {offset} came where at least {least} was due"
            yield Anomaly(kind=Kind.POLL_WENT_BACK, text=text, at=at)
        least = max(least, offset + 1)


def readers_see_everything(index: Index) -> Iterator[Anomaly]:
    """A reader passes over no record, and comes to the last acknowledged one."""
    read: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for poll in index.history.polls:
        read[poll.reader][poll.partition].update(item.offset for item in poll.items)
    for reader in index.history.readers:
        if reader.is_complete:
            logs = index.committed_logs if reader.is_committed else index.logs
            for partition, log in logs.items():
                if not reader.reads(partition):
                    continue
                items = [item for item in log.items if not index.excuses(partition, item.offset)]
                yield from _seen(index, reader, partition, items, read[reader.name][partition])


def _seen(index: Index, reader: Reader, partition: str, items: list[Item], seen: set[int]) -> Iterator[Anomaly]:
    highest = max(seen, default=-1)
    missing = [item for item in items if item.offset not in seen]
    passed = [item.offset for item in missing if item.offset < highest]
    if passed:
        text = f"{reader.name} never saw {len(passed)} records of {partition}, first {passed[0]}"
        yield Anomaly(kind=Kind.SKIPPED, text=text)
    left = [item.offset for item in missing if item.offset > highest and _is_promised(index, item)]
    if left and reader.comes_to_the_end:
        yield Anomaly(kind=Kind.UNSEEN, text=f"{reader.name} ended at {highest} of {partition}, before {left}")


def _is_promised(index: Index, item: Item) -> bool:
    """Whether somebody was told that it is there: a request that nobody waited for may be stored when readers are
    gone."""
    write, transaction = index.writes.get(item.value or ""), index.transaction_of(item.value)
    return write is not None and write.is_acked and (transaction is None or _counts(transaction))


def _counts(transaction: Transaction) -> bool:
    return transaction.outcome is Outcome.COMMITTED and not transaction.is_given_up
