"""Damaged ranges: ranges of partitions that can't be read, because their objects are damaged or missing.

Data path   reader, object check -> **damaged_ranges** -> errors of clients, log lines, metrics, the doctor
Owns        the ranges that are currently unreadable; the rate of log lines
Leaves      detection to `reader` and `maintenance.object_check`
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamhouse.clock import Clock
from streamhouse.config import FetchSettings
from streamhouse.errors import DamagedRecords, MissingRecords
from streamhouse.model.names import PartitionId

log = logging.getLogger(__name__)

LOG_EVERY_S: Final = 60.0
"""Interval of log lines about the same range."""


class RunLocation(NamedTuple):
    """Offsets [base, end) of a partition, in an object."""

    partition: PartitionId
    base: int
    end: int
    key: str


@dataclass(slots=True, kw_only=True)
class DamagedRange:
    """An unreadable range. `seen_at`: monotonic time of the last detection."""

    name: str
    location: RunLocation
    why: str
    is_missing: bool
    seen_at: float
    logged_at: float | None = None

    def error(self) -> DamagedRecords:
        kind = MissingRecords if self.is_missing else DamagedRecords
        return kind(self.name, base=self.location.base, end=self.location.end, key=self.location.key, why=self.why)


class DamagedRanges:
    """The newest unreadable ranges, up to `fetch.damage_remembered`."""

    def __init__(self, settings: FetchSettings, *, clock: Clock) -> None:
        self._recheck_s = settings.missing_recheck_s
        self._limit = settings.damage_remembered
        self._clock = clock
        self._ranges: OrderedDict[RunLocation, DamagedRange] = OrderedDict()
        self.name_of: Callable[[PartitionId], object] = str
        self.refused_missing = 0
        self.refused_damaged = 0

    def __repr__(self) -> str:
        return f"<DamagedRanges found={len(self._ranges)}>"

    def __len__(self) -> int:
        return len(self._ranges)

    @property
    def missing(self) -> int:
        return sum(finding.is_missing for finding in self._ranges.values())

    def findings(self) -> Sequence[DamagedRange]:
        return list(self._ranges.values())

    def report_missing(self, location: RunLocation) -> MissingRecords:
        """Note that a referenced object is missing; returns the error for the reader."""
        error = self._note(location, "the object is not there", is_missing=True).error()
        assert isinstance(error, MissingRecords)
        return error

    def report_damaged(self, location: RunLocation, why: str) -> DamagedRecords:
        """Note damaged bytes; returns the error for the reader."""
        return self._note(location, why, is_missing=False).error()

    def refused(self, error: DamagedRecords) -> None:
        """Count a read that failed with this error."""
        if isinstance(error, MissingRecords):
            self.refused_missing += 1
        else:
            self.refused_damaged += 1

    def recently_missing(self, location: RunLocation) -> MissingRecords | None:
        """The error for a range that was missing a moment ago, so that it isn't requested again."""
        known = self._ranges.get(location)
        if known is None or not known.is_missing or self._clock.monotonic() - known.seen_at >= self._recheck_s:
            return None
        error = known.error()
        assert isinstance(error, MissingRecords)
        return error

    def mark_present(self, location: RunLocation) -> None:
        """The object exists; it may still be damaged."""
        if (known := self._ranges.get(location)) is not None and known.is_missing:
            del self._ranges[location]

    def mark_readable(self, location: RunLocation) -> None:
        """The range was read, or is no longer referenced."""
        self._ranges.pop(location, None)

    def _note(self, location: RunLocation, why: str, *, is_missing: bool) -> DamagedRange:
        now = self._clock.monotonic()
        before = self._ranges.pop(location, None)
        finding = DamagedRange(
            name=str(self.name_of(location.partition)),
            location=location,
            why=why,
            is_missing=is_missing,
            seen_at=now,
            logged_at=before.logged_at if before is not None else None,
        )
        self._ranges[location] = finding
        if len(self._ranges) > self._limit:
            self._ranges.popitem(last=False)
        if finding.logged_at is None or now - finding.logged_at >= LOG_EVERY_S:
            finding.logged_at = now
            log.error(
                "records are missing from the object store" if is_missing else "records are damaged at rest",
                extra={
                    "partition": finding.name,
                    "offsets": f"[{location.base},{location.end})",
                    "key": location.key,
                    "why": why,
                },
            )
        return finding
