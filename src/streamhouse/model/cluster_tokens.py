"""ClusterTokens: short-lived tokens that are signed with the cluster secret.

Agents, SQL workers and supervisors authenticate to agents with them, also on behalf of a user, with that user's
permissions. Every holder of the secret can make and verify tokens without a request to another process.

A token is `sht1.CLAIMS.SIGNATURE`: claims as JSON, HMAC-SHA-256, both in URL-safe base64.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final, Protocol

import msgspec

from streamhouse.errors import NotAuthenticated
from streamhouse.model.access import PROCESS_KINDS, USER, Caller, Principal

PREFIX: Final = "sht1."
MAX_TOKEN_CHARS: Final = 4096
PROCESS_TTL_S: Final = 300
"""Lifetime of a process's own token; it makes a new one for each connection."""
CLOCK_SKEW_MS: Final = 60_000
"""Maximum difference between the clocks of two machines."""


class _Claims(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str
    name: str
    expires_at_ms: int
    groups: tuple[str, ...] = ()
    host: str = ""


class WallClock(Protocol):
    def now_ms(self) -> int: ...


class ClusterTokens:
    def __init__(self, secret: str, *, clock: WallClock) -> None:
        # A derived key: signatures that are made with the secret for other purposes are no valid tokens.
        self._key = hmac.digest(secret.encode(), b"streamhouse cluster token", hashlib.sha256)
        self._clock = clock

    def __repr__(self) -> str:
        return "<ClusterTokens>"  # never the key

    def make(
        self,
        principal: Principal,
        *,
        groups: tuple[Principal, ...] = (),
        host: str = "",
        ttl_s: float = PROCESS_TTL_S,
    ) -> str:
        """Make a token with which its bearer acts as this principal for `ttl_s`; with a host, as if from that
        address."""
        claims = _Claims(
            kind=principal.kind,
            name=principal.name,
            expires_at_ms=self._clock.now_ms() + round(ttl_s * 1000),
            groups=tuple(map(str, groups)),
            host=host,
        )
        body = _encoded(msgspec.json.encode(claims))
        return f"{PREFIX}{body}.{_encoded(self._signature(body))}"

    def verify(self, token: str) -> Caller:
        """The caller that a token authenticates; raises `NotAuthenticated` if it is invalid or expired."""
        body, _, signature = token[len(PREFIX) :].partition(".")
        if not token.startswith(PREFIX) or len(token) > MAX_TOKEN_CHARS:
            raise NotAuthenticated("the token is not a token of this cluster")
        if not token.isascii() or not hmac.compare_digest(_encoded(self._signature(body)), signature):
            raise NotAuthenticated("the token was not signed with this cluster's secret")
        claims = _claims(body)
        if self._clock.now_ms() >= claims.expires_at_ms + CLOCK_SKEW_MS:
            raise NotAuthenticated("the token has expired")
        return Caller(
            principal=Principal(claims.kind, claims.name),
            groups=tuple(Principal.parse(group) for group in claims.groups),
            host=claims.host,
            # A process has the secret as long as it lives, so its connections don't expire.
            expires_at_ms=None if claims.kind in PROCESS_KINDS else claims.expires_at_ms,
            is_delegated=claims.kind not in PROCESS_KINDS,
        )

    def _signature(self, body: str) -> bytes:
        return hmac.digest(self._key, body.encode(), hashlib.sha256)


def _claims(body: str) -> _Claims:
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=_Claims)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise NotAuthenticated("the token can't be read") from None
    if claims.kind not in (USER, *PROCESS_KINDS):
        raise NotAuthenticated("the token names no principal")
    return claims


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
