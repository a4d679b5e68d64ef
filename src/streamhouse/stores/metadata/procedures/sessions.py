"""Procedures for sessions, leases, recovery and reserved offsets.

Owns        whether a session is live, claimed or ended; who gets which lease under which epoch; how far offsets are
            reserved by a leader whose WAL only it can read, and the gap after its recovery was abandoned
Leaves      publishing to `segments`, appending recovered records again to `broker.failover`
"""

import json
from collections.abc import Mapping, Sequence

from streamhouse.errors import Internal, LeaseLost, SessionLost
from streamhouse.model.cluster import (
    AbandonedRange,
    Change,
    ChangeKind,
    Departure,
    Membership,
    PartitionState,
    PutReport,
    Session,
    SessionState,
)
from streamhouse.model.names import NodeId, PartitionId, SessionId
from streamhouse.model.segment import SegmentCommit
from streamhouse.stores.metadata.base import NewSession
from streamhouse.stores.metadata.engine import Lock, Transaction, lease_changes
from streamhouse.stores.metadata.procedures.segments import publish
from streamhouse.stores.metadata.rows import (
    Params,
    abandoned_of,
    partition_list,
    partition_params,
    session_of,
    session_params,
    state_of,
    text_list,
    topic_id_of,
)


async def open_session(tx: Transaction, session: NewSession) -> Session:
    await tx.lock(Lock.NODE_IDS, {})
    if await _find(tx, session.session_id) is not None:
        await renew_session(tx, session.session_id, session.ttl_ms)  # the response to the first call was lost
    else:
        node = await tx.row(
            tx.sql.lowest_free_node_id, {"kafka_host": session.kafka.host, "kafka_port": session.kafka.port}
        )
        assert node is not None
        now_ms = await tx.now_ms()
        times = {"now_ms": now_ms, "expires_at_ms": now_ms + session.ttl_ms}
        await tx.change(tx.sql.insert_session, {**session_params(session), **times, "node_id": node["node_id"]})
        tx.announce(Change(ChangeKind.SESSIONS))
    return await _get(tx, session.session_id)


async def renew_session(
    tx: Transaction,
    session_id: SessionId,
    ttl_ms: int,
    *,
    wal_start: int = 0,
    wal_durable: int = 0,
    puts: PutReport | None = None,
) -> None:
    now_ms, puts = await tx.now_ms(), puts or PutReport()
    log: Params = {"wal_start": wal_start, "wal_durable": wal_durable}
    reported: Params = {
        "put_at_ms": 0 if puts.age_ms is None else now_ms - puts.age_ms,
        "put_failing": int(puts.failing),
    }
    times: Params = {"expires_at_ms": now_ms + ttl_ms}
    if not await tx.change(tx.sql.renew_session, {"session_id": session_id, **times, **log, **reported}):
        raise SessionLost(session_id, why=await _state(tx, session_id))


async def drain_session(tx: Transaction, session_id: SessionId, *, draining: bool = True) -> None:
    if not await tx.change(tx.sql.drain_session, {"session_id": session_id, "draining": int(draining)}):
        raise SessionLost(session_id, why=await _state(tx, session_id))
    tx.announce(Change(ChangeKind.SESSIONS))


async def end_session(tx: Transaction, session_id: SessionId) -> None:
    await tx.lock(Lock.SESSIONS, {"session_ids": text_list([session_id])})
    session = await _get(tx, session_id)
    if session.state is SessionState.ENDED:
        return
    _check_live(session)
    await tx.lock(Lock.PARTITIONS_HELD_BY, {"holder": session_id})
    await free_and_end(tx, session_id)


async def membership(tx: Transaction) -> Membership:
    now_ms = await tx.now_ms()
    return Membership(now_ms=now_ms, sessions=[session_of(row) for row in await tx.rows(tx.sql.list_sessions)])


