"""Consumer group lag in records and in time, its history, and the health that follows from it.

Owns        samples and their history, stuck partitions, the health and trend of a group
Leaves      measuring to `broker.forwarding.group_lag`, rows to the metadata store

The lag in time of a partition is the age of its first uncommitted record, 0 if there is none.
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
"""Older parts of a history have one sample per period of this length."""

KEPT_MS: Final = 86_400_000
"""Age up to which a history has samples."""

STUCK_MS: Final = 60_000
"""A partition with unread records is stuck if its committed offset hasn't changed for this long."""

TREND_MS: Final = 600_000
"""The period over which a trend is computed."""

TREND_RATIO: Final = 0.1
"""Relative change from which the lag counts as growing or shrinking."""

BETWEEN_COMMITS_MS: Final = 30_000
"""A group that is less behind has a lag that rises and falls with its commits: it is steady."""

MAX_WAITING: Final = 1000
"""Maximum number of partitions per group whose progress is remembered."""


class GroupHealth(StrEnum):
    CAUGHT_UP = "caught up"
    SHRINKING = "shrinking"
    STEADY = "steady"
    GROWING = "growing"
    STUCK = "stuck"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


class LagSample(NamedTuple):
    """A group's lag at a time: the sum over its partitions in records, the maximum in time; `lag_ms` is None if no
    partition's was known."""

    at_ms: int
    records: int
    lag_ms: int | None


class WaitingPartition(NamedTuple):
    """A partition with uncommitted records, and the time since when its committed offset is unchanged."""

    name: TopicPartition
    committed: int
    since_ms: int


class LagHistory(NamedTuple):
    """The stored history of a group's lag: samples by time, and the partitions with uncommitted records at the last
    one."""

    group_id: str
    samples: tuple[LagSample, ...] = ()
    waiting: tuple[WaitingPartition, ...] = ()

    def health(self, *, has_members: bool) -> GroupHealth:
        """The health as of the last sample."""
        if not self.samples:
            return GroupHealth.UNKNOWN
        at_ms = self.samples[-1].at_ms
        is_stuck = any(at_ms - each.since_ms >= STUCK_MS for each in self.waiting)
        return group_health(self.samples, has_members=has_members, is_stuck=is_stuck)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The position of a group in a partition.

    If the partition's end is unknown, `end` and `lag` are None and `error` has the reason. `lag_ms` is also None if the
    first uncommitted record can't be read or has no timestamp. `since_ms` is the time since when the committed offset
    is unchanged; None without uncommitted records.
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
    """The time since when the committed offset of a partition with uncommitted records is unchanged, as far as
    measured."""
    if not lag:
        return None
    if waiting is not None and waiting.committed == _committed_offset(committed):
        return waiting.since_ms
    return now_ms if committed is None or committed.committed_at_ms < 0 else min(committed.committed_at_ms, now_ms)


def _committed_offset(committed: CommittedOffset | None) -> int:
    return -1 if committed is None else committed.offset


def with_sample(samples: Iterable[LagSample], sample: LagSample) -> tuple[LagSample, ...]:
    """Append a sample; of each older period only the sample with the largest lag is kept."""
    kept: dict[int, LagSample] = {}
    for each in (*samples, sample):
        age_ms = sample.at_ms - each.at_ms
        if not 0 <= age_ms <= KEPT_MS:
            continue  # expired, or from a clock that was ahead
        period = each.at_ms if age_ms <= FINE_MS else -(each.at_ms // COARSE_MS)
        known = kept.get(period)
        if known is None or each.records >= known.records:
            kept[period] = each
    return tuple(sorted(kept.values()))


def thinned(samples: Sequence[LagSample], most: int) -> Sequence[LagSample]:
    """At most `most` samples: the largest of each part of the history, and the last one."""
    if len(samples) <= most or not most:
        return samples if most else ()
    step = -(-(len(samples) - 1) // (most - 1)) if most > 1 else len(samples)
    parts = (samples[start : min(start + step, len(samples) - 1)] for start in range(0, len(samples) - 1, step))
    largest = (max(part, key=lambda each: each.records) for part in parts) if most > 1 else ()
    return (*largest, samples[-1])


def is_flat(samples: Sequence[LagSample], sample: LagSample) -> bool:
    """Whether the lag is zero again, as in the sample before: then it is not stored."""
    return bool(samples) and samples[-1][1:] == (0, 0) == sample[1:]


def records_per_s(samples: Sequence[LagSample]) -> float | None:
    """The recent rate of change of the lag; negative while the group catches up; None with fewer than two samples."""
    recent = _recent(samples)
    if len(recent) < 2:
        return None
    first, last = recent[0], recent[-1]
    return (last.records - first.records) * 1000 / max(last.at_ms - first.at_ms, 1)


def group_health(samples: Sequence[LagSample], *, has_members: bool, is_stuck: bool) -> GroupHealth:
    """Derive the health from the samples."""
    if not samples[-1].records:
        return GroupHealth.CAUGHT_UP
    if is_stuck:
        return GroupHealth.STUCK if has_members else GroupHealth.STOPPED
    behind_ms = samples[-1].lag_ms
    if behind_ms is not None and behind_ms < BETWEEN_COMMITS_MS:
        return GroupHealth.STEADY
    recent = _recent(samples)
    before, now = recent[0].records, recent[-1].records
    if now > before * (1 + TREND_RATIO):
        return GroupHealth.GROWING
    return GroupHealth.SHRINKING if now < before * (1 - TREND_RATIO) else GroupHealth.STEADY


def _recent(samples: Sequence[LagSample]) -> Sequence[LagSample]:
    return [each for each in samples if samples[-1].at_ms - each.at_ms <= TREND_MS]
