"""Segment objects and runs as transactions on SQLite.

Data path   one commit per flush; the index of runs for fetch; retention and the collector's marks
Owns        writing what the guard allows, dropping runs, dooming objects
Leaves      the guard's decision to `guard`, deleting bytes to the broker's collector
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from streamhouse.errors import Internal
from streamhouse.model.lease import SessionState
from streamhouse.model.names import Epoch, PartitionId, SessionId
from streamhouse.model.segment import Run, SegmentCommit
from streamhouse.stores.metadata.base import DoomedObject, EpochEnd
from streamhouse.stores.metadata.guard import Offsets, Publication, check_shape, decide_publication
from streamhouse.stores.metadata.rows import (
    doomed_of,
    partition_list,
    partition_of,
    partition_params,
    run_of,
    run_params,
    state_of,
    text_list,
)
from streamhouse.stores.metadata.sqlite.database import Transaction


def commit_segments(tx: Transaction, session_id: SessionId, commits: Sequence[SegmentCommit]) -> None:
    session = tx.row(tx.sql.find_session, {"session_id": session_id})
    live = session is not None and session["state"] == SessionState.LIVE
    publish(tx, session_id, commits, may_publish=live)


def publish(tx: Transaction, holder: SessionId, commits: Sequence[SegmentCommit], *, may_publish: bool) -> None:
    """Guard and write, for a flush as for a recovery."""
    check_shape(commits)
    wanted = partition_list(run.partition for commit in commits for run in commit.runs)
    states = [state_of(row) for row in tx.rows(tx.sql.find_partitions, {"partitions": wanted})]
    publication = decide_publication(
        commits,
        holder=holder,
        may_publish=may_publish,
        states={state.partition: state for state in states},
        published=_published(tx, [commit.segment.key for commit in commits]),
    )
    _write(tx, holder, publication)


def list_runs(tx: Transaction, partition: PartitionId, from_offset: int, limit: int) -> Sequence[Run]:
    params = {**partition_params(partition), "from_offset": from_offset, "limit": limit}
    return [run_of(row) for row in tx.rows(tx.sql.runs_from, params)]


def last_run(tx: Transaction, partition: PartitionId) -> Run | None:
    row = tx.row(tx.sql.last_run, partition_params(partition))
    return None if row is None else run_of(row)


def run_at_time(tx: Transaction, partition: PartitionId, timestamp_ms: int, from_offset: int) -> Run | None:
    params = {**partition_params(partition), "timestamp_ms": timestamp_ms, "from_offset": from_offset}
    row = tx.row(tx.sql.run_at_time, params)
    return None if row is None else run_of(row)


def latest_run(tx: Transaction, partition: PartitionId, from_offset: int) -> Run | None:
    params = {**partition_params(partition), "from_offset": from_offset}
    latest = tx.row(tx.sql.latest_so_far, params)
    if latest is None:
        return None
    row = tx.row(tx.sql.run_at_time, {**params, "timestamp_ms": latest["latest_so_far_ms"]})
    row = row or tx.row(tx.sql.latest_run, params)
    return None if row is None else run_of(row)


def epoch_end(tx: Transaction, partition: PartitionId, epoch: int) -> EpochEnd | None:
    row = tx.row(tx.sql.epoch_end, {**partition_params(partition), "epoch": epoch})
    return None if row is None else EpochEnd(epoch=Epoch(row["epoch"]), end=row["end_offset"])


def advance_log_start(tx: Transaction, starts: Mapping[PartitionId, int]) -> None:
    tx.change_each(
        tx.sql.advance_log_start, ({**partition_params(p), "log_start": start} for p, start in starts.items())
    )
    objects: list[int] = []
    for partition in starts:
        dropped = tx.rows(tx.sql.drop_runs_below, partition_params(partition))
        if dropped_bytes := sum(row["length"] for row in dropped):
            tx.change(tx.sql.shrink_partition, {**partition_params(partition), "dropped_bytes": dropped_bytes})
        objects += [row["object_id"] for row in dropped]
    doom_unused(tx, objects)


def doom_unused(tx: Transaction, object_ids: Iterable[int]) -> None:
    """Doom those of the objects that no run of any partition names any more."""
    unique = sorted(set(object_ids))
    tx.change_each(tx.sql.doom_object, ({"object_id": each, "now_ms": tx.now_ms} for each in unique))
    tx.change_each(tx.sql.drop_object, ({"object_id": each} for each in unique))


def doomed_objects(tx: Transaction, grace_ms: int, limit: int) -> Sequence[DoomedObject]:
    params = {"before_ms": tx.now_ms - grace_ms, "limit": limit}
    return [doomed_of(row) for row in tx.rows(tx.sql.doomed_before, params)]


def forget_objects(tx: Transaction, keys: Sequence[str]) -> None:
    tx.change_each(tx.sql.forget_object, ({"key": key} for key in keys))


def known_objects(tx: Transaction) -> frozenset[str]:
    return frozenset(row["key"] for row in tx.rows(tx.sql.known_objects))


def allocate_producer_ids(tx: Transaction, count: int) -> int:
    if count < 1:
        raise Internal(f"at least one producer id must be asked for; count={count}")
    row = tx.row(tx.sql.reserve_producer_ids, {"count": count})
    if row is None:
        raise Internal("the producer id counter is gone")
    return int(row["first"])


def _published(tx: Transaction, keys: Sequence[str]) -> Mapping[str, frozenset[Offsets]]:
    known = [row["key"] for row in tx.rows(tx.sql.known_among, {"keys": text_list(keys)})]
    return {
        key: frozenset(
            Offsets(partition_of(row), row["base_offset"], row["end_offset"])
            for row in tx.rows(tx.sql.runs_of_object, {"key": key})
        )
        for key in known
    }


def _write(tx: Transaction, holder: SessionId, publication: Publication) -> None:
    objects = [commit.segment for commit in publication.commits]
    tx.change_each(
        tx.sql.insert_object,
        ({"key": o.key, "size_bytes": o.size_bytes, "created_at_ms": o.created_at_ms} for o in objects),
    )
    runs = sorted((run for commit in publication.commits for run in commit.runs), key=lambda run: run.base)
    tx.change_each(tx.sql.insert_run, map(run_params, runs))
    added: Counter[PartitionId] = Counter()
    for run in runs:
        added[run.partition] += run.length
    advanced = tx.change_each(
        tx.sql.advance_flushed_end,
        (
            {
                **partition_params(advance.state.partition),
                "holder": holder,
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
