"""SqlIdentityStore: the calls about the cluster's identity over an SQL engine.

Data path   broker.cluster.identity -> **identity store** -> one transaction each
Owns        the connection between the calls and their transactions
Leaves      what happens in them to `transactions.identity`, running them to the engines
"""

from collections.abc import Sequence
from functools import partial

from streamhouse.model.adoption import Adoption
from streamhouse.model.identity import DatabaseIdentity
from streamhouse.model.names import SessionId
from streamhouse.stores.metadata.engine import CountedEngine
from streamhouse.stores.metadata.transactions import identity
from streamhouse.stores.metadata.transactions.adoption import adopt


class SqlIdentityStore:
    """An `IdentityStore` over an SQL engine."""

    _engine: CountedEngine

    async def identity(self) -> DatabaseIdentity:
        return await self._engine.look(identity.find_identity)

    async def begin_generation(self) -> int:
        return await self._engine.write(identity.begin_generation)

    async def note_generation(self, generation: int) -> None:
        await self._engine.write(partial(identity.note_generation, generation=generation))

    async def sessions_among(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        return await self._engine.look(partial(identity.sessions_among, session_ids=session_ids))

    async def adopt(self, adoption: Adoption) -> None:
        await self._engine.write(partial(adopt, adoption=adoption))
