"""Groups and committed offsets as transactions on SQLite.

Data path   every commit of offsets; a group's new generation; loading the groups of a shard
Owns        applying the changes that the guard allows, in their order; reading groups and offsets
Leaves      the guard's decision to `group_guard`, what changes mean to the broker's groups
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from streamhouse.model.group import DropGroup, DropOffset, GroupChange, PutGroup, PutOffset, ShardCommit
from streamhouse.model.lease import SessionState
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.stores.metadata.base import OffsetsAsked, OffsetStored, ShardGroup
from streamhouse.stores.metadata.group_guard import LastCommit, decide_group_commits
from streamhouse.stores.metadata.rows import (
    Params,
    group_of,
    group_params,
    offset_of,
    offset_params,
    partition_list,
    partition_of,
    partition_params,
    place_params,
    state_of,
)
from streamhouse.stores.metadata.sqlite.database import Transaction


def commit_groups(tx: Transaction, session_id: SessionId, commits: Sequence[ShardCommit]) -> None:
    wanted = {"partitions": partition_list(commit.shard for commit in commits)}
    session = tx.row(tx.sql.find_session, {"session_id": session_id})
    states = [state_of(row) for row in tx.rows(tx.sql.find_partitions, wanted)]
    last = {
        partition_of(row): LastCommit(row["epoch"], row["sequence"]) for row in tx.rows(tx.sql.shard_commits, wanted)
    }
    fresh = decide_group_commits(
        commits,
        holder=session_id,
        is_live=session is not None and session["state"] == SessionState.LIVE,
        states={state.partition: state for state in states},
        last=last,
    )
    for commit in fresh:
        _apply(tx, commit)


def load_groups(tx: Transaction, shards: Sequence[PartitionId]) -> Sequence[ShardGroup]:
    rows = tx.rows(tx.sql.groups_of_shards, {"partitions": partition_list(shards)})
    return [ShardGroup(partition_of(row), group_of(row)) for row in rows]


def committed_offsets(tx: Transaction, asked: Sequence[OffsetsAsked]) -> Sequence[OffsetStored]:
    found: list[OffsetStored] = []
    for group_id, partitions in asked:
        if partitions is None:
            rows = tx.rows(tx.sql.offsets_of_group, {"group_id": group_id})
        else:
            rows = tx.rows(tx.sql.find_offsets, {"group_id": group_id, "partitions": partition_list(partitions)})
        found.extend(offset_of(row) for row in rows)
    return found


def groups_to_review(tx: Transaction, shards: Sequence[PartitionId], before_ms: int, now_ms: int) -> Sequence[str]:
    params: Params = {"partitions": partition_list(shards), "before_ms": before_ms, "now_ms": now_ms}
    return [row["group_id"] for row in tx.rows(tx.sql.groups_to_review, params)]


def _apply(tx: Transaction, commit: ShardCommit) -> None:
    shard = partition_params(commit.shard)
    tx.change(tx.sql.put_shard_commit, {**shard, "epoch": commit.epoch, "sequence": commit.sequence})
    for kind, changes in groupby(commit.changes, key=type):
        _change(tx, commit.shard, kind, changes)


def _change(tx: Transaction, shard: PartitionId, kind: type[GroupChange], changes: Iterable[GroupChange]) -> None:
    """Changes of one kind that stand side by side, with one statement."""
    if kind is PutOffset:
        tx.change_each(
            tx.sql.put_offset,
            (offset_params(each.at, each.committed) for each in changes if isinstance(each, PutOffset)),
        )
        return
    for each in changes:
        match each:
            case PutGroup():
                tx.change(tx.sql.put_group, {**partition_params(shard), **group_params(each.group)})
            case DropGroup():
                _drop_group(tx, shard, each)
            case DropOffset():
                tx.change(tx.sql.drop_offset, {**place_params(each.at), "committed_at_ms": each.committed_at_ms})


def _drop_group(tx: Transaction, shard: PartitionId, change: DropGroup) -> None:
    named = {"group_id": change.group_id}
    if not change.unless_offsets:
        tx.change(tx.sql.drop_offsets_of_group, named)
    tx.change(tx.sql.drop_group, {**partition_params(shard), **named})
