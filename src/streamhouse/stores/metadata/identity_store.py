"""The calls by which a database and an object store know each other; a part of the metadata store's door.

Owns        what each call promises
Leaves      what the numbers mean to `model.cluster_identity`, running the calls to the engines
"""

from collections.abc import Sequence
from typing import Protocol

from streamhouse.model.cluster_identity import DatabaseIdentity
from streamhouse.model.names import SessionId
from streamhouse.model.orphan_adoption import Adoption


class IdentityStore(Protocol):
    async def identity(self) -> DatabaseIdentity:
        """The cluster id, None while nobody proposed one, and the generations, in one snapshot."""
        ...

    async def begin_generation(self) -> int:
        """A number that nobody ever had, one higher than the last."""
        ...

    async def store_generation(self, generation: int) -> None:
        """Remember that the object store has this generation; a higher one stays."""
        ...

    async def sessions_among(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        """Those that there are rows of, in whatever state. Sessions that ended long ago were forgotten."""
        ...

    async def adopt(self, adoption: Adoption) -> None:
        """Register objects that no row names, raise counters and take the cluster id, all or nothing.

        For stores that no agent uses. Raise `Internal` when one of the objects was registered meanwhile.
        """
        ...
