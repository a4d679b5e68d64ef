"""Doors: what the broker is given to reach the world with, in one value.

Owns        nothing; it only carries
Leaves      opening and closing to `agent`, or to a simulation
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamhouse.clock import Clock, Ids
from streamhouse.config import Settings
from streamhouse.errors import Unavailable
from streamhouse.model.lease import Address
from streamhouse.model.names import PartitionId, SessionId
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.objects.base import ObjectStore

from .wal.base import Buffer, Wal, WalRecovery


class Wals(WalRecovery, Protocol):
    """Where write-ahead logs are made, and where those of dead sessions are found."""

    @property
    def kind(self) -> str:
        """Where they are: "disk" or "object"; written down with each session, for whoever must recover it."""
        ...

    async def open(self, session: SessionId) -> Wal:
        """Begin the log of a new session."""
        ...


class Peers(Protocol):
    """The other agents, as any client reaches them."""

    async def append(self, at: Address, partition: PartitionId, batch: Buffer) -> int:
        """Append a batch where another agent leads; returns its offset once it is acknowledged.

        What may be tried again is `Retriable`: then it may have been stored, or not. What would be refused again is
        `Rejected`.
        """
        ...


class NoPeers:
    """For whoever has none."""

    async def append(self, at: Address, partition: PartitionId, batch: Buffer) -> int:
        raise Unavailable(f"other agents can't be reached from here; address={at}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """`alone`: nobody else can use these stores (we hold the data folder's lock), so every other session is dead.

    `wals` is where this agent writes; `other_wals` are further ones that it can recover, by kind.
    """

    settings: Settings
    objects: ObjectStore
    metadata: MetadataStore
    wals: Wals
    clock: Clock
    ids: Ids
    kafka: Address
    http: Address
    alone: bool
    other_wals: Mapping[str, WalRecovery] = field(default_factory=dict)
    peers: Peers = field(default_factory=NoPeers)

    def wals_of(self, kind: str) -> WalRecovery | None:
        """Where logs of this kind can be read; None when this agent can't."""
        return self.wals if kind == self.wals.kind else self.other_wals.get(kind)
