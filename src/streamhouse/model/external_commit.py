"""External commits: segments that Spark wrote are appended to partitions atomically.

Owns        the types: freezes, commits, stored commits
Leaves      freezing and coordinating to `broker.external_commits`, the transaction to the metadata store

A query is the writer of commits, with an id of its own; its epochs count its commits and only increase.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId, TopicPartition
from streamhouse.model.pipeline import Fence
from streamhouse.model.segment import SegmentCommit

QueryId = NewType("QueryId", str)


class Outcome(StrEnum):
    """The outcome of a commit, for the leaders that froze partitions for it."""

    COMMITTED = "committed"
    UNUSED = "unused"  # not attempted, or rejected for good
    UNSURE = "unsure"  # it may have been applied, or may be applied later


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeTarget:
    """A partition to freeze, and the number of offsets that the commit needs."""

    name: TopicPartition
    partition: PartitionId
    offsets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeRequest:
    """Partitions of one leader to freeze for one attempt of a commit."""

    hold_id: str
    query: QueryId
    epoch: int
    partitions: tuple[FreezeTarget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPartition:
    """A frozen partition: its log ends at `end`, and everything is flushed."""

    partition: PartitionId
    holder: SessionId
    epoch: Epoch
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRange:
    """Offsets [base, end) that a commit assigned in a partition."""

    topic: str
    partition: PartitionId
    base: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCommit:
    """Segments to commit. All runs are appended, each at its partition's flushed end under its epoch and holder, or
    none.

    `progress` is JSON text that is stored for the query; `topics` are the names of the topics; with a `fence`, the
    committer must still own the pipeline. `covers` is the input of the commit (`model.replay`).
    """

    query: QueryId
    epoch: int
    progress: str | None
    holders: Mapping[PartitionId, SessionId]
    topics: Mapping[TopicId, str]
    commits: tuple[SegmentCommit, ...]
    fence: Fence | None = None
    covers: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCommit:
    """A stored commit; `is_replayed`: it was applied by an earlier request."""

    query: QueryId
    epoch: int
    progress: str | None
    placed: tuple[CommittedRange, ...]
    covers: str | None = None
    is_replayed: bool = False
