"""Figures: rates, latencies and pauses of a run, which no promise names and everybody asks for.

Data path   history -> **figures** -> report, summary
Owns        what a pause is, and which fault it belongs to
Leaves      judging to `checker`, drawing to `timeline` and `report`
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from .faults import CONNECTIONS, RESTART
from .history import Fault, History, Leader

PAUSE_S: Final = 0.5  # without an acknowledgement, in a partition that gets tens a second
AFTERMATH_S: Final = 1.0  # beyond its end, and beyond the lease: what a fault may still be the cause of


class Pause(NamedTuple):
    partition: int
    begun_at: float
    ended_at: float

    @property
    def seconds(self) -> float:
        return self.ended_at - self.begun_at


class Second(NamedTuple):
    """What was acknowledged in one slice of time."""

    at: float
    acks: int
    median_s: float
    high_s: float
    """of one in a hundred"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one fault did to acknowledgements, in the partitions that it could touch."""

    fault: Fault
    touched: int
    pause_s: float
    """the longest, from the fault or the last ack on; 0 when there was none worth the name"""
    alone: bool
    """whether no other fault was near"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfFault:
    """All faults of a kind. Pauses are those of faults that came alone, unless none did."""

    kind: str
    count: int
    alone: int
    median_s: float
    worst_s: float
    hits: int = 0


def pauses(history: History) -> list[Pause]:
    """Times without an acknowledgement, by partition, while producers were at work."""
    results = []
    for partition, times in sorted(_ack_times(history).items()):
        results += [Pause(partition, before, after) for before, after in pairwise(times) if after - before >= PAUSE_S]
    return results


def _ack_times(history: History) -> dict[int, list[float]]:
    times: dict[int, list[float]] = defaultdict(list)
    for send in history.sends:
        if send.acked and send.answered_at is not None:
            times[send.record.partition].append(send.answered_at)
    return {partition: sorted(each) for partition, each in times.items()}


def effects(history: History) -> list[Effect]:
    """Of every fault, in the order of their beginning."""
    result = pauses(history)
    return [_effect(fault, history, result) for fault in sorted(history.faults, key=lambda each: each.begun_at)]


def _effect(fault: Fault, history: History, result: Sequence[Pause]) -> Effect:
    begun, ended = window(fault, history.lease_ttl_s)
    touched = _touched(fault, history)
    lengths = [
        each.ended_at - max(each.begun_at, begun)
        for each in result
        if each.partition in touched and each.begun_at < ended and each.ended_at > begun
    ]
    near = [
        other
        for other in history.faults
        if other is not fault and _overlap(window(other, history.lease_ttl_s), (begun, ended))
    ]
    return Effect(fault=fault, touched=len(touched), pause_s=max(lengths, default=0.0), alone=not near)


def window(fault: Fault, lease_ttl_s: float) -> tuple[float, float]:
    """From its beginning to when nothing of it should be felt any more."""
    return fault.begun_at, max(fault.ended_at or 0.0, fault.begun_at + lease_ttl_s) + AFTERMATH_S


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _touched(fault: Fault, history: History) -> set[int]:
    """The partitions that its targets led when it began; all of them when it was done to everybody."""
    everybody = fault.kind == RESTART or (fault.kind in CONNECTIONS and len(fault.targets) > 1)
    if everybody or fault.kind.startswith("agent"):
        return set(range(history.partitions))
    return {part for part, leader in leaders_at(history, fault.begun_at).items() if leader.agent in fault.targets}


def leaders_at(history: History, at: float) -> dict[int, Leader]:
    results: dict[int, Leader] = {}
    for leader in history.leaders:
        if leader.at <= at:
            results[leader.partition] = leader
    return results


def by_kind(result: Sequence[Effect]) -> list[KindOfFault]:
    """Of faults that touched somebody; most frequent first."""
    kinds: dict[str, list[Effect]] = defaultdict(list)
    for effect in result:
        kinds[kind_of(effect.fault)].append(effect)
    return [_kind(kind, each) for kind, each in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))]


def kind_of(fault: Fault) -> str:
    return f"{fault.kind}, all" if fault.kind in CONNECTIONS and len(fault.targets) > 1 else fault.kind


def _kind(kind: str, result: Sequence[Effect]) -> KindOfFault:
    felt = [effect for effect in result if effect.touched] or list(result)
    alone = [effect for effect in felt if effect.alone]
    lengths = sorted(effect.pause_s for effect in alone or felt)
    return KindOfFault(
        kind=kind,
        count=len(result),
        alone=len(alone),
        median_s=quantile(lengths, 0.5),
        worst_s=lengths[-1],
        hits=sum(effect.fault.hits for effect in result),
    )


def seconds(history: History, slice_s: float = 1.0) -> Iterator[Second]:
    """Acknowledgements over time; latency is that of records acknowledged then."""
    acks = sorted(
        (send.answered_at or 0.0, (send.answered_at or 0.0) - send.sent_at) for send in history.sends if send.acked
    )
    times = [at for at, _ in acks]
    at = 0.0
    while times and at < times[-1]:
        some = sorted(latency for _, latency in acks[bisect_left(times, at) : bisect_right(times, at + slice_s)])
        yield Second(at, len(some), quantile(some, 0.5), quantile(some, 0.99))
        at += slice_s


def latencies(history: History) -> list[float]:
    return sorted((send.answered_at or 0.0) - send.sent_at for send in history.sends if send.acked)


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


class Totals(NamedTuple):
    sent: int
    acked: int
    refused: int
    stored: int
    consumed: int
    commits: int
    commits_accepted: int
    observed: int


def totals(history: History) -> Totals:
    return Totals(
        sent=len(history.sends),
        acked=sum(send.acked for send in history.sends),
        refused=sum(bool(send.error) for send in history.sends),
        stored=sum(map(len, history.log.values())),
        consumed=len(history.consumed),
        commits=len(history.commits),
        commits_accepted=sum(bool(commit.accepted) for commit in history.commits),
        observed=len(history.observed),
    )


def summary_lines(history: History) -> Iterator[str]:
    every, waits = totals(history), latencies(history)
    yield " ".join(f"{name}={value}" for name, value in every._asdict().items())
    yield f"latency of acks: median {quantile(waits, 0.5):.3f} s, p99 {quantile(waits, 0.99):.3f} s"
    counted = Counter(leader.partition for leader in history.leaders)
    yield f"changes of leaders: {sum(counted.values()) - len(counted)}"
    for kind in by_kind(effects(history)):
        yield (
            f"{kind.kind}: {kind.count} ({kind.alone} alone), felt {kind.hits} times, "
            f"pause median {kind.median_s:.2f} s, worst {kind.worst_s:.2f} s"
        )
