"""Procedures for the database's identity.

Data path   none: at the start of a session, and before objects are swept
Owns        reading the identity, beginning generations, which sessions and objects are known
Leaves      the meaning of the identity to `model.cluster_identity`
"""

from collections.abc import Sequence

from streamhouse.errors import Internal
from streamhouse.model.cluster_identity import DatabaseIdentity
from streamhouse.model.names import SessionId
from streamhouse.stores.metadata.engine import Transaction
from streamhouse.stores.metadata.rows import text_list


async def find_identity(tx: Transaction) -> DatabaseIdentity:
    row = await tx.row(tx.sql.find_identity)
    if row is None or row["generation"] is None:
        raise Internal("the generation counter is gone")
    return DatabaseIdentity(cluster_id=row["cluster_id"], begun=row["generation"], stored=row["stored"])


async def begin_generation(tx: Transaction) -> int:
    row = await tx.row(tx.sql.next_generation)
    if row is None:
        raise Internal("the generation counter is gone")
    return int(row["value"])


async def store_generation(tx: Transaction, generation: int) -> None:
    await tx.change(tx.sql.store_generation, {"generation": generation})


async def sessions_among(tx: Transaction, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
    rows = await tx.rows(tx.sql.sessions_among, {"session_ids": text_list(session_ids)})
    return frozenset(SessionId(row["session_id"]) for row in rows)
