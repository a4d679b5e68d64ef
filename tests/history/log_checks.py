"""Log checks: what must hold of records, offsets and acknowledgements.

Data path   history -> **log_checks** -> anomalies
Owns        lost, duplicate, reordered, phantom and inconsistent records
Leaves      transactions to `transaction_checks`, readers to `read_checks`
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from .anomaly import Anomaly, Kind
from .events import Item, LogRead, Write, answered
from .index import Index


def acknowledged_records_are_kept(index: Index) -> Iterator[Anomaly]:
    """Every acknowledged record stands where it was acknowledged, when the log is read at the end."""
    for write in index.history.writes:
        if not write.is_acked or write.partition not in index.logs or index.excuses(write.partition, write.offset):
            continue
        where = index.offsets_of(write.value, write.partition)
        text = f"{write.value} was acknowledged at {write.offset} of {write.partition}; it is at {where or 'no offset'}"
        if not where:
            yield Anomaly(kind=Kind.LOST, text=text, at=write.ended)
        elif write.offset is not None and write.offset not in where:
            kind = Kind.SPURIOUS_ZERO if write.offset <= 0 else Kind.DUPLICATE_NONZERO
            yield Anomaly(kind=kind, text=text, at=write.ended)


def what_was_read_is_kept(index: Index) -> Iterator[Anomaly]:
    """Whatever a reader was given is in the log at the end, at the same offset."""
    truth = {partition: {item.offset: item.value for item in log.items} for partition, log in index.logs.items()}
    for sight in index.sights():
        log = truth.get(sight.partition)
        offset = sight.item.offset
        if log is not None and offset not in log and not index.excuses(sight.partition, offset):
            text = f"{sight.who} was given {sight.item.value} at {sight.item.offset} of {sight.partition}: it is gone"
            yield Anomaly(kind=Kind.LOST, text=text, at=sight.at)


def offsets_hold_one_record(index: Index) -> Iterator[Anomaly]:
    """An offset is the same record for everybody, for ever."""
    first: dict[tuple[str, int], tuple[str | None, str]] = {}
    for log in (*index.logs.values(), *index.committed_logs.values()):
        for item in log.items:
            first.setdefault((log.partition, item.offset), (item.value, "the log at the end"))
    for write in index.history.writes:
        if write.is_acked and write.offset is not None and not index.excuses(write.partition, write.offset):
            yield from _one_record(first, write.partition, write.offset, write.value, "an acknowledgement", write.ended)
    for sight in index.sights():
        if not index.excuses(sight.partition, sight.item.offset):
            yield from _one_record(first, sight.partition, *sight.item, sight.who, sight.at)


def _one_record(
    first: dict[tuple[str, int], tuple[str | None, str]],
    partition: str,
    offset: int,
    value: str | None,
    who: str,
    at: float | None,
) -> Iterator[Anomaly]:
    known, by = first.setdefault((partition, offset), (value, who))
    if known != value:
        text = f"offset {offset} of {partition} is {known} by {by}, and {value} by {who}"
        yield Anomaly(kind=Kind.INCONSISTENT_OFFSETS, text=text, at=at)


def records_were_sent(index: Index) -> Iterator[Anomaly]:
    """Every record that is read was sent to that partition, and none of its bytes has changed."""
    seen: set[tuple[str, Item]] = set()
    for sight in index.sights():
        if (sight.partition, sight.item) in seen:
            continue
        seen.add((sight.partition, sight.item))
        where = f"{sight.partition} at {sight.item.offset}"
        if sight.item.value is None:
            yield Anomaly(kind=Kind.CORRUPT, text=f"{sight.who} was given unknown bytes in {where}", at=sight.at)
        elif (write := index.writes.get(sight.item.value)) is None or write.partition != sight.partition:
            yield Anomaly(kind=Kind.PHANTOM, text=f"{sight.item.value} in {where}: nobody sent it there", at=sight.at)


def records_are_stored_once(index: Index) -> Iterator[Anomaly]:
    """A record of an idempotent producer stands at one offset, whatever was retried, refused or lost on the way."""
    offsets: dict[str, set[int]] = defaultdict(set)
    for sight in index.sights():
        if sight.item.value is not None and not index.excuses(sight.partition, sight.item.offset):
            offsets[sight.item.value].add(sight.item.offset)
    for value, where in offsets.items():
        write = index.writes.get(value)
        if write is not None and write.once and len(where) > 1:
            yield Anomaly(kind=Kind.DUPLICATE, text=f"{value} stands at {sorted(where)} of {write.partition}")


def records_stand_in_order(index: Index) -> Iterator[Anomaly]:
    """Records of an idempotent producer stand in the order in which it sent them."""
    for partition, log in index.logs.items():
        last: dict[str, Write] = {}
        for item in log.items:
            write = index.writes.get(item.value or "")
            if write is None or not write.in_order:
                continue
            before = last.get(write.producer)
            if before is not None and write.number < before.number:
                text = f"{write.value} at {item.offset} of {partition} follows {before.value}"
                yield Anomaly(kind=Kind.REORDERED, text=text)
            else:
                last[write.producer] = write


def acknowledgements_are_in_order(index: Index) -> Iterator[Anomaly]:
    """Who has one request under way per partition is told offsets that grow."""
    last: dict[tuple[str, str], Write] = {}
    for write in sorted(index.history.writes, key=lambda each: each.number):
        if not write.is_acked or write.offset is None or not write.acks_in_order:
            continue
        before = last.get((write.producer, write.partition))
        if before is not None and (before.offset or 0) >= write.offset:
            text = f"{before.value} was acknowledged at {before.offset}, and {write.value} at {write.offset}"
            yield Anomaly(kind=Kind.REORDERED, text=text, at=write.ended)
        last[write.producer, write.partition] = write


def acknowledgements_follow_time(index: Index) -> Iterator[Anomaly]:
    """What is sent after an acknowledgement gets a higher offset, whoever sent either."""
    by_partition: dict[str, list[Write]] = defaultdict(list)
    for write in index.history.writes:
        if write.is_acked and write.offset is not None and not index.excuses(write.partition, write.offset):
            by_partition[write.partition].append(write)
    for writes in by_partition.values():
        acks = sorted(writes, key=lambda each: answered(each.ended))
        following, highest = 0, -1
        for write in sorted(writes, key=lambda each: each.begun):
            while following < len(acks) and answered(acks[following].ended) < write.begun:
                highest = max(highest, acks[following].offset or 0)
                following += 1
            if (write.offset or 0) < highest:
                text = f"{write.value} was acknowledged at {write.offset}; {highest} had been before it was sent"
                yield Anomaly(kind=Kind.REORDERED, text=text, at=write.ended)


def a_log_stays_as_it_was(index: Index) -> Iterator[Anomaly]:
    """Read again, by agents that were just started, a log has grown at most by what nobody had answered."""
    by_log: dict[tuple[str, bool], list[LogRead]] = defaultdict(list)
    for log in index.history.logs:
        by_log[log.partition, log.is_committed].append(log)
    for readings in by_log.values():
        for before, after in pairwise(readings):
            yield from _same(index, before, after)


def _same(index: Index, before: LogRead, after: LogRead) -> Iterator[Anomaly]:
    known = {item.offset for item in before.items}
    there = {item.offset for item in after.items}
    end = max(known, default=-1) + 1
    for offset in sorted(known - there):
        if not index.excuses(before.partition, offset) and after is not index.log(
            after.partition, is_committed=after.is_committed
        ):
            yield Anomaly(kind=Kind.LOST, text=f"offset {offset} of {before.partition} is gone in the next reading")
    for item in after.items:
        write = index.writes.get(item.value or "")
        is_news = item.offset >= end and (write is None or not write.is_acked)
        if item.offset not in known and not is_news:
            text = f"offset {item.offset} of {before.partition} was nothing, then {item.value}"
            yield Anomaly(kind=Kind.CHANGED_LOG, text=text)
