"""Group lag: how far consumer groups are behind, in records and in time, its history, and what it says.

Owns        samples and their history; which partitions stand still; the health of a group, and its trend
Leaves      measuring to `broker.forwarding.group_lag`, rows to the metadata store

The lag in time of a partition is the age of its first record that is not committed yet: 0 where all are committed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from streamhouse.errors import StreamhouseError
from streamhouse.model.group import CommittedOffset
from streamhouse.model.names import TopicPartition

FINE_MS: Final = 3_600_000
"""Age up to which a history has every sample."""

COARSE_MS: Final = 300_000
"""What is older has one sample in each of these."""

KEPT_MS: Final = 86_400_000
"""Age up to which a history has samples."""

STUCK_MS: Final = 60_000
"""How long a committed offset may stay the same while records wait, before the partition counts as stuck."""

TREND_MS: Final = 600_000
"""How far back a trend looks."""

TREND_RATIO: Final = 0.1
"""Change of the lag, as a part of it, from which it grows or shrinks."""

MAX_WAITING: Final = 1000
"""Partitions of a group whose progress is remembered."""


class GroupHealth(StrEnum):
    CAUGHT_UP = "caught up"
    SHRINKING = "shrinking"
    STEADY = "steady"
    GROWING = "growing"
    STUCK = "stuck"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


class LagSample(NamedTuple):
    """The lag of a group at a time: of all its partitions in records, of the latest one in time; `lag_ms` is None if
    no partition's was known."""

    at_ms: int
    records: int
    lag_ms: int | None


class WaitingPartition(NamedTuple):
    """A partition with records that are not committed, and since when its committed offset is the same."""

    name: TopicPartition
    committed: int
    since_ms: int


class LagHistory(NamedTuple):
    """What is kept of a group's lag: samples by time, and the partitions that waited at the last one."""

    group_id: str
    samples: tuple[LagSample, ...] = ()
    waiting: tuple[WaitingPartition, ...] = ()

    def health(self, *, has_members: bool) -> GroupHealth:
        """What the last sample says."""
        if not self.samples:
            return GroupHealth.UNKNOWN
        at_ms = self.samples[-1].at_ms
        is_stuck = any(at_ms - each.since_ms >= STUCK_MS for each in self.waiting)
        return group_health(self.samples, has_members=has_members, is_stuck=is_stuck)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The position of a group in a partition.

    `end` and `lag` are None, and `error` says why, if the partition's end is unknown. `lag_ms` is also None where the
    first record that is not committed can't be read, or has no timestamp. `since_ms` is the time since when the
    committed offset is the same while records wait; None without any.
    """

    name: TopicPartition
    committed: CommittedOffset | None
    end: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    since_ms: int | None = None
    member_id: str | None = None
    error: StreamhouseError | None = None

    def is_stuck(self, now_ms: int) -> bool:
        return self.since_ms is not None and now_ms - self.since_ms >= STUCK_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """The lag of a group in all partitions that it reads, at a time."""

    group_id: str
    at_ms: int
    has_members: bool
    partitions: Sequence[PartitionLag]
    samples: Sequence[LagSample]

    @property
    def sample(self) -> LagSample:
        times = [each.lag_ms for each in self.partitions if each.lag_ms is not None]
        return LagSample(self.at_ms, sum(each.lag or 0 for each in self.partitions), max(times, default=None))

    @property
    def health(self) -> GroupHealth:
        if any(each.lag is None for each in self.partitions):
            return GroupHealth.UNKNOWN
        is_stuck = any(each.is_stuck(self.at_ms) for each in self.partitions)
        return group_health((*self.samples, self.sample), has_members=self.has_members, is_stuck=is_stuck)

    @property
    def history(self) -> LagHistory:
        """The history with this lag as its last sample."""
        waiting = [
            WaitingPartition(each.name, _committed_offset(each.committed), each.since_ms)
            for each in self.partitions
            if each.since_ms is not None
        ]
        return LagHistory(self.group_id, with_sample(self.samples, self.sample), tuple(waiting[:MAX_WAITING]))


def since_ms(
    lag: int, committed: CommittedOffset | None, waiting: WaitingPartition | None, *, now_ms: int
) -> int | None:
    """Since when a partition's committed offset is the same while records wait for it, as far as was measured."""
    if not lag:
        return None
    if waiting is not None and waiting.committed == _committed_offset(committed):
        return waiting.since_ms
    return now_ms if committed is None or committed.committed_at_ms < 0 else min(committed.committed_at_ms, now_ms)


def _committed_offset(committed: CommittedOffset | None) -> int:
    return -1 if committed is None else committed.offset


def with_sample(samples: Iterable[LagSample], sample: LagSample) -> tuple[LagSample, ...]:
    """The history with a further sample; of older times it has the one with the most records of each period."""
    kept: dict[int, LagSample] = {}
    for each in (*samples, sample):
        age_ms = sample.at_ms - each.at_ms
        if not 0 <= age_ms <= KEPT_MS:
            continue  # older than is kept, or from a clock that was ahead
        period = each.at_ms if age_ms <= FINE_MS else -(each.at_ms // COARSE_MS)
        known = kept.get(period)
        if known is None or each.records >= known.records:
            kept[period] = each
    return tuple(sorted(kept.values()))


def is_flat(samples: Sequence[LagSample], sample: LagSample) -> bool:
    """Whether the sample repeats that nothing waits, which needs no further row."""
    return bool(samples) and samples[-1][1:] == (0, 0) == sample[1:]


def records_per_s(samples: Sequence[LagSample]) -> float | None:
    """How quickly the lag changes, lately; negative while the group catches up; None without two samples."""
    recent = _recent(samples)
    if len(recent) < 2:
        return None
    first, last = recent[0], recent[-1]
    return (last.records - first.records) * 1000 / max(last.at_ms - first.at_ms, 1)


def group_health(samples: Sequence[LagSample], *, has_members: bool, is_stuck: bool) -> GroupHealth:
    """What the last sample and those before it say."""
    if not samples[-1].records:
        return GroupHealth.CAUGHT_UP
    if is_stuck:
        return GroupHealth.STUCK if has_members else GroupHealth.STOPPED
    recent = _recent(samples)
    before, now = recent[0].records, recent[-1].records
    if now > before * (1 + TREND_RATIO):
        return GroupHealth.GROWING
    return GroupHealth.SHRINKING if now < before * (1 - TREND_RATIO) else GroupHealth.STEADY


def _recent(samples: Sequence[LagSample]) -> Sequence[LagSample]:
    return [each for each in samples if samples[-1].at_ms - each.at_ms <= TREND_MS]
