"""Procedures for external commits: segments that Spark wrote, appended to partitions of several leaders.

Data path   broker.external_commits -> **external_commits** -> rows
Owns        exactly-once commits; which commits are stored; giving up objects
Leaves      the guard's decision to `commit_guard`, freezing partitions to the broker
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from streamhouse.errors import CommitRefused, StaleCommit
from streamhouse.model.cluster import SessionState
from streamhouse.model.external_commit import CommittedRange, ExternalCommit, QueryId, StoredCommit
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.replay import is_replay
from streamhouse.stores.metadata.commit_guard import check_shape, decide_publication
from streamhouse.stores.metadata.engine import Lock, Transaction
from streamhouse.stores.metadata.procedures.pipelines import check_fence
from streamhouse.stores.metadata.procedures.segments import write_publication
from streamhouse.stores.metadata.rows import (
    Params,
    commit_of,
    committed_ranges_text,
    partition_list,
    partition_params,
    state_of,
    text_list,
)

COMMITS_KEPT: Final = 10
"""Stored commits of one query: a repeated one is the last, or the one before it."""


async def commit_external_segments(tx: Transaction, placement: ExternalCommit) -> StoredCommit:
    check_shape(placement.commits)
    await tx.lock(Lock.PLACING, {})
    now_ms = await tx.now_ms()
    await tx.change(tx.sql.touch_query, {"query": placement.query, "now_ms": now_ms})
    if (known := await find_commit(tx, placement.query, placement.epoch)) is not None:
        return replayed(known, placement.covers)
    if placement.fence is not None:
        await check_fence(tx, placement.fence)
    await _reject_stale(tx, placement)
    await _reject_known_objects(tx, placement)
    holders = await _live_holders(tx, placement.holders)
    requested = partition_list(run.partition for commit in placement.commits for run in commit.runs)
    states = [state_of(row) for row in await tx.rows(tx.sql.find_partitions, {"partitions": requested})]
    publication = decide_publication(
        placement.commits,
        holders=holders,
        may_publish=True,
        states={state.partition: state for state in states},
        published={},
    )
    await write_publication(tx, publication, holders)
    committed = _committed_ranges(placement)
    await tx.change_each(tx.sql.carry_producers, _carrying(placement))
    return await _store_commit(tx, placement, committed, now_ms=now_ms)


async def find_commit(tx: Transaction, query: QueryId, epoch: int) -> StoredCommit | None:
    row = await tx.row(tx.sql.find_commit, {"query": query, "epoch": epoch})
    return None if row is None else commit_of(row)


def replayed(known: StoredCommit, covers: str | None) -> StoredCommit:
    """The stored commit of a repeated request; raises `CheckpointMismatch` if it had another input."""
    last, target = known.epoch, known.placed[0].topic if known.placed else ""
    is_replay(target, batch=known.epoch, covers=covers, last=last, last_covers=known.covers)
    return replace(known, is_replayed=True)


async def last_commit(tx: Transaction, query: QueryId) -> StoredCommit | None:
    row = await tx.row(tx.sql.last_commit, {"query": query})
    return None if row is None else commit_of(row)


async def forget_commits(tx: Transaction, older_than_ms: int, limit: int) -> int:
    before_ms = await tx.now_ms() - older_than_ms
    await tx.change(tx.sql.forget_commits, {"before_ms": before_ms, "limit": limit})
    return await tx.change(tx.sql.forget_queries, {"before_ms": before_ms})


async def abandon_objects(tx: Transaction, keys: Sequence[str]) -> None:
    await tx.lock(Lock.GIVING_UP, {})
    await tx.change(tx.sql.give_up_objects, {"keys": text_list(keys), "now_ms": await tx.now_ms()})


async def _reject_stale(tx: Transaction, placement: ExternalCommit) -> None:
    last = await last_commit(tx, placement.query)
    if last is not None and placement.epoch < last.epoch:
        raise StaleCommit(placement.query, epoch=placement.epoch, last=last.epoch)


async def _reject_known_objects(tx: Transaction, placement: ExternalCommit) -> None:
    """Raise for objects of earlier commits, and for those given up, which may be deleted at any time."""
    keys = text_list(commit.segment.key for commit in placement.commits)
    if known := [row["key"] for row in await tx.rows(tx.sql.known_among, {"keys": keys})]:
        raise CommitRefused(
            f"a segment was committed before, or was given up because it was not committed for long; key={known[0]}"
        )


async def _live_holders(tx: Transaction, holders: Mapping[PartitionId, SessionId]) -> Mapping[PartitionId, SessionId]:
    """The sessions that may still publish; locked in the usual order."""
    live: set[SessionId] = set()
    for session_id in sorted(set(holders.values())):
        session = await tx.row(tx.sql.find_session, {"session_id": session_id})
        if session is not None and session["state"] == SessionState.LIVE:
            live.add(session_id)
    return {partition: holder for partition, holder in holders.items() if holder in live}


def _spans(placement: ExternalCommit) -> dict[PartitionId, list[tuple[int, int]]]:
    spans: dict[PartitionId, list[tuple[int, int]]] = {}
    for run in sorted((run for commit in placement.commits for run in commit.runs), key=lambda run: run.base):
        spans.setdefault(run.partition, []).append((run.base, run.end))
    return spans


def _committed_ranges(placement: ExternalCommit) -> tuple[CommittedRange, ...]:
    return tuple(
        CommittedRange(topic=placement.topics[at.topic_id], partition=at, base=spans[0][0], end=spans[-1][1])
        for at, spans in sorted(_spans(placement).items())
    )


def _carrying(placement: ExternalCommit) -> list[Params]:
    return [
        {**partition_params(at), "first_base": spans[0][0], "last_base": spans[-1][0]}
        for at, spans in _spans(placement).items()
    ]


async def _store_commit(
    tx: Transaction, placement: ExternalCommit, committed: tuple[CommittedRange, ...], *, now_ms: int
) -> StoredCommit:
    stored = StoredCommit(
        query=placement.query,
        epoch=placement.epoch,
        progress=placement.progress,
        placed=committed,
        covers=placement.covers,
    )
    params: Params = {
        "query": stored.query,
        "epoch": stored.epoch,
        "progress": stored.progress,
        "placed": committed_ranges_text(committed),
        "covers": stored.covers,
        "now_ms": now_ms,
    }
    await tx.change(tx.sql.insert_commit, params)
    await tx.change(tx.sql.trim_commits, {"query": stored.query, "kept": COMMITS_KEPT})
    return stored
