"""Loss report: the parts of a session's write-ahead log that a recovery could not read, as JSON for operators.

Data path   recovery of a damaged log -> **encode** -> stored with the log -> **decode** -> doctor, commands
Owns        the fields, both directions; described in `docs/formats/wal.md`
Leaves      storing reports to `broker.wal`
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLoss:
    """Offsets of one partition: `gaps` had records that are lost; `skipped` may have had records, so the partition
    continues above them; `unpublished` are in this log and in no segment."""

    topic_id: str
    partition: int
    epoch: int
    gaps: Sequence[tuple[int, int]] = ()
    skipped: Sequence[tuple[int, int]] = ()
    unpublished: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReport:
    session: str
    kind: str
    found_by: str
    found_at_ms: int
    losses: int
    """Number of damaged ranges that may have contained acknowledged entries; 0 if only the end was torn, as by a power
    cut."""
    missing: int = 0
    skipped: int = 0
    cut: int = 0
    unreadable_bytes: int = 0
    places: Sequence[str] = ()
    partitions: Sequence[PartitionLoss] = ()

    @property
    def is_loss(self) -> bool:
        return bool(self.losses or self.partitions)


def encode_report(report: LossReport) -> bytes:
    return json.dumps({"version": VERSION, **asdict(report)}, indent=1).encode()


def decode_report(data: bytes) -> LossReport | None:
    """Decode a report; None for other bytes, or a later version."""
    try:
        fields: Any = json.loads(data)
        if fields.pop("version") != VERSION:
            return None
        partitions = [_partition(each) for each in fields.pop("partitions")]
        return LossReport(**fields, partitions=partitions)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _partition(fields: dict[str, Any]) -> PartitionLoss:
    ranges = {name: [(first, end) for first, end in fields.pop(name)] for name in ("gaps", "skipped", "unpublished")}
    return PartitionLoss(**{**fields, **ranges})
