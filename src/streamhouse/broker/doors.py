"""Doors: what the broker is given to reach the world with, in one value.

Owns        nothing; it only carries
Leaves      opening and closing to `agent`, or to a simulation
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from streamhouse.clock import Clock, Ids
from streamhouse.config import Settings
from streamhouse.model.lease import Address
from streamhouse.model.names import SessionId
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.objects.base import ObjectStore

from .wal.base import Wal, WalRecovery


class Wals(WalRecovery, Protocol):
    """Where write-ahead logs are made, and where those of dead sessions are found."""

    @property
    def kind(self) -> str:
        """Where they are: "disk" or "object"; written down with each session, for whoever must recover it."""
        ...

    async def open(self, session: SessionId) -> Wal:
        """Begin the log of a new session."""
        ...


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

    def wals_of(self, kind: str) -> WalRecovery | None:
        """Where logs of this kind can be read; None when this agent can't."""
        return self.wals if kind == self.wals.kind else self.other_wals.get(kind)
