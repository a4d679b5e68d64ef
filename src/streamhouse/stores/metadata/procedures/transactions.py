"""Procedures for transactions of producers.

Data path   every start and end of a producer's transaction; offsets in it; aborted transactions of partitions
Owns        locking the row during a change; committing its offsets in the transaction that decides it
Leaves      state transitions to `model.transaction_transitions`, rows of aborted ones to publications of runs

A call that also locks sessions and partitions locks them before the row, and offsets after it.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Final

from streamhouse.errors import LeaseLost, SessionLost
from streamhouse.model import transaction_transitions as changes
from streamhouse.model.cluster import SessionState
from streamhouse.model.group import GroupOffset
from streamhouse.model.names import Epoch, PartitionId, SessionId
from streamhouse.model.transaction import (
    AbortedTransaction,
    InitProducerRequest,
    PendingOffset,
    StoredTransaction,
    TransactionCall,
    TransactionState,
)
from streamhouse.stores.metadata.engine import Transaction
from streamhouse.stores.metadata.rows import (
    Params,
    number_list,
    offset_list,
    partition_list,
    partition_of,
    partition_params,
    state_of,
)
from streamhouse.stores.metadata.transaction_rows import (
    aborted_of,
    group_offset_of,
    pending_params,
    transaction_of,
    transaction_params,
)
from streamhouse.stores.metadata.transaction_store import OffsetsRequest

_FIRST: Final = ""  # sorts before every transactional id
_EARLIEST_MS: Final = -1


# --- a producer and its transaction


async def init_producer(
    tx: Transaction, requested: InitProducerRequest, *, by: SessionId | None = None
) -> StoredTransaction:
    await _check_session(tx, by)
    row = await _lock_transaction(tx, requested.transactional_id)
    if row is None:
        created = changes.new_transaction(requested, now_ms=await tx.now_ms())
        if await tx.change(tx.sql.insert_transaction, transaction_params(created)):
            return created
        row = await _lock_transaction(tx, requested.transactional_id)
        assert row is not None, f"neither inserted nor there; transactional_id={requested.transactional_id!r}"
    return await _write(tx, row, changes.init_producer(row, requested, now_ms=await tx.now_ms()))


async def add_partitions(
    tx: Transaction, call: TransactionCall, partitions: Sequence[PartitionId], *, limit: int
) -> StoredTransaction:
    row = await _lock_transaction(tx, call.transactional_id)
    result: list[PartitionId] = []
    known = set() if row is None else set(row.partitions)
    if new := [each for each in partitions if each not in known]:
        rows = await tx.rows(tx.sql.existing_partitions, {"partitions": partition_list(new)})
        result = [partition_of(each) for each in rows]
    return await _write(tx, row, changes.add_partitions(row, call, result, limit=limit, now_ms=await tx.now_ms()))


async def end_transaction(
    tx: Transaction, call: TransactionCall, *, commit: bool, bump: bool, fresh_id: int, by: SessionId | None = None
) -> StoredTransaction:
    await _check_session(tx, by)
    row = await _lock_transaction(tx, call.transactional_id)
    now_ms = await tx.now_ms()
    return await _write(tx, row, changes.end(row, call, commit=commit, bump=bump, fresh_id=fresh_id, now_ms=now_ms))


async def expire_transaction(tx: Transaction, transactional_id: str, number: int) -> StoredTransaction | None:
    row = await _lock_transaction(tx, transactional_id)
    expired = changes.expire(row, number, now_ms=await tx.now_ms())
    return None if expired is None else await _write(tx, row, expired)


async def complete_transaction(tx: Transaction, transactional_id: str, number: int) -> None:
    row = await _lock_transaction(tx, transactional_id)
    completed = changes.complete(row, number, now_ms=await tx.now_ms())
    if completed is not None:
        await _write(tx, row, completed)


async def find_transaction(tx: Transaction, transactional_id: str) -> StoredTransaction | None:
    row = await tx.row(tx.sql.find_transaction, {"transactional_id": transactional_id})
    return None if row is None else transaction_of(row)


async def transaction_of_producer(tx: Transaction, producer_id: int) -> StoredTransaction | None:
    row = await tx.row(tx.sql.transaction_of_producer, {"producer_id": producer_id})
    return None if row is None else transaction_of(row)


async def due_transactions(
    tx: Transaction, *, prepared_before_ms: int, limit: int, after: StoredTransaction | None = None
) -> Sequence[StoredTransaction]:
    now_ms = await tx.now_ms()
    params: Params = {
        "now_ms": now_ms,
        "decided_ms": now_ms - prepared_before_ms,
        "limit": limit,
        "after_ms": _EARLIEST_MS if after is None else changes.due_at_ms(after),
        "after": _FIRST if after is None else after.transactional_id,
    }
    return [transaction_of(row) for row in await tx.rows(tx.sql.due_transactions, params)]


async def list_transactions(tx: Transaction, *, after: str | None, limit: int) -> Sequence[StoredTransaction]:
    params: Params = {"after": after or _FIRST, "limit": limit}
    return [transaction_of(row) for row in await tx.rows(tx.sql.list_transactions, params)]


async def forget_transactions(tx: Transaction, older_than_ms: int, limit: int) -> int:
    before_ms = await tx.now_ms() - older_than_ms
    return await tx.change(tx.sql.forget_transactions, {"before_ms": before_ms, "limit": limit})


# --- offsets that are committed if a transaction is


async def put_pending_offsets(
    tx: Transaction,
    session_id: SessionId,
    shard: PartitionId,
    epoch: Epoch,
    call: TransactionCall,
    group_id: str,
    offsets: Sequence[PendingOffset],
    *,
    begins: bool,
) -> None:
    await _check_lease(tx, session_id, shard, epoch)
    row = await _lock_transaction(tx, call.transactional_id)
    await _write(tx, row, changes.add_offsets(row, call, begins=begins, now_ms=await tx.now_ms()))
    await tx.change_each(
        tx.sql.put_pending_offset, (pending_params(call.transactional_id, shard, group_id, each) for each in offsets)
    )


async def pending_offsets(tx: Transaction, requested: Sequence[OffsetsRequest]) -> Set[GroupOffset]:
    result: set[GroupOffset] = set()
    for group_id, partitions in requested:
        if partitions is None:
            rows = await tx.rows(tx.sql.pending_of_group, {"group_id": group_id})
        else:
            rows = await tx.rows(tx.sql.find_pending, {"group_id": group_id, "partitions": partition_list(partitions)})
        result.update(map(group_offset_of, rows))
    return result


# --- aborted transactions in partitions


async def aborted_transactions(
    tx: Transaction, from_offsets: Mapping[PartitionId, int], limit: int
) -> Mapping[PartitionId, Sequence[AbortedTransaction]]:
    result: dict[PartitionId, list[AbortedTransaction]] = {}
    for row in await tx.rows(tx.sql.aborted_of, {"from_offsets": offset_list(from_offsets), "limit": limit}):
        result.setdefault(partition_of(row), []).append(aborted_of(row))
    return result


async def forget_aborted(tx: Transaction, partition: PartitionId, last_offsets: Sequence[int]) -> None:
    params = {**partition_params(partition), "last_offsets": number_list(last_offsets)}
    await tx.change(tx.sql.forget_aborted, params)


async def _lock_transaction(tx: Transaction, transactional_id: str) -> StoredTransaction | None:
    row = await tx.row(tx.sql.hold_transaction, {"transactional_id": transactional_id})
    return None if row is None else transaction_of(row)


async def _write(tx: Transaction, row: StoredTransaction | None, changed: StoredTransaction) -> StoredTransaction:
    """Write a changed row; if the transaction was decided, commit or drop its offsets."""
    if changed is row:
        return changed
    named = {"transactional_id": changed.transactional_id}
    if row is not None and row.state is TransactionState.ONGOING and changed.state.is_prepared:
        if changed.state is TransactionState.PREPARE_COMMIT:
            await tx.change(tx.sql.commit_pending_offsets, named)
        await tx.change(tx.sql.drop_pending_offsets, named)
    await tx.change(tx.sql.update_transaction, transaction_params(changed))
    return changed


async def _check_session(tx: Transaction, session_id: SessionId | None) -> None:
    """Raise `SessionLost` unless the session is live and unexpired; None: no check."""
    if session_id is None:
        return
    session = await tx.row(tx.sql.find_session, {"session_id": session_id})
    if session is None or session["state"] != SessionState.LIVE or session["expires_at_ms"] <= await tx.now_ms():
        raise SessionLost(session_id, why="it is not live")


async def _check_lease(tx: Transaction, session_id: SessionId, shard: PartitionId, epoch: Epoch) -> None:
    """Lock and check the lease of the groups' shard; raises `LeaseLost` unless the session holds it."""
    session = await tx.row(tx.sql.find_session, {"session_id": session_id})
    if session is None or session["state"] != SessionState.LIVE:
        raise LeaseLost([shard], why="session is not live")
    states = [state_of(row) for row in await tx.rows(tx.sql.find_partitions, {"partitions": partition_list([shard])})]
    if not any(state.holder == session_id and state.epoch == epoch for state in states):
        raise LeaseLost([shard], why="epoch or holder differs")