async def departures(tx: Transaction, within_ms: int, limit: int) -> Sequence[Departure]:
    now_ms = await tx.now_ms()
    lately: Params = {"after_ms": now_ms - within_ms, "now_ms": now_ms, "limit": limit}
    rows = await tx.rows(tx.sql.list_departed_sessions, lately)
    return [
        Departure(
            session=session_of(row),
            ago_ms=now_ms - row["departed_at_ms"],
            died=row["departed_at_ms"] == row["expires_at_ms"],
        )
        for row in rows
    ]


async def acquire(
    tx: Transaction, session_id: SessionId, partitions: Sequence[PartitionId]
) -> Sequence[PartitionState]:
    await check_unexpired(tx, session_id)
    requested = {"partitions": partition_list(partitions)}
    states = [state_of(row) for row in await tx.rows(tx.sql.find_partitions, requested)]
    free = [state.partition for state in states if state.holder is None]
    if free:
        await _take(tx, session_id, free)
        states = [state_of(row) for row in await tx.rows(tx.sql.find_partitions, requested)]
    return [state for state in states if state.holder == session_id]


async def release(tx: Transaction, session_id: SessionId, partitions: Sequence[PartitionId]) -> None:
    session = await _get(tx, session_id)
    if session.state is SessionState.ENDED:
        return
    _check_live(session)
    await tx.lock(Lock.PARTITIONS, {"partitions": partition_list(partitions)})
    given_up = ({**partition_params(p), "holder": session_id} for p in partitions)
    if await tx.change_each(tx.sql.release_lease, given_up):
        tx.announce(*lease_changes(p.topic_id for p in partitions))


async def held_by(tx: Transaction, session_id: SessionId) -> Sequence[PartitionState]:
    return [state_of(row) for row in await tx.rows(tx.sql.partitions_held_by, {"holder": session_id})]


async def claim_recovery(tx: Transaction, dead: SessionId, *, by: SessionId, proven_dead: bool) -> int | None:
    await tx.lock(Lock.SESSIONS, {"session_ids": text_list([dead, by])})
    _check_live(await _get(tx, by))
    if dead == by:
        return None
    now_ms = await tx.now_ms()
    params: Params = {"session_id": dead, "claimed_by": by, "now_ms": now_ms, "proven_dead": int(proven_dead)}
    row = await tx.row(tx.sql.claim_session, params)
    if row is None:
        return None
    tx.announce(Change(ChangeKind.SESSIONS))
    return int(row["claim"])


async def finish_recovery(
    tx: Transaction,
    dead: SessionId,
    claim: int,
    commits: Sequence[SegmentCommit],
    continue_at: Mapping[PartitionId, int],
) -> None:
    if await is_unrecovered(tx, dead, claim):
        await publish(tx, dead, commits, may_publish=True)
        skipped = ({**partition_params(p), "holder": dead, "continue_at": end} for p, end in continue_at.items())
        await tx.change_each(tx.sql.skip_lost, skipped)
        await free_and_end(tx, dead)


async def is_unrecovered(tx: Transaction, dead: SessionId, claim: int) -> bool:
    """Lock a claimed session and its leases to end its recovery; False if the recovery has ended."""
    await tx.lock(Lock.SESSIONS, {"session_ids": text_list([dead])})
    session = await _get(tx, dead)
    if session.claim != claim or session.state is SessionState.LIVE:
        raise SessionLost(dead, why=f"claim {claim} is not the newest, which is {session.claim}")
    if session.state is SessionState.ENDED:
        return False
    await tx.lock(Lock.PARTITIONS_HELD_BY, {"holder": dead})
    return True


async def free_and_end(tx: Transaction, session_id: SessionId) -> None:
    freed = await tx.rows(tx.sql.free_leases, {"holder": session_id})
    await tx.change(tx.sql.end_session, {"session_id": session_id, "now_ms": await tx.now_ms()})
    tx.announce(Change(ChangeKind.SESSIONS), *lease_changes(map(topic_id_of, freed)))


