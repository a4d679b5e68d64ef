"""Revoked logins: connections end within a second after the password, key or token behind them is gone or changed.

Kafka lets such connections be until their clients log in again (KIP-368), which by default is never. Here users and
keys hold like rules do, on every agent. A changed password ends connections, too: their clients log in with the new
one. A connection by a certificate, a token of the issuer or a token of the cluster shows nothing that is stored.
"""

import logging
from collections.abc import Iterable
from typing import Final

from streamhouse.broker.security.security import Security
from streamhouse.clock import Clock
from streamhouse.errors import Retriable
from streamhouse.model.access import CredentialRef
from streamhouse.wire.kafka.connection import Connection

log = logging.getLogger(__name__)

CHECK_S: Final = 0.25
"""How often is looked whether credentials may have changed."""


class RevokedLogins:
    def __init__(self, connections: Iterable[Connection], security: Security, clock: Clock) -> None:
        self._connections = connections
        self._security = security
        self._clock = clock

    async def run(self) -> None:
        """Close connections when their credentials are gone, until cancelled."""
        checked = self._security.users.generation
        while True:
            await self._clock.sleep(CHECK_S)
            generation = self._security.users.generation
            if generation == checked:
                continue
            try:
                await self.close()
            except Retriable as error:  # the metadata store is unavailable: what was known holds
                log.debug("credentials can't be read now", extra={"why": str(error)})
            else:
                checked = generation

    async def close(self) -> None:
        """Close the connections whose credentials are gone or have changed."""
        shown = {self._shown(each) for each in self._connections}
        gone = {each for each in shown if each is not None and not await self._security.holds(each)}
        for connection in [each for each in self._connections if self._shown(each) in gone]:
            connection.abort("credentials_gone", "the client's password, key or token was changed or deleted")

    def _shown(self, connection: Connection) -> CredentialRef | None:
        return connection.caller.credential
