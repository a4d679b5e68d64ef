"""Commit guards: which segments, replacements and group commits are valid, decided from what one transaction read.

Owns        holder, epoch and next offset of every run, and recognising a repeated commit; which runs may replace others
            (same partition, offsets and epochs); holder, epoch and order of the commits of a group shard
Leaves      reading the state and writing the result, in one transaction, to `procedures`
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from streamhouse.errors import Internal, LeaseLost
from streamhouse.model.cluster import PartitionState
from streamhouse.model.group import ShardCommit
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.segment import Run, SegmentCommit


class LastCommit(NamedTuple):
    """The last commit of a shard. Later ones compare greater."""

    epoch: int
    sequence: int


def decide_group_commits(
    commits: Sequence[ShardCommit],
    *,
    holder: SessionId,
    is_live: bool,
    states: Mapping[PartitionId, PartitionState],
    last: Mapping[PartitionId, LastCommit],
) -> list[ShardCommit]:
    """The commits to apply, without repeated ones. Raises `LeaseLost` with the shards whose guard failed."""
    shards = [commit.shard for commit in commits]
    if len(set(shards)) != len(shards):
        raise Internal(f"a shard is named twice in one commit; shards={','.join(map(str, shards))}")
    fresh = [commit for commit in commits if last.get(commit.shard) != (commit.epoch, commit.sequence)]
    failed = [
        commit.shard
        for commit in fresh
        if not (is_live and _is_leased(commit, holder, states) and _is_next(commit, last.get(commit.shard)))
    ]
    if failed:
        why = "epoch, holder or order of commits differs" if is_live else "session is not live"
        raise LeaseLost(failed, why=why)
    return fresh


def _is_leased(commit: ShardCommit, holder: SessionId, states: Mapping[PartitionId, PartitionState]) -> bool:
    state = states.get(commit.shard)
    return state is not None and state.holder == holder and state.epoch == commit.epoch


def _is_next(commit: ShardCommit, last: LastCommit | None) -> bool:
    return last is None or last < (commit.epoch, commit.sequence)


class Offsets(NamedTuple):
    """A stored run of an object."""

    partition: PartitionId
    base: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """One partition's flushed end, before and after."""

    state: PartitionState
    flushed_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The effect of a commit: new objects, and the new flushed end of each partition."""

    commits: tuple[SegmentCommit, ...]
    advances: tuple[Advance, ...]


def check_shape(commits: Sequence[SegmentCommit]) -> None:
    """Raise `Internal` for invalid commits: objects without runs or named twice, empty or foreign runs."""
    keys = [commit.segment.key for commit in commits]
    if len(set(keys)) != len(keys):
        raise Internal(f"an object is committed twice in one call; keys={','.join(keys)}")
    for commit in commits:
        if not commit.runs:
            raise Internal(f"an object without runs could never be deleted; key={commit.segment.key}")
        for run in commit.runs:
            if run.object_key != commit.segment.key or not 0 <= run.base < run.end:
                raise Internal(f"a run does not fit its object; run={run} key={commit.segment.key}")


def decide_publication(
    commits: Sequence[SegmentCommit],
    *,
    holders: Mapping[PartitionId, SessionId],
    may_publish: bool,
    states: Mapping[PartitionId, PartitionState],
    published: Mapping[str, frozenset[Offsets]],
) -> Publication:
    """What to write, or `LeaseLost` naming exactly the partitions whose guard failed.

    `holders` are the sessions that must hold the leases; a partition without one fails. `published` has the keys that
    the store knows already, with the runs they still have.
    """
    fresh = tuple(commit for commit in commits if commit.segment.key not in published)
    repeated = [run for commit in commits if commit.segment.key in published for run in commit.runs]
    failed = [run.partition for run in repeated if not _was_published(run, states, published[run.object_key])]
    ends, refused = _chain((run for commit in fresh for run in commit.runs), holders, states)
    failed += refused if may_publish else [run.partition for commit in fresh for run in commit.runs]
    if failed:
        why = "epoch, holder or expected offset differs" if may_publish else "session is not live"
        raise LeaseLost(dict.fromkeys(failed), why=why)
    advances = tuple(Advance(state=states[partition], flushed_end=end) for partition, end in ends.items())
    return Publication(commits=fresh, advances=advances)


def _was_published(run: Run, states: Mapping[PartitionId, PartitionState], known: frozenset[Offsets]) -> bool:
    """Whether this run was part of the commit of its object: its row exists, or was deleted since."""
    state = states.get(run.partition)
    return state is None or Offsets(run.partition, run.base, run.end) in known or run.end <= state.log_start


def _chain(
    runs: Iterable[Run], holders: Mapping[PartitionId, SessionId], states: Mapping[PartitionId, PartitionState]
) -> tuple[dict[PartitionId, int], list[PartitionId]]:
    """Follow each partition's runs from its flushed end, in offset order."""
    ends: dict[PartitionId, int] = {}
    failed: dict[PartitionId, None] = {}
    for run in sorted(runs, key=lambda run: run.base):
        state = states.get(run.partition)
        if (
            state is None
            or state.holder is None
            or state.holder != holders.get(run.partition)
            or state.epoch != run.epoch
            or run.base != ends.get(run.partition, state.flushed_end)
        ):
            failed[run.partition] = None
        else:
            ends[run.partition] = run.end
    return ends, list(failed)


def check_replacement(expected: Sequence[Run], commit: SegmentCommit) -> None:
    """Raise `Internal` unless the new runs cover exactly the offsets of the old ones, each offset under its epoch.
    A gap between old runs (what a lost disk or a damaged log may have given away) may stay one."""
    check_shape([commit])
    if not expected or any(run.partition != expected[0].partition for run in (*expected, *commit.runs)):
        raise Internal(f"runs of exactly one partition must be replaced; key={commit.segment.key}")
    if any(one.end > other.base for one, other in pairwise(expected)):
        raise Internal(f"runs to be replaced are out of order; first={expected[0]}")
    if any(_is_gap(one.end, other.base, expected) for one, other in pairwise(commit.runs)):
        raise Internal(f"replacing runs leave a hole; first={commit.runs[0]}")
    if (commit.runs[0].base, commit.runs[-1].end) != (expected[0].base, expected[-1].end):
        raise Internal(f"replacing runs cover other offsets; first={commit.runs[0]} last={commit.runs[-1]}")
    for new in commit.runs:
        if any(old.epoch != new.epoch for old in expected if old.base < new.end and new.base < old.end):
            raise Internal(f"a replacing run would move the end of an epoch; run={new} epoch={new.epoch}")


def _is_gap(start: int, end: int, expected: Sequence[Run]) -> bool:
    """Whether no old run covers these offsets."""
    return end < start or any(old.base < end and start < old.end for old in expected)
