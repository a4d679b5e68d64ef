"""Decoys: credentials with which users who aren't there are challenged, so that they look like those who are.

A decoy of a name has the same salt at each login, on every agent of a cluster with a secret. It has as many iterations
as some stored credential has, and a salt as long, so it doesn't stand out where users were made by different tools. A
password is checked against the first credential that a user has: a decoy has the mechanism that some user's first one
has, or the time of the check would reveal users who have only another one.
"""

import hmac
import secrets
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from streamhouse.broker.dependencies import Dependencies
from streamhouse.model.scram import SALT_BYTES, ScramCredential, ScramMechanism

REFRESH_S: Final = 60.0
"""Users are looked at again after so long, if they may have changed."""


class _Shape(NamedTuple):
    """The properties of a credential that a client can see."""

    mechanism: ScramMechanism
    iterations: int
    salt_bytes: int


class Decoys:
    def __init__(self, dependencies: Dependencies) -> None:
        self._settings = dependencies.settings.security
        self._metadata = dependencies.metadata
        self._clock = dependencies.clock
        secret = dependencies.secrets.cluster_secret
        self._key = hmac.digest(secret.encode(), b"streamhouse decoy", "sha256") if secret else secrets.token_bytes(32)
        self._users: Sequence[Mapping[ScramMechanism, _Shape]] = ()
        self._shapes: dict[tuple[ScramMechanism, ...], Sequence[_Shape]] = {}
        self._generation = -1
        self._refreshed_at = float("-inf")

    async def refresh(self, generation: int) -> None:
        """Look at the users again, if they may have changed."""
        now = self._clock.monotonic()
        if generation == self._generation or now < self._refreshed_at + REFRESH_S:
            return
        self._generation, self._refreshed_at = generation, now
        users = await self._metadata.users()
        self._users = [
            {
                each.mechanism: _Shape(each.mechanism, each.iterations, len(each.salt))
                for each in user.credentials.values()
            }
            for user in users
        ]
        self._shapes.clear()

    def make(self, name: str, *mechanisms: ScramMechanism) -> ScramCredential:
        """A credential that no password fits, as a user may have it whose first of these mechanisms is looked for."""
        seed = hmac.digest(self._key, f"{mechanisms[0]}:{name}".encode(), "sha512")
        shapes = self._shapes_of(mechanisms)
        mechanism, iterations, salt_bytes = shapes[int.from_bytes(seed[-8:], "big") % len(shapes)]
        nothing = hmac.digest(self._key, seed, mechanism.hash_name)
        return ScramCredential(
            mechanism=mechanism,
            salt=(seed * (salt_bytes // len(seed) + 1))[:salt_bytes],
            iterations=iterations,
            stored_key=nothing,
            server_key=nothing,
        )

    def _shapes_of(self, mechanisms: tuple[ScramMechanism, ...]) -> Sequence[_Shape]:
        """The first credential of each user that has one; if no user has one, generated ones."""
        if mechanisms not in self._shapes:
            first = (next((user[each] for each in mechanisms if each in user), None) for user in self._users)
            made_here = _Shape(mechanisms[0], self._settings.scram_iterations, SALT_BYTES)
            self._shapes[mechanisms] = sorted(shape for shape in first if shape is not None) or [made_here]
        return self._shapes[mechanisms]
