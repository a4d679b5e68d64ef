"""IdentityStore: cluster id and generations of a database; a part of the metadata store's interface.

Owns        the contract of each call
Leaves      the meaning of the numbers to `model.cluster_identity`, running the calls to the engines
"""

from collections.abc import Sequence
from typing import Protocol

from streamhouse.model.cluster_identity import DatabaseIdentity
from streamhouse.model.names import SessionId
from streamhouse.model.orphan_adoption import Adoption


class IdentityStore(Protocol):
    async def identity(self) -> DatabaseIdentity:
        """The cluster id, None if there is none yet, and the generations, in one snapshot."""
        ...

    async def begin_generation(self) -> int:
        """A new generation number, one higher than the last."""
        ...

    async def store_generation(self, generation: int) -> None:
        """Store that the object store has this generation; a higher one is kept."""
        ...

    async def sessions_among(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        """Those sessions that have rows, in any state. Rows of sessions that ended long ago are deleted."""
        ...

    async def adopt(self, adoption: Adoption) -> None:
        """Register unreferenced objects, raise counters and set the cluster id, in one transaction.

        For stores that no agent uses. Raises `Internal` if one of the objects was registered meanwhile."""
        ...
