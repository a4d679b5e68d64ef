"""Pace: when the next request is due.

Data path   **pace** -> `latency`, `end_to_end`
Owns        the fixed rate; quantiles of a short list
Leaves      sending to the measures, percentiles of many waits to `histogram`

Waits are counted from the moment a request was due. A broker that stalls thereby pays for every request that it kept
from being sent, not only for the one that it was busy with.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

RATE_PER_S: Final = 1000


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
