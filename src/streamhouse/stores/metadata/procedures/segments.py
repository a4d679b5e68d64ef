"""Procedures for segment objects and runs: commits, the index of runs, retention, deletion and replacement.

Owns        writing what `commit_guard` allows, dropping runs, marking objects for deletion, replacing runs by merged or
            compacted ones: exactly the expected rows are replaced, or nothing changes
Leaves      the decision to `commit_guard`, deleting objects to `broker.maintenance`

A replacement locks the partition's row as a commit does, so that commits, retention and deletion run before or after.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from streamhouse.errors import Internal, SessionLost
from streamhouse.model.cluster import SessionState
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.stores.metadata.base import EpochEnd, ObjectRange, PendingDeletion, StoredObject
from streamhouse.stores.metadata.commit_guard import (
    Offsets,
    Publication,
    check_replacement,
    check_shape,
    decide_publication,
)
from streamhouse.stores.metadata.engine import Lock, Transaction
from streamhouse.stores.metadata.rows import (
    Params,
    Row,
    last_run_of,
    number_list,
    offset_list,
    partition_list,
    partition_of,
    partition_params,
    pending_deletion_of,
    run_of,
    run_params,
    state_of,
    stored_object_of,
    text_list,
)
from streamhouse.stores.metadata.transaction_rows import aborted_params


async def commit_segments(tx: Transaction, session_id: SessionId, commits: Sequence[SegmentCommit]) -> None:
    session = await tx.row(tx.sql.find_session, {"session_id": session_id})
    live = session is not None and session["state"] == SessionState.LIVE
    await publish(tx, session_id, commits, may_publish=live)


async def publish(tx: Transaction, holder: SessionId, commits: Sequence[SegmentCommit], *, may_publish: bool) -> None:
    """Check the guard and write, for flushes and recoveries."""
    check_shape(commits)
    partitions = partition_list(run.partition for commit in commits for run in commit.runs)
    states = [state_of(row) for row in await tx.rows(tx.sql.find_partitions, {"partitions": partitions})]
    published = await _published(tx, commits)
    holders = {run.partition: holder for commit in commits for run in commit.runs}
    publication = decide_publication(
        commits,
        holders=holders,
        may_publish=may_publish,
        states={state.partition: state for state in states},
        published=published,
    )
    await write_publication(tx, publication, holders)


async def list_runs(tx: Transaction, partition: PartitionId, *, from_offset: int, limit: int) -> Sequence[Run]:
    params = {**partition_params(partition), "from_offset": from_offset, "limit": limit}
    return [run_of(row) for row in await tx.rows(tx.sql.runs_from, params)]


async def runs_of(tx: Transaction, from_offsets: Mapping[PartitionId, int], limit: int) -> Sequence[Run]:
    params: Params = {"from_offsets": offset_list(from_offsets), "limit": limit}
    return [run_of(row) for row in await tx.rows(tx.sql.runs_of, params)]


async def last_runs(tx: Transaction, partitions: Sequence[PartitionId]) -> Sequence[Run]:
    return [last_run_of(row) for row in await tx.rows(tx.sql.last_runs, {"partitions": partition_list(partitions)})]


async def runs_before(tx: Transaction, partition: PartitionId, *, before: int, limit: int) -> Sequence[Run]:
    params = {**partition_params(partition), "before": before, "limit": limit}
    return [last_run_of(row) for row in await tx.rows(tx.sql.runs_before, params)]


async def run_at_time(tx: Transaction, partition: PartitionId, *, timestamp_ms: int, from_offset: int) -> Run | None:
    params = {**partition_params(partition), "timestamp_ms": timestamp_ms, "from_offset": from_offset}
    row = await tx.row(tx.sql.run_at_time, params)
    return None if row is None else run_of(row)


async def latest_run(tx: Transaction, partition: PartitionId, *, from_offset: int) -> Run | None:
    params = {**partition_params(partition), "from_offset": from_offset}
    latest = await tx.row(tx.sql.latest_so_far, params)
    if latest is None:
        return None
    row = await tx.row(tx.sql.run_at_time, {**params, "timestamp_ms": latest["latest_so_far_ms"]})
    row = row or await tx.row(tx.sql.latest_run, params)
    return None if row is None else run_of(row)


async def epoch_end(tx: Transaction, partition: PartitionId, epoch: int) -> EpochEnd | None:
    row = await tx.row(tx.sql.epoch_end, {**partition_params(partition), "epoch": epoch})
    return None if row is None else EpochEnd(epoch=Epoch(row["epoch"]), end=row["end_offset"])


async def advance_log_start(tx: Transaction, starts: Mapping[PartitionId, int], limit: int) -> bool:
    """Delete at most about `limit` runs below the log starts, a share of each partition, and as many aborted
    transactions; returns whether more may be left."""
    share = max(1, limit // max(1, len(starts)))
    await tx.lock(Lock.PARTITIONS, {"partitions": partition_list(starts)})
    await tx.change_each(
        tx.sql.advance_log_start, ({**partition_params(p), "log_start": start} for p, start in starts.items())
    )
    dropped = await tx.rows_each(tx.sql.drop_runs_below, ({**partition_params(p), "limit": share} for p in starts))
    dropped_runs: Counter[PartitionId] = Counter()
    dropped_bytes: Counter[PartitionId] = Counter()
    aborted = await tx.rows_each(tx.sql.drop_aborted_below, ({**partition_params(p), "limit": share} for p in starts))
    for row in dropped:
        dropped_runs[partition_of(row)] += 1
        dropped_bytes[partition_of(row)] += row["length"]
    await tx.change_each(
        tx.sql.shrink_partition, ({**partition_params(p), "dropped_bytes": gone} for p, gone in dropped_bytes.items())
    )
    await mark_unused_for_deletion(tx, objects_of(dropped))
    return share in dropped_runs.values() or share in Counter(map(partition_of, aborted)).values()


def objects_of(dropped: Iterable[Row]) -> Iterator[int]:
    """The objects that deleted runs referenced, for their records or producer snapshots."""
    for row in dropped:
        yield row["object_id"]
        if row["producers_object_id"] is not None:
            yield row["producers_object_id"]


async def mark_unused_for_deletion(tx: Transaction, object_ids: Iterable[int]) -> None:
    """Mark those objects for deletion that no run references any more."""
    unique = sorted(set(object_ids))
    if not unique:
        return
    await tx.lock(
        Lock.OBJECTS, {"object_ids": number_list(unique)}
    )  # another partition's last run may be deleted concurrently
    now_ms = await tx.now_ms()
    await tx.change_each(tx.sql.doom_object, ({"object_id": each, "now_ms": now_ms} for each in unique))
    await tx.change_each(tx.sql.drop_object, ({"object_id": each} for each in unique))


async def objects_pending_deletion(tx: Transaction, *, grace_ms: int, limit: int) -> Sequence[PendingDeletion]:
    params = {"before_ms": await tx.now_ms() - grace_ms, "limit": limit}
    return [pending_deletion_of(row) for row in await tx.rows(tx.sql.doomed_before, params)]


async def stored_objects(tx: Transaction, *, after: int, limit: int) -> Sequence[StoredObject]:
    return [stored_object_of(row) for row in await tx.rows(tx.sql.objects_after, {"after": after, "limit": limit})]


async def newest_objects(tx: Transaction, *, limit: int) -> Sequence[StoredObject]:
    return [stored_object_of(row) for row in await tx.rows(tx.sql.newest_objects, {"limit": limit})]


async def ranges_of_object(tx: Transaction, key: str) -> Sequence[ObjectRange] | None:
    rows = await tx.rows(tx.sql.ranges_of_object, {"key": key})
    named = [row for row in rows if row["topic_id"] is not None]
    return [ObjectRange(partition_of(row), row["base_offset"], row["end_offset"]) for row in named] if rows else None


async def forget_objects(tx: Transaction, keys: Sequence[str]) -> None:
    await tx.change_each(tx.sql.forget_object, ({"key": key} for key in keys))


async def known_objects(tx: Transaction) -> frozenset[str]:
    return frozenset(row["key"] for row in await tx.rows(tx.sql.known_objects))


async def known_among(tx: Transaction, keys: Sequence[str]) -> frozenset[str]:
    return frozenset(row["key"] for row in await tx.rows(tx.sql.known_among, {"keys": text_list(keys)}))


async def allocate_producer_ids(tx: Transaction, count: int) -> int:
    if count < 1:
        raise Internal(f"at least one producer id must be requested; count={count}")
    row = await tx.row(tx.sql.reserve_producer_ids, {"count": count})
    if row is None:
        raise Internal("the producer id counter is gone")
    return int(row["first"])


async def _published(tx: Transaction, commits: Sequence[SegmentCommit]) -> Mapping[str, frozenset[Offsets]]:
    keys = text_list(commit.segment.key for commit in commits)
    known = [row["key"] for row in await tx.rows(tx.sql.known_among, {"keys": keys})]
    runs: dict[str, set[Offsets]] = {key: set() for key in known}
    for row in await tx.rows_each(tx.sql.runs_of_object, ({"key": key} for key in known)):
        runs[row["key"]].add(Offsets(partition_of(row), row["base_offset"], row["end_offset"]))
    for run in (run for commit in commits if commit.segment.key in runs for run in commit.runs):
        offsets = Offsets(run.partition, run.base, run.end)
        if offsets not in runs[run.object_key] and await _was_replaced(tx, run):
            runs[run.object_key].add(offsets)
    return {key: frozenset(offsets) for key, offsets in runs.items()}


async def _was_replaced(tx: Transaction, run: Run) -> bool:
    """Whether other rows have the run's offsets under its epoch: only its holder can have published them, and the
    current runs were written from those."""
    first = await list_runs(tx, run.partition, from_offset=run.base, limit=1)
    last = await list_runs(tx, run.partition, from_offset=run.end - 1, limit=1)
    return all(result and result[0].base < run.end and result[0].epoch == run.epoch for result in (first, last))


async def write_publication(
    tx: Transaction, publication: Publication, holders: Mapping[PartitionId, SessionId]
) -> None:
    """Write objects, runs, aborted transactions and flushed ends of a publication."""
    objects = [commit.segment for commit in publication.commits]
    await tx.change_each(
        tx.sql.insert_object,
        ({"key": o.key, "size_bytes": o.size_bytes, "created_at_ms": o.created_at_ms} for o in objects),
    )
    runs = sorted((run for commit in publication.commits for run in commit.runs), key=lambda run: run.base)
    await tx.change_each(tx.sql.insert_run, map(run_params, runs))
    await tx.change_each(tx.sql.insert_aborted, aborted_params(publication.commits))
    added: Counter[PartitionId] = Counter()
    for run in runs:
        added[run.partition] += run.length
    advanced = await tx.change_each(
        tx.sql.advance_flushed_end,
        (
            {
                **partition_params(advance.state.partition),
                "holder": holders[advance.state.partition],
                "epoch": advance.state.epoch,
                "expected_end": advance.state.flushed_end,
                "flushed_end": advance.flushed_end,
                "added_bytes": added[advance.state.partition],
            }
            for advance in publication.advances
        ),
    )
    if advanced != len(publication.advances):
        raise Internal(f"the commit guard and the rows disagree; expected={len(publication.advances)} got={advanced}")


CARRIED: Final = ("producers_object_id", "producers_position", "producers_length", "producers_doubtful")


async def replace_runs(tx: Transaction, session_id: SessionId, expected: Sequence[Run], commit: SegmentCommit) -> bool:
    check_replacement(expected, commit)
    await tx.lock(Lock.PLACING, {})  # a job's object must not be given up between the check of its key and the insert
    session = await tx.row(tx.sql.find_session, {"session_id": session_id})
    if session is None or session["state"] != SessionState.LIVE:
        # The search for orphans skips only objects of live sessions.
        raise SessionLost(session_id, why="only a live session may replace runs")
    await tx.rows(tx.sql.find_partitions, {"partitions": partition_list([expected[0].partition])})
    if await tx.rows(tx.sql.known_among, {"keys": text_list([commit.segment.key])}):
        return True
    offset_range = _range_params(expected)
    if [run_of(row) for row in await tx.rows(tx.sql.runs_within, offset_range)] != list(expected):
        return False
    await _replace(tx, offset_range, expected, commit)
    return True


async def mark_cleaned(tx: Transaction, partition: PartitionId, up_to: int) -> None:
    await tx.change(tx.sql.mark_cleaned, {**partition_params(partition), "cleaned_to": up_to})


async def list_cleaned(tx: Transaction, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, int]:
    rows = await tx.rows(tx.sql.cleaned_of_topics, {"topic_ids": text_list(topic_ids)})
    return {partition_of(row): int(row["cleaned_to"]) for row in rows}


def _range_params(expected: Sequence[Run]) -> Params:
    first, last = expected[0], expected[-1]
    return {**partition_params(first.partition), "base_offset": first.base, "end_offset": last.end}


def _base_of(run: Run) -> Params:
    return {**partition_params(run.partition), "base_offset": run.base}


async def _replace(tx: Transaction, offset_range: Params, expected: Sequence[Run], commit: SegmentCommit) -> None:
    carried = await tx.row(tx.sql.find_carried, _base_of(expected[-1]))
    dropped = await tx.rows(tx.sql.drop_runs_within, offset_range)
    segment = commit.segment
    await tx.change_each(
        tx.sql.insert_object,
        [{"key": segment.key, "size_bytes": segment.size_bytes, "created_at_ms": segment.created_at_ms}],
    )
    before = await tx.row(
        tx.sql.latest_before, {name: offset_range[name] for name in ("topic_id", "partition", "base_offset")}
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
    await mark_unused_for_deletion(tx, objects_of(dropped))
