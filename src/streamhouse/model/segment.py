"""Segments: immutable objects, and the runs of partitions inside them.

Owns        the types
Leaves      their bytes to `format.segment`, their rows to the metadata store, writing them to `session.flush`
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from streamhouse.model.names import Epoch, PartitionId
from streamhouse.model.transaction import AbortedTransaction


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedProducers:
    """The location of the producer snapshot for a run of an external commit, which has none of its own. `is_doubtful`:
    unreadable records lie between the two."""

    object_key: str
    position: int
    length: int
    is_doubtful: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One partition's byte range in a segment object: offsets [base, end), bytes [position, position + length).

    `index_position` and `index_length` locate the run's block index in the object, so that a reader with the row needs
    one ranged GET for it. Offsets in the object count from `stored_base`; readers shift them by `base - stored_base`,
    which is zero for runs that agents write. `carried` is only set for the newest run of a partition.
    """

    partition: PartitionId
    base: int
    end: int
    stored_base: int
    epoch: Epoch
    object_key: str
    position: int
    length: int
    index_position: int
    index_length: int
    records: int
    max_timestamp_ms: int
    carried: CarriedProducers | None = None

    def __str__(self) -> str:
        return f"{self.partition}[{self.base},{self.end})@{self.object_key}"


def where_snapshot_is(run: Run) -> Run:
    """The run with the location of its producer snapshot: a run of an external commit has that of an earlier run."""
    carried = run.carried
    if carried is None:
        return run
    return replace(
        run, object_key=carried.object_key, index_position=carried.position, index_length=carried.length, carried=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentObject:
    key: str
    size_bytes: int
    created_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCommit:
    """A segment object to register: all runs are appended, each at its partition's flushed end under its epoch, or
    none.

    `aborted` are the transactions whose abort markers are in the runs.
    """

    segment: SegmentObject
    runs: tuple[Run, ...]
    aborted: Mapping[PartitionId, tuple[AbortedTransaction, ...]] = field(default_factory=dict)

    def only(self, runs: Iterable[Run]) -> "SegmentCommit":
        """The commit restricted to these runs, with the transactions aborted in them."""
        remaining = tuple(runs)
        partitions = {run.partition for run in remaining}
        aborted = {partition: each for partition, each in self.aborted.items() if partition in partitions}
        return SegmentCommit(segment=self.segment, runs=remaining, aborted=aborted)
