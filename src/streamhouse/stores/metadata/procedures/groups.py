"""Procedures for groups and committed offsets.

Data path   every commit of offsets; a group's new generation; loading the groups of a shard
Owns        applying the changes that the guard allows, in their order; reading groups and offsets
Leaves      the guard's decision to `commit_guard`, the meaning of changes to the broker's groups
"""

import json
from collections.abc import Iterable, Sequence
from itertools import groupby

from streamhouse.format.metadata_values import decode_lag, encode_lag
from streamhouse.model.cluster import SessionState
from streamhouse.model.group import DropGroup, DropOffset, GroupChange, PutGroup, PutOffset, ShardCommit
from streamhouse.model.group_lag import LagHistory
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.stores.metadata.base import OffsetStored, ShardGroup
from streamhouse.stores.metadata.commit_guard import LastCommit, decide_group_commits
from streamhouse.stores.metadata.engine import Transaction
from streamhouse.stores.metadata.rows import (
    Params,
    group_of,
    group_offset_params,
    group_params,
    offset_of,
    offset_params,
    partition_list,
    partition_of,
    partition_params,
    state_of,
)
from streamhouse.stores.metadata.transaction_store import OffsetsRequest


async def commit_groups(tx: Transaction, session_id: SessionId, commits: Sequence[ShardCommit]) -> None:
    shards = {"partitions": partition_list(commit.shard for commit in commits)}
    session = await tx.row(tx.sql.find_session, {"session_id": session_id})
    states = [state_of(row) for row in await tx.rows(tx.sql.find_partitions, shards)]
    last = {
        partition_of(row): LastCommit(row["epoch"], row["sequence"])
        for row in await tx.rows(tx.sql.shard_commits, shards)
    }
    fresh = decide_group_commits(
        commits,
        holder=session_id,
        is_live=session is not None and session["state"] == SessionState.LIVE,
        states={state.partition: state for state in states},
        last=last,
    )
    await tx.change_each(
        tx.sql.put_shard_commit,
        ({**partition_params(each.shard), "epoch": each.epoch, "sequence": each.sequence} for each in fresh),
    )
    for commit in fresh:
        for kind, changes in groupby(commit.changes, key=type):
            await _change(tx, commit.shard, kind, changes)


async def load_groups(tx: Transaction, shards: Sequence[PartitionId]) -> Sequence[ShardGroup]:
    rows = await tx.rows(tx.sql.groups_of_shards, {"partitions": partition_list(shards)})
    return [ShardGroup(partition_of(row), group_of(row)) for row in rows]


async def committed_offsets(tx: Transaction, requested: Sequence[OffsetsRequest]) -> Sequence[OffsetStored]:
    result: list[OffsetStored] = []
    for group_id, partitions in requested:
        if partitions is None:
            rows = await tx.rows(tx.sql.offsets_of_group, {"group_id": group_id})
        else:
            rows = await tx.rows(tx.sql.find_offsets, {"group_id": group_id, "partitions": partition_list(partitions)})
        result.extend(offset_of(row) for row in rows)
    return result


async def groups_to_review(
    tx: Transaction, shards: Sequence[PartitionId], *, before_ms: int, now_ms: int
) -> Sequence[str]:
    params: Params = {"partitions": partition_list(shards), "before_ms": before_ms, "now_ms": now_ms}
    return [row["group_id"] for row in await tx.rows(tx.sql.groups_to_review, params)]


async def put_group_lags(tx: Transaction, histories: Sequence[LagHistory], *, now_ms: int, forget_ms: int) -> None:
    await tx.change_each(
        tx.sql.put_group_lag,
        ({"group_id": each.group_id, "at_ms": now_ms, "history": encode_lag(each)} for each in histories),
    )
    await tx.change(tx.sql.forget_old_group_lags, {"before_ms": now_ms - forget_ms})


async def group_lags(tx: Transaction, group_ids: Sequence[str]) -> Sequence[LagHistory]:
    rows = await tx.rows(tx.sql.group_lags, {"group_ids": json.dumps([[each] for each in group_ids])})
    return [decode_lag(row["group_id"], row["history"]) for row in rows]


async def _change(tx: Transaction, shard: PartitionId, kind: type[GroupChange], changes: Iterable[GroupChange]) -> None:
    """Apply adjacent changes of one kind with one statement."""
    if kind is PutOffset:
        await tx.change_each(
            tx.sql.put_offset,
            (offset_params(each.at, each.committed) for each in changes if isinstance(each, PutOffset)),
        )
        return
    for each in changes:
        match each:
            case PutGroup():
                await tx.change(tx.sql.put_group, {**partition_params(shard), **group_params(each.group)})
            case DropGroup():
                await _drop_group(tx, shard, each)
            case DropOffset():
                await tx.change(
                    tx.sql.drop_offset, {**group_offset_params(each.at), "committed_at_ms": each.committed_at_ms}
                )


async def _drop_group(tx: Transaction, shard: PartitionId, change: DropGroup) -> None:
    named = {"group_id": change.group_id}
    if not change.unless_offsets:
        await tx.change(tx.sql.drop_offsets_of_group, named)
        await tx.change(tx.sql.drop_pending_of_group, named)
    await tx.change(tx.sql.forget_group_lag, named)
    await tx.change(tx.sql.drop_group, {**partition_params(shard), **named})
