"""The groups' guard: which commits of group state may be made, decided from what one transaction has read.

Data path   coordinator -> **group guard** -> rows
Owns        the fence of a shard: its lease's holder and epoch, and the order of its commits
Leaves      reading the state and writing what is allowed, in one transaction, to the engines
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamhouse.errors import Internal, LeaseLost
from streamhouse.model.group import ShardCommit
from streamhouse.model.lease import PartitionState
from streamhouse.model.names import PartitionId, SessionId


class LastCommit(NamedTuple):
    """What the store remembers of a shard's last commit. Later ones compare greater."""

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
    """The commits to make: all but those that were made before. `LeaseLost` names the shards whose guard failed."""
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
