"""Trend: whether a series that was sampled for a while is flat, by one rule for all of them.

Owns        the rule; how much growth of each kind of series is allowed
Leaves      taking samples to `sampling`, what is drawn of it to `page`

The rule: what came before the warm-up was over is left out. The rest is cut into `BUCKETS` equal spans of time, each of
which counts as its median, so that a peak counts for little. The slope is Theil and Sen's, the median of the slopes
of all pairs. A series grows if both hold: its slope, over the whole judged time, comes to more than the allowance of
its kind (a share of its level, or a number, whichever is larger), and what is left of it, when the largest step from
one span to the next is taken out, still comes to half of that. The second half of the rule lets a series pass that
takes one step and stays there: a cache that was filled, a pool that got its last member.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median
from typing import Final, NamedTuple

BUCKETS: Final = 12
LEFT_SHARE: Final = 0.5
MIN_SAMPLES: Final = 2 * BUCKETS


class Sample(NamedTuple):
    at_s: float
    value: float


class Allowance(NamedTuple):
    """How much a series may grow in the judged time: a share of its median, or this much if that is more."""

    share: float
    least: float

    def of(self, level: float) -> float:
        return max(self.share * level, self.least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    level: float
    """The median of the judged samples."""
    growth: float
    """By the slope, over the judged time."""
    allowed: float
    without_step: float
    """The growth that is left without the largest step."""
    per_hour: float
    enough: bool = True
    """Whether there were enough samples to say anything."""

    @property
    def grows(self) -> bool:
        return self.enough and self.growth > self.allowed and self.without_step > self.allowed * LEFT_SHARE

    @property
    def is_flat(self) -> bool:
        return self.enough and not self.grows


def judge(samples: Sequence[Sample], *, since_s: float, allowance: Allowance) -> Verdict:
    """Judge the samples from `since_s` on."""
    judged = [each for each in samples if each.at_s >= since_s]
    if len(judged) < MIN_SAMPLES:
        return Verdict(level=0.0, growth=0.0, allowed=0.0, without_step=0.0, per_hour=0.0, enough=False)
    spans = _spans(judged)
    lasted_s, slope = judged[-1].at_s - judged[0].at_s, _slope(spans)
    level = median(each.value for each in judged)
    return Verdict(
        level=level,
        growth=slope * lasted_s,
        allowed=allowance.of(level),
        without_step=_slope(_without_step(spans)) * lasted_s,
        per_hour=slope * 3600,
    )


def _slope(spans: Sequence[Sample]) -> float:
    return median((b.value - a.value) / (b.at_s - a.at_s) for a, b in combinations(spans, 2))


def _without_step(spans: Sequence[Sample]) -> list[Sample]:
    """The spans, those behind the largest step lowered by it. One that falls into a span is seen on both its sides."""
    if len(spans) < 3:
        return list(spans)
    steps = [after.value - before.value for before, after in zip(spans, spans[2:], strict=False)]
    largest = max(steps)
    before = steps.index(largest)
    inside = spans[before + 1]._replace(value=spans[before].value)
    return [*spans[: before + 1], inside, *(each._replace(value=each.value - largest) for each in spans[before + 2 :])]


def _spans(judged: Sequence[Sample]) -> list[Sample]:
    """The medians of equal spans of time; a span without a sample is none."""
    first, last = judged[0].at_s, judged[-1].at_s
    width = (last - first) / BUCKETS
    spans = []
    for number in range(BUCKETS):
        inside = [each for each in judged if number == min(int((each.at_s - first) / width), BUCKETS - 1)]
        if inside:
            spans.append(Sample(median(each.at_s for each in inside), median(each.value for each in inside)))
    return spans
