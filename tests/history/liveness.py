"""Liveness: what must happen at last, and how much must have happened for a pass to mean anything.

Data path   history -> **liveness** -> anomalies
Owns        clients without success, readers that stopped, an end that is never stable, runs that show nothing
Leaves      what must never happen to the other checks
"""

from collections import defaultdict
from collections.abc import Iterator

from .anomaly import Anomaly, Kind
from .events import Outcome, answered
from .index import Index


def records_are_answered(index: Index) -> Iterator[Anomaly]:
    """Everything that was sent is acknowledged or given up."""
    for write in index.history.writes:
        if write.ended is None and not write.may_wait:
            yield Anomaly(kind=Kind.UNANSWERED, text=f"{write.value} for {write.partition}", at=write.begun)


def clients_go_on(index: Index) -> Iterator[Anomaly]:
    """After the faults every producer that tries has success in every partition, and so has every transactional id."""
    healed_at = index.history.healed_at
    if healed_at is None:
        return
    had_success: dict[str, bool] = {}
    for write in index.history.writes:
        if write.begun > healed_at and not write.may_wait and write.transaction is None:
            key = f"{write.producer} in {write.partition}"
            had_success[key] = had_success.get(key, False) or write.is_acked
    for each in index.history.transactions:
        if each.begun > healed_at:
            key = each.transactional_id
            had_success[key] = had_success.get(key, False) or each.outcome is Outcome.COMMITTED
    for name in index.history.must_succeed:
        had_success.setdefault(name, False)
    for name, success in sorted(had_success.items()):
        if not success:
            yield Anomaly(kind=Kind.STARVED, text=f"{name} had no success after the faults")


def readers_read(index: Index) -> Iterator[Anomaly]:
    """A reader was given something if there was something, and does not stop."""
    history = index.history
    newest: dict[str, float] = defaultdict(lambda: -1.0)
    for poll in history.polls:
        if poll.items:
            newest[poll.reader] = max(newest[poll.reader], poll.ended)
    for reader in history.readers:
        acks = [answered(each.ended) for each in history.writes if each.is_acked and reader.reads(each.partition)]
        last_ack = max(acks, default=-1.0)
        if reader.must_read and acks and newest[reader.name] < 0:
            yield Anomaly(kind=Kind.NOTHING_READ, text=f"{reader.name}, of {len(acks)} acknowledged records")
        elif reader.reads_after_healing and newest[reader.name] < (history.healed_at or 0.0) < last_ack:
            text = f"{reader.name} read nothing after the faults; healed={history.healed_at}"
            yield Anomaly(kind=Kind.STOPPED_READER, text=text, at=newest[reader.name])


def the_end_is_stable(index: Index) -> Iterator[Anomaly]:
    """When all clients have ended, readers of committed records come to the end of every partition."""
    for seen in index.history.stable:
        if seen.last_stable < seen.high_watermark:
            text = f"{seen.partition}: {seen.last_stable} of {seen.high_watermark}"
            yield Anomaly(kind=Kind.STUCK_LSO, text=text)


def enough_happened(index: Index) -> Iterator[Anomaly]:
    """A run with few acknowledgements or faults is no pass."""
    history = index.history
    acks = sum(write.is_acked for write in history.writes)
    for name, count, least in (("acks", acks, history.min_acks), ("faults", history.faults, history.min_faults)):
        if count < least:
            yield Anomaly(kind=Kind.NO_EVIDENCE, text=f"{name}={count} needed={least}")
