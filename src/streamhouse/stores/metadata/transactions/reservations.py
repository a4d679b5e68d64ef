"""Offsets that only a disk knows of, as transactions: reserved while its owner lives, abandoned when it is away.

Data path   before a leader with a disk of its own gives offsets away; after its death, when nobody can read that disk
Owns        how far offsets are reserved; the gap that an abandoned recovery leaves, and the memory of it
Leaves      who may do so to `sessions`, appending again what a disk still had to `broker`
"""

from collections.abc import Mapping, Sequence

from streamhouse.errors import LeaseLost
from streamhouse.model.lease import AbandonedRange
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.stores.metadata.rows import abandoned_of, partition_list, partition_params, state_of
from streamhouse.stores.metadata.transaction import Transaction
from streamhouse.stores.metadata.transactions.sessions import check_unexpired, free_and_end, is_still_to_do


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
    if await is_still_to_do(tx, dead, claim):
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
