"""Histogram: waits in buckets that grow with them: a tail keeps three digits, a run of hours takes a few kilobytes.

Data path   the paced measures -> **histogram** -> `measure.Reading`, `measure.Curve`
Owns        the buckets: as in HdrHistogram, each power of two of microseconds has `STEPS` of them
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from benchmarks.measure import Answer, Curve, Reading

STEPS: Final = 1024
"""Buckets of a power of two: a value is known to a tenth of a percent."""
SHARES: Final = (("p50", 0.50), ("p99", 0.99), ("p99.9", 0.999))
CURVE_POINTS: Final = 1000


class Histogram:
    def __init__(self, waits_s: Iterable[float] = ()) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        for wait in waits_s:
            self.add(wait)

    def __repr__(self) -> str:
        return f"<Histogram count={self.count} buckets={len(self._buckets)}>"

    def add(self, wait_s: float) -> None:
        self._buckets[bucket_of(wait_s)] += 1
        self.count += 1

    def merge(self, other: "Histogram") -> None:
        self._buckets += other._buckets
        self.count += other.count

    def quantile_s(self, share: float) -> float:
        return next(self.quantiles_s([share]))

    def quantiles_s(self, ascending_shares: Iterable[float]) -> Iterator[float]:
        """For each share of the waits, the longest wait of a bucket that as many are in or below."""
        buckets = iter(sorted(self._buckets))
        seen, bucket = 0, 0
        for share in ascending_shares:
            rank = min(self.count - 1, int(share * self.count))
            while seen <= rank:
                bucket = next(buckets)
                seen += self._buckets[bucket]
            yield longest_s(bucket)

    def responses(self, scenario: str) -> Iterator[Answer]:
        """The percentiles and the curve of a measure."""
        if not self.count:
            raise ValueError(f"nothing was answered; scenario={scenario}")
        shares = [share for _, share in SHARES]
        for (metric, _), wait_s in zip(SHARES, self.quantiles_s(shares), strict=True):
            yield Reading(scenario=scenario, metric=metric, value=wait_s * 1e3)
        points = self.quantiles_s(point / CURVE_POINTS for point in range(CURVE_POINTS))
        yield Curve(scenario=scenario, quantiles_ms=[round(wait_s * 1e3, 4) for wait_s in points])


def bucket_of(wait_s: float) -> int:
    """The number of a wait's bucket; a longer wait never has a lower one."""
    units = max(0, int(wait_s * 1e6 * STEPS))  # a thousandth of a microsecond and a bit
    above = max(0, units.bit_length() - STEPS.bit_length())
    return above * STEPS + (units >> above)


def longest_s(bucket: int) -> float:
    """The end of a bucket, in seconds."""
    above = max(0, bucket // STEPS - 1)
    return float((bucket - above * STEPS + 1) << above) / STEPS / 1e6