async def forget_sessions(tx: Transaction, older_than_ms: int, limit: int) -> int:
    before_ms = await tx.now_ms() - older_than_ms
    return await tx.change(tx.sql.forget_sessions, {"before_ms": before_ms, "limit": limit})


async def pin_partitions(
    tx: Transaction,
    pins: Mapping[PartitionId, NodeId | None],
    replicas: Mapping[PartitionId, Sequence[int]] | None = None,
) -> None:
    await tx.lock(Lock.PARTITIONS, {"partitions": partition_list(pins)})
    lists = {partition: json.dumps(list(nodes)) for partition, nodes in (replicas or {}).items()}
    pinned = ({**partition_params(p), "pinned_to": node, "replicas": lists.get(p)} for p, node in pins.items())
    if await tx.change_each(tx.sql.pin_partition, pinned):
        tx.announce(*lease_changes(p.topic_id for p in pins))


async def check_unexpired(tx: Transaction, session_id: SessionId) -> None:
    """Raise `SessionLost` unless the session is live by its state and by the clock."""
    session = await _get(tx, session_id)
    _check_live(session)
    if session.expires_at_ms <= (now_ms := await tx.now_ms()):
        raise SessionLost(session_id, why=f"expired {now_ms - session.expires_at_ms} ms ago")


async def _take(tx: Transaction, session_id: SessionId, free: Sequence[PartitionId]) -> None:
    row = await tx.row(tx.sql.next_epoch)
    if row is None:
        raise Internal("the epoch counter is gone")
    lease = {"holder": session_id, "epoch": row["value"]}
    await tx.change_each(tx.sql.take_lease, ({**partition_params(p), **lease} for p in free))
    tx.announce(*lease_changes(p.topic_id for p in free))


async def _find(tx: Transaction, session_id: SessionId) -> Session | None:
    row = await tx.row(tx.sql.find_session, {"session_id": session_id})
    return None if row is None else session_of(row)


async def _get(tx: Transaction, session_id: SessionId) -> Session:
    session = await _find(tx, session_id)
    if session is None:
        raise SessionLost(session_id, why="unknown")
    return session


def _check_live(session: Session) -> None:
    if session.state is not SessionState.LIVE:
        raise SessionLost(session.session_id, why=session.state)


async def _state(tx: Transaction, session_id: SessionId) -> str:
    session = await _find(tx, session_id)
    return "unknown" if session is None else session.state


async def reserve_offsets(tx: Transaction, session_id: SessionId, until: Mapping[PartitionId, int]) -> None:
    await check_unexpired(tx, session_id)
    rows = await tx.rows(tx.sql.find_partitions, {"partitions": partition_list(until)})
    held = {state.partition for state in map(state_of, rows) if state.holder == session_id}
    if lost := [partition for partition in until if partition not in held]:
        raise LeaseLost(lost, why="not held by this session")
    await tx.change_each(
        tx.sql.reserve_offsets,
        ({**partition_params(p), "holder": session_id, "reserved_until": end} for p, end in until.items()),
    )


async def abandon_recovery(tx: Transaction, dead: SessionId, claim: int) -> None:
    if await is_unrecovered(tx, dead, claim):
        await tx.change(tx.sql.abandon_ranges, {"holder": dead})
        await tx.change(tx.sql.skip_reserved, {"holder": dead})
        await free_and_end(tx, dead)


async def abandoned_ranges(tx: Transaction, session_id: SessionId) -> Sequence[AbandonedRange]:
    return [abandoned_of(row) for row in await tx.rows(tx.sql.abandoned_of_session, {"session_id": session_id})]


async def abandoned_sessions(tx: Transaction) -> Mapping[SessionId, int]:
    rows = await tx.rows(tx.sql.abandoned_sessions, {})
    return {SessionId(row["session_id"]): row["partitions"] for row in rows}


async def forget_abandoned(tx: Transaction, session_id: SessionId) -> None:
    await tx.change(tx.sql.forget_abandoned, {"session_id": session_id})
