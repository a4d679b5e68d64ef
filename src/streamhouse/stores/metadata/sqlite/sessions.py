"""Sessions and leases as transactions on SQLite.

Data path   before the first append, every heartbeat, hand-over and recovery
Owns        who may act: live, claimed or ended; who gets which lease under which epoch
Leaves      publishing to `segments`
"""

from collections.abc import Sequence

from streamhouse.errors import Internal, SessionLost
from streamhouse.model.lease import PartitionState, Session, SessionState
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.model.segment import SegmentCommit
from streamhouse.stores.metadata.base import NewSession
from streamhouse.stores.metadata.rows import (
    Params,
    partition_list,
    partition_params,
    session_of,
    session_params,
    state_of,
)
from streamhouse.stores.metadata.sqlite.database import Transaction
from streamhouse.stores.metadata.sqlite.segments import publish


def open_session(tx: Transaction, new: NewSession) -> Session:
    if _find(tx, new.session_id) is not None:
        renew_session(tx, new.session_id, new.ttl_ms)  # the answer to the first call was lost
    else:
        node = tx.row(tx.sql.lowest_free_node_id)
        assert node is not None
        times = {"now_ms": tx.now_ms, "expires_at_ms": tx.now_ms + new.ttl_ms}
        tx.change(tx.sql.insert_session, {**session_params(new), **times, "node_id": node["node_id"]})
    return _get(tx, new.session_id)


def renew_session(tx: Transaction, session_id: SessionId, ttl_ms: int) -> None:
    if not tx.change(tx.sql.renew_session, {"session_id": session_id, "expires_at_ms": tx.now_ms + ttl_ms}):
        raise SessionLost(session_id, why=_state(tx, session_id))


def end_session(tx: Transaction, session_id: SessionId) -> None:
    session = _get(tx, session_id)
    if session.state is SessionState.ENDED:
        return
    _check_live(session)
    _free_and_end(tx, session_id)


def list_sessions(tx: Transaction) -> Sequence[Session]:
    return [session_of(row) for row in tx.rows(tx.sql.list_sessions)]


def acquire(tx: Transaction, session_id: SessionId, partitions: Sequence[PartitionId]) -> Sequence[PartitionState]:
    session = _get(tx, session_id)
    _check_live(session)
    if session.expires_at_ms <= tx.now_ms:
        raise SessionLost(session_id, why=f"expired {tx.now_ms - session.expires_at_ms} ms ago")
    wanted = {"partitions": partition_list(partitions)}
    states = [state_of(row) for row in tx.rows(tx.sql.find_partitions, wanted)]
    free = [state.partition for state in states if state.holder is None]
    if free:
        _take(tx, session_id, free)
        states = [state_of(row) for row in tx.rows(tx.sql.find_partitions, wanted)]
    return [state for state in states if state.holder == session_id]


def release(tx: Transaction, session_id: SessionId, partitions: Sequence[PartitionId]) -> None:
    session = _get(tx, session_id)
    if session.state is SessionState.ENDED:
        return
    _check_live(session)
    tx.change_each(tx.sql.release_lease, ({**partition_params(p), "holder": session_id} for p in partitions))


def held_by(tx: Transaction, session_id: SessionId) -> Sequence[PartitionState]:
    return [state_of(row) for row in tx.rows(tx.sql.partitions_held_by, {"holder": session_id})]


def claim_recovery(tx: Transaction, dead: SessionId, by: SessionId, proven_dead: bool) -> int | None:
    _check_live(_get(tx, by))
    if dead == by:
        return None
    params: Params = {"session_id": dead, "claimed_by": by, "now_ms": tx.now_ms, "proven_dead": int(proven_dead)}
    row = tx.row(tx.sql.claim_session, params)
    return None if row is None else int(row["claim"])


def finish_recovery(tx: Transaction, dead: SessionId, claim: int, commits: Sequence[SegmentCommit]) -> None:
    session = _get(tx, dead)
    if session.claim != claim or session.state is SessionState.LIVE:
        raise SessionLost(dead, why=f"claim {claim} is not the newest, which is {session.claim}")
    if session.state is SessionState.ENDED:
        return
    publish(tx, dead, commits, may_publish=True)
    _free_and_end(tx, dead)


def _take(tx: Transaction, session_id: SessionId, free: Sequence[PartitionId]) -> None:
    row = tx.row(tx.sql.next_epoch)
    if row is None:
        raise Internal("the epoch counter is gone")
    lease = {"holder": session_id, "epoch": row["value"]}
    tx.change_each(tx.sql.take_lease, ({**partition_params(p), **lease} for p in free))


def _free_and_end(tx: Transaction, session_id: SessionId) -> None:
    tx.change(tx.sql.free_leases, {"holder": session_id})
    tx.change(tx.sql.end_session, {"session_id": session_id})


def _find(tx: Transaction, session_id: SessionId) -> Session | None:
    row = tx.row(tx.sql.find_session, {"session_id": session_id})
    return None if row is None else session_of(row)


def _get(tx: Transaction, session_id: SessionId) -> Session:
    session = _find(tx, session_id)
    if session is None:
        raise SessionLost(session_id, why="unknown")
    return session


def _check_live(session: Session) -> None:
    if session.state is not SessionState.LIVE:
        raise SessionLost(session.session_id, why=session.state)


def _state(tx: Transaction, session_id: SessionId) -> str:
    session = _find(tx, session_id)
    return "unknown" if session is None else session.state
