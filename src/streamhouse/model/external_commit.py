"""Placing: segments that others wrote become part of partitions, all at once.

Owns        the nouns: what is held, what is asked to be placed, what is remembered of it
Leaves      holding and coordinating to `broker.external_commits`, the transaction to the metadata store

A query is whoever commits, known by an id of its own; its epochs count its commits and only grow.
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
    """What a leader is told about the commit that it held partitions for."""

    COMMITTED = "committed"
    UNUSED = "unused"  # it wasn't tried, or was refused for good
    UNSURE = "unsure"  # it may have happened, and may yet happen


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeTarget:
    """A partition to be held, and how many offsets it will be asked for."""

    name: TopicPartition
    partition: PartitionId
    offsets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeRequest:
    """Partitions of one leader to be held for one try of a commit."""

    hold_id: str
    query: QueryId
    epoch: int
    partitions: tuple[FreezeTarget, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPartition:
    """A partition whose leader appends nothing for a while: everything below `end` is flushed, nothing is above."""

    partition: PartitionId
    holder: SessionId
    epoch: Epoch
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRange:
    """Offsets [base, end) that a commit gave to a partition."""

    topic: str
    partition: PartitionId
    base: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCommit:
    """Segments to be placed: each run follows its partition's flushed end under its epoch and holder, or none is.

    `progress` is JSON text that the query wants to find again; `topics` are the names of the topics; with a
    `fence`, whoever commits must still own its pipeline. `covers` is what the commit is made of (`model.replay`).
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
    """What is remembered of a commit; `is_replayed`: it had happened before it was asked for this time."""

    query: QueryId
    epoch: int
    progress: str | None
    placed: tuple[CommittedRange, ...]
    covers: str | None = None
    is_replayed: bool = False
