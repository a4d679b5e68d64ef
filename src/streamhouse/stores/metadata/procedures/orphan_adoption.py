"""Procedure that registers unreferenced objects, in one transaction.

Data path   none: an operator's command, while no agent runs
Owns        writing the chosen rows atomically
Leaves      the choice to `model.orphan_adoption`
"""

from collections import Counter, defaultdict

from streamhouse.errors import Internal
from streamhouse.model.names import PartitionId
from streamhouse.model.orphan_adoption import Adoption
from streamhouse.model.segment import Run
from streamhouse.stores.metadata.engine import Lock, Transaction
from streamhouse.stores.metadata.procedures.segments import mark_unused_for_deletion, objects_of
from streamhouse.stores.metadata.procedures.sessions import free_and_end
from streamhouse.stores.metadata.rows import Row, partition_list, partition_params, run_params, text_list
from streamhouse.stores.metadata.transaction_rows import aborted_params


async def adopt(tx: Transaction, adoption: Adoption) -> None:
    runs = [run for commit in adoption.commits for run in commit.runs]
    touched = {run.partition for run in (*runs, *adoption.replaced)}
    await tx.lock(Lock.PLACING, {})
    await tx.lock(Lock.SESSIONS, {"session_ids": text_list(adoption.ended)})
    await tx.lock(Lock.PARTITIONS, {"partitions": partition_list(touched)})
    keys = text_list(commit.segment.key for commit in adoption.commits)
    if known := await tx.rows(tx.sql.known_among, {"keys": keys}):
        raise Internal(f"an object was registered meanwhile; key={known[0]['key']}")
    dropped: list[Row] = []
    for run in adoption.replaced:
        at = {**partition_params(run.partition), "base_offset": run.base, "end_offset": run.base + 1}
        dropped += await tx.rows(tx.sql.drop_runs_within, at)
    await tx.change_each(
        tx.sql.insert_object,
        (
            {"key": o.key, "size_bytes": o.size_bytes, "created_at_ms": o.created_at_ms}
            for o in (commit.segment for commit in adoption.commits)
        ),
    )
    for run in sorted(runs, key=lambda run: (run.partition, run.base)):
        await _insert(tx, run)
    for aborted in aborted_params(adoption.commits):
        await tx.change(tx.sql.adopt_aborted, aborted)
    await _move_ends(tx, adoption, runs)
    await mark_unused_for_deletion(tx, objects_of(dropped))
    for name, value in (
        ("epoch", adoption.epoch),
        ("producer_id", adoption.producer_id),
        ("generation", adoption.generation),
    ):
        await tx.change(tx.sql.raise_counter, {"name": name, "value": value})
    await tx.change(tx.sql.rename_cluster, {"cluster_id": adoption.cluster_id})
    for session_id in adoption.ended:
        await free_and_end(tx, session_id)


async def _insert(tx: Transaction, run: Run) -> None:
    at = {**partition_params(run.partition), "base_offset": run.base}
    before = await tx.row(tx.sql.latest_before, at)
    latest_ms = max(run.max_timestamp_ms, before["latest_so_far_ms"] if before is not None else run.max_timestamp_ms)
    await tx.change(tx.sql.insert_replacement, {**run_params(run), "latest_so_far_ms": latest_ms})
    await tx.change(tx.sql.raise_latest, {**at, "latest_so_far_ms": latest_ms})


async def _move_ends(tx: Transaction, adoption: Adoption, runs: list[Run]) -> None:
    ends: dict[PartitionId, int] = defaultdict(int)
    epochs: dict[PartitionId, int] = defaultdict(int, adoption.epochs)
    added: Counter[PartitionId] = Counter()
    for run in runs:
        ends[run.partition] = max(run.end, ends[run.partition])
        epochs[run.partition] = max(run.epoch, epochs[run.partition])
        added[run.partition] += run.length
    for run in adoption.replaced:
        added[run.partition] -= run.length
    for partition in {*ends, *added}:
        moved = {"flushed_end": ends[partition], "epoch": epochs[partition], "added_bytes": added[partition]}
        await tx.change(tx.sql.adopt_end, {**partition_params(partition), **moved})
