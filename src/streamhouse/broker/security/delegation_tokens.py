"""DelegationTokens: tokens with which others log in as their owner (KIP-48), without its password.

What the bearer has to know, Kafka's HMAC, is derived from the cluster secret and the token's id. It is stored nowhere,
so who reads the metadata store can't log in with what it finds there.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.security.audit import describe_acts
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Principal
from streamhouse.model.credentials import DelegationToken
from streamhouse.model.scram import MIN_ITERATIONS, SALT_BYTES, ScramCredential, ScramMechanism, make_credential

ID_BYTES: Final = 16


class TokenCredential(NamedTuple):
    """A token, and what its bearer proves to know."""

    token: DelegationToken
    credential: ScramCredential


class DelegationTokens:
    def __init__(self, dependencies: Dependencies, secret: str) -> None:
        self._settings = dependencies.settings.security
        self._metadata = dependencies.metadata
        self._clock = dependencies.clock
        # A key of its own for this purpose, as that of cluster tokens.
        self._key = hmac.digest(secret.encode(), b"streamhouse delegation token", hashlib.sha256)

    def __repr__(self) -> str:
        return "<DelegationTokens>"  # never the key

    def hmac_of(self, token_id: str) -> bytes:
        """The secret that proves possession of a token."""
        return hmac.digest(self._key, token_id.encode(), hashlib.sha512)

    async def list(self) -> Sequence[DelegationToken]:
        """Every token that has not expired, oldest first."""
        now_ms = self._clock.now_ms()
        return [token for token in await self._metadata.delegation_tokens() if token.expires_at_ms > now_ms]

    async def create(
        self, owner: Principal, *, requester: Principal, renewers: Sequence[Principal], max_life_ms: int | None
    ) -> DelegationToken:
        """A new token; raise `SecurityLimit` if there are too many."""
        now_ms = self._clock.now_ms()
        longest_ms = round(self._settings.delegation_token_max_s * 1000)
        max_at_ms = now_ms + (longest_ms if max_life_ms is None else min(max_life_ms, longest_ms))
        token = DelegationToken(
            token_id=secrets.token_urlsafe(ID_BYTES),
            owner=owner,
            requester=requester,
            renewers=tuple(renewers),
            issued_at_ms=now_ms,
            expires_at_ms=min(max_at_ms, now_ms + self.renewal_ms),
            max_at_ms=max_at_ms,
        )
        describe_acts(f"delegation token {token.token_id} of {owner}")
        await self._metadata.put_delegation_token(token, max_tokens=self._settings.max_delegation_tokens)
        return token

    @property
    def renewal_ms(self) -> int:
        """How long a token lives without being renewed."""
        return round(self._settings.delegation_token_renew_s * 1000)

    async def prolong(self, token: DelegationToken, period_ms: int) -> int | None:
        """Let a token expire after this time, or at the end of its maximum lifetime. Returns when; None if the token
        was deleted meanwhile."""
        expires_at_ms = min(token.max_at_ms, self._clock.now_ms() + period_ms)
        is_there = await self._metadata.prolong_delegation_token(token.token_id, expires_at_ms)
        return expires_at_ms if is_there else None

    async def delete(self, token: DelegationToken) -> int:
        """End a token now; returns the time."""
        await self._metadata.delete_delegation_token(token.token_id)
        return self._clock.now_ms()

    async def find_by_hmac(self, given: bytes) -> DelegationToken | None:
        """The token whose bearer knows this."""
        async for token in iterate_fairly(await self._metadata.delegation_tokens()):
            if hmac.compare_digest(self.hmac_of(token.token_id), given):
                return token
        return None

    def is_expired(self, token: DelegationToken) -> bool:
        return token.expires_at_ms <= self._clock.now_ms()

    async def find(self, token_id: str) -> DelegationToken | None:
        """A token that has not expired."""
        token = await self._metadata.find_delegation_token(token_id)
        return None if token is None or self.is_expired(token) else token

    async def find_credential(self, token_id: str, mechanism: ScramMechanism) -> TokenCredential | None:
        """A token and its SCRAM credential, whose password is the HMAC in base64, as in Kafka."""
        if (token := await self.find(token_id)) is None:
            return None
        password = base64.b64encode(self.hmac_of(token_id)).decode()
        # The password has 512 random bits: more iterations would make nothing safer.
        make: Callable[[], ScramCredential] = partial(
            make_credential,
            mechanism,
            password,
            iterations=MIN_ITERATIONS,
            random_bytes=lambda _: self.hmac_of(f"salt {token_id}")[:SALT_BYTES],
        )
        return TokenCredential(token, await asyncio.to_thread(make))
