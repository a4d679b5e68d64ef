"""External commits: segments that Spark wrote are appended to partitions atomically.

Owns        the types: freezes, commits, stored commits
Leaves      freezing and coordinating to `broker.external_commits`, the transaction to the metadata store

A query is the writer of commits, with an id of its own; its epochs count its commits and only increase.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType
from uuid import UUID, uuid5

from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId, TopicPartition
from streamhouse.model.pipeline import Fence
from streamhouse.model.segment import SegmentCommit
from streamhouse.model.tenant import qualified

QueryId = NewType("QueryId", str)

TENANTS: Final = UUID("6f4e1c52-27d1-4b6f-9d57-1f0a3a1f8f2b")
"""The name space of the queries of tenants."""


def query_of(tenant: str, query: str) -> QueryId:
    """The id under which commits of a query are stored. Users choose ids, or make them of names of jobs: those of two
    tenants never meet."""
    return QueryId(str(uuid5(TENANTS, qualified(tenant, query))) if tenant else query)


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
