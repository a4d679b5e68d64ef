"""Decoys: credentials with which users who aren't there are challenged, so that they look like those who are.

A decoy of a name has the same salt at each login, on every agent of a cluster with a secret. It has as many iterations
as some stored credential has, and a salt as long, so it doesn't stand out where users were made by different tools.
"""

import hmac
import secrets
from collections.abc import Mapping
from typing import Final

from streamhouse.broker.dependencies import Dependencies
from streamhouse.model.scram import SALT_BYTES, ScramCredential, ScramMechanism

REFRESH_S: Final = 60.0
"""Users are looked at again after so long, if they may have changed."""

Shape = tuple[int, int]
"""Iterations, and length of the salt."""


class Decoys:
    def __init__(self, dependencies: Dependencies) -> None:
        self._settings = dependencies.settings.security
        self._metadata = dependencies.metadata
        self._clock = dependencies.clock
        secret = dependencies.secrets.cluster_secret
        self._key = hmac.digest(secret.encode(), b"streamhouse decoy", "sha256") if secret else secrets.token_bytes(32)
        self._shapes: Mapping[ScramMechanism, list[Shape]] = {}
        self._generation = -1
        self._refreshed_at = float("-inf")

    async def refresh(self, generation: int) -> None:
        """Look at the users again, if they may have changed."""
        now = self._clock.monotonic()
        if generation == self._generation or now < self._refreshed_at + REFRESH_S:
            return
        self._generation, self._refreshed_at = generation, now
        users = await self._metadata.users()
        self._shapes = {
            mechanism: sorted(
                (each.iterations, len(each.salt)) for user in users if (each := user.credentials.get(mechanism))
            )
            for mechanism in ScramMechanism
        }

    def make(self, name: str, mechanism: ScramMechanism) -> ScramCredential:
        """A credential that no password fits."""
        seed = hmac.digest(self._key, f"{mechanism}:{name}".encode(), "sha512")
        shapes = self._shapes.get(mechanism) or [(self._settings.scram_iterations, SALT_BYTES)]
        iterations, salt_bytes = shapes[int.from_bytes(seed[-8:], "big") % len(shapes)]
        nothing = hmac.digest(self._key, seed, mechanism.hash_name)
        return ScramCredential(
            mechanism=mechanism,
            salt=(seed * (salt_bytes // len(seed) + 1))[:salt_bytes],
            iterations=iterations,
            stored_key=nothing,
            server_key=nothing,
        )
