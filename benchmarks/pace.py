"""Pace: when the next request is due, and what a set of waits looks like.

Data path   **pace** -> `latency`, `end_to_end`
Owns        the fixed rate and the percentiles
Leaves      sending to the measures

Waits are counted from the moment a request was due. A broker that stalls thereby pays for every request that it kept
from being sent, not only for the one that it was busy with.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.measure import Answer, Curve, Reading

RATE_PER_S: Final = 1000
CURVE_POINTS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Evenly spaced moments on the monotonic clock, beginning now."""

    seconds: float
    rate_per_s: int = RATE_PER_S

    def __iter__(self) -> Iterator[float]:
        began = time.perf_counter()
        for number in range(int(self.seconds * self.rate_per_s)):
            yield began + number / self.rate_per_s


def quantile(ascending: list[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


def distribution(scenario: str, waits_s: list[float]) -> Iterator[Answer]:
    ascending_ms = sorted(wait * 1e3 for wait in waits_s)
    for metric, share in (("p50", 0.50), ("p99", 0.99), ("p99.9", 0.999)):
        yield Reading(scenario=scenario, metric=metric, value=quantile(ascending_ms, share))
    points = [quantile(ascending_ms, point / CURVE_POINTS) for point in range(CURVE_POINTS)]
    yield Curve(scenario=scenario, quantiles_ms=[round(point, 4) for point in points])
