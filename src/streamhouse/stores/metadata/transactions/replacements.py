"""Replacing runs as transactions: merged and compacted ones in the place of those they were made of.

Data path   none: behind the data path's back, between two commits of a partition
Owns        that exactly the expected rows go, with the new ones in their place, or nothing happens
Leaves      what may stand in for what to `replacement`, dooming to `segments`, deleting bytes to the broker's collector

The partition's row is held as by a commit, so that commits, retention and deletion come before or after, never between.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from streamhouse.errors import SessionLost
from streamhouse.model.lease import SessionState
from streamhouse.model.names import PartitionId, SessionId, TopicId
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.stores.metadata.replacement import check_replacement
from streamhouse.stores.metadata.rows import (
    Params,
    partition_list,
    partition_of,
    partition_params,
    run_of,
    run_params,
    text_list,
)
from streamhouse.stores.metadata.transaction import Lock, Transaction
from streamhouse.stores.metadata.transactions.segments import doom_unused, objects_of

CARRIED: Final = ("producers_object_id", "producers_position", "producers_length", "producers_doubtful")


async def replace_runs(tx: Transaction, session_id: SessionId, expected: Sequence[Run], commit: SegmentCommit) -> bool:
    check_replacement(expected, commit)
    await tx.lock(Lock.PLACING, {})  # a job's object must not be given up between the look at its key and the insert
    session = await tx.row(tx.sql.find_session, {"session_id": session_id})
    if session is None or session["state"] != SessionState.LIVE:
        # The sweep for orphans spares the objects of live sessions alone.
        raise SessionLost(session_id, why="only a live session may replace runs")
    await tx.rows(tx.sql.find_partitions, {"partitions": partition_list([expected[0].partition])})
    if await tx.rows(tx.sql.known_among, {"keys": text_list([commit.segment.key])}):
        return True
    place = _place(expected)
    if [run_of(row) for row in await tx.rows(tx.sql.runs_within, place)] != list(expected):
        return False
    await _replace(tx, place, expected, commit)
    return True


async def mark_cleaned(tx: Transaction, partition: PartitionId, up_to: int) -> None:
    await tx.change(tx.sql.mark_cleaned, {**partition_params(partition), "cleaned_to": up_to})


async def list_cleaned(tx: Transaction, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, int]:
    rows = await tx.rows(tx.sql.cleaned_of_topics, {"topic_ids": text_list(topic_ids)})
    return {partition_of(row): int(row["cleaned_to"]) for row in rows}


def _place(expected: Sequence[Run]) -> Params:
    first, last = expected[0], expected[-1]
    return {**partition_params(first.partition), "base_offset": first.base, "end_offset": last.end}


def _base_of(run: Run) -> Params:
    return {**partition_params(run.partition), "base_offset": run.base}


async def _replace(tx: Transaction, place: Params, expected: Sequence[Run], commit: SegmentCommit) -> None:
    carried = await tx.row(tx.sql.find_carried, _base_of(expected[-1]))
    dropped = await tx.rows(tx.sql.drop_runs_within, place)
    segment = commit.segment
    await tx.change_each(
        tx.sql.insert_object,
        [{"key": segment.key, "size_bytes": segment.size_bytes, "created_at_ms": segment.created_at_ms}],
    )
    before = await tx.row(
        tx.sql.latest_before, {name: place[name] for name in ("topic_id", "partition", "base_offset")}
    )
    times = [run.max_timestamp_ms for run in commit.runs]
    if before is not None:
        times[0] = max(times[0], before["latest_so_far_ms"])
    for run, latest_ms in zip(commit.runs, accumulate(times, max), strict=True):
        await tx.change(tx.sql.insert_replacement, {**run_params(run), "latest_so_far_ms": latest_ms})
    if carried is not None:
        await tx.change(tx.sql.put_carried, {**_base_of(commit.runs[-1]), **{name: carried[name] for name in CARRIED}})
    freed = sum(run.length for run in expected) - sum(run.length for run in commit.runs)
    params = {**partition_params(expected[0].partition), "dropped_bytes": freed}
    await tx.change_each(tx.sql.shrink_partition, [params])
    await doom_unused(tx, objects_of(dropped))
