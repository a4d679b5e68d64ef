"""TokenIssuer: bearer tokens (JWT) of an OpenID provider, checked against its published keys (JWKS).

Only asymmetric algorithms are accepted, whatever a token's header says, and only keys that the provider publishes for
signatures. Keys are fetched at the start, every `security.oauth_refresh_s`, and when a token names a key that isn't
known, at most every `UNKNOWN_KEY_WAIT_S`. While the provider is unavailable, the keys that are known stay in use.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from streamhouse.clock import Clock
from streamhouse.config import SecuritySettings
from streamhouse.errors import Misconfigured, NotAuthenticated, Unavailable
from streamhouse.model.access import GROUP, MAX_NAME_CHARS, USER, Caller, Principal

log = logging.getLogger(__name__)

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519",
)  # fmt: skip
KEY_TYPES: Final = ("RSA", "EC", "OKP")
MAX_KEYS: Final = 100
MAX_GROUPS: Final = 100
UNKNOWN_KEY_WAIT_S: Final = 10.0
"""Minimum time between two fetches caused by tokens with unknown keys, which any client can send."""

FetchKeys = Callable[[], Awaitable[bytes]]
"""Fetches the provider's JWKS; raises `Unavailable`."""


class _Keys(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class TokenIssuer:
    def __init__(self, settings: SecuritySettings, fetch: FetchKeys, *, clock: Clock) -> None:
        self._settings = settings
        self._fetch = fetch
        self._clock = clock
        self._keys = KeySet([])
        self._fetched_at: float | None = None
        self._fetching = asyncio.Lock()
        self._registry = jws.JWSRegistry(algorithms=list(ALGORITHMS))
        check_issuer(settings)

    def __repr__(self) -> str:
        return f"<TokenIssuer {self._settings.oauth_issuer} keys={len(self._keys.keys)}>"

    async def verify(self, token: str) -> Caller:
        """The caller that a token identifies; raise `NotAuthenticated` if it isn't valid here and now."""
        await self._expect_key_of(token)
        try:
            claims = jwt.decode(token, self._keys, algorithms=list(ALGORITHMS), registry=self._registry).claims
            self._claims_registry().validate(claims)
            return self._caller_of(claims)
        # joserfc raises ValueError for a key that it doesn't find; an expiry may be no number that a float can be
        except (JoseError, ValueError, TypeError, OverflowError) as error:
            raise NotAuthenticated(f"the token is not valid; why={_reason(error)}") from None

    async def run(self) -> None:
        """Fetch the keys now and then, until cancelled."""
        while True:
            await self._refresh()
            wait_s = self._settings.oauth_refresh_s if self._keys.keys else UNKNOWN_KEY_WAIT_S
            await self._clock.sleep(wait_s)

    # --- claims

    def _claims_registry(self) -> jwt.JWTClaimsRegistry:
        settings = self._settings
        requested_claims: dict[str, Any] = {
            "iss": {"essential": True, "value": settings.oauth_issuer},
            "exp": {"essential": True},
            settings.oauth_principal_claim: {"essential": True},
        }
        if settings.oauth_audience:
            requested_claims["aud"] = {"essential": True, "value": settings.oauth_audience}
        return jwt.JWTClaimsRegistry(
            now=lambda: self._clock.now_ms() // 1000, leeway=round(settings.oauth_clock_skew_s), **requested_claims
        )

    def _caller_of(self, claims: Mapping[str, Any]) -> Caller:
        settings = self._settings
        name, expires_s = claims.get(settings.oauth_principal_claim), claims["exp"]
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS or name == "*":
            raise NotAuthenticated(f"the token's claim {settings.oauth_principal_claim} is no user's name")
        if settings.oauth_scope and settings.oauth_scope not in _words(claims.get("scope", claims.get("scp"))):
            raise NotAuthenticated(f"the token lacks a scope; scope={settings.oauth_scope}")
        groups = _words(claims.get(settings.oauth_groups_claim)) if settings.oauth_groups_claim else []
        return Caller(
            principal=Principal(USER, name),
            groups=tuple(Principal(GROUP, group) for group in groups[:MAX_GROUPS]),
            expires_at_ms=round((float(expires_s) + settings.oauth_clock_skew_s) * 1000),
        )

    # --- keys

    async def _expect_key_of(self, token: str) -> None:
        """Fetch the keys if the token names one that isn't known."""
        if token.count(".") != 2:
            raise NotAuthenticated("the token is no signed JWT")
        try:
            header = jws.extract_compact(token.encode()).headers()
        except (JoseError, ValueError, TypeError):
            raise NotAuthenticated("the token can't be read") from None
        if not isinstance(header, dict) or header.get("alg") not in ALGORITHMS:
            raise NotAuthenticated("the token's algorithm is not accepted")
        key_id = header.get("kid")
        if key_id is not None and any(key.kid == key_id for key in self._keys.keys):
            return
        now = self._clock.monotonic()
        if self._fetched_at is None or (key_id is not None and now - self._fetched_at >= UNKNOWN_KEY_WAIT_S):
            await self._refresh()

    async def _refresh(self) -> None:
        requested_at = self._clock.monotonic()
        async with self._fetching:
            if self._fetched_at is not None and self._fetched_at >= requested_at:
                return  # a concurrent caller has just fetched them
            self._fetched_at = self._clock.monotonic()
            try:
                self._keys = parse_keys(await self._fetch())
            except Unavailable as error:
                log.warning(
                    "the issuer's keys can't be fetched; those that are known stay in use",
                    extra={"issuer": self._settings.oauth_issuer, "why": str(error)},
                )


def check_issuer(settings: SecuritySettings) -> None:
    """Raise `Misconfigured` unless tokens can be checked with these settings."""
    if not settings.oauth_jwks_url.startswith("https://"):
        raise Misconfigured("security.oauth_issuer needs security.oauth_jwks_url, an https:// address")
    if not settings.oauth_audience:
        raise Misconfigured(
            "security.oauth_issuer needs security.oauth_audience, or tokens for other services would be accepted here"
        )


def parse_keys(data: bytes) -> KeySet:
    """The keys of a JWKS that may verify signatures; raise `Unavailable` for what is no JWKS."""
    try:
        published = msgspec.json.decode(data, type=_Keys).keys
    except (msgspec.DecodeError, RecursionError):
        raise Unavailable("the issuer's answer is no JWKS") from None
    usable = [
        key
        for key in published[:MAX_KEYS]
        if key.get("kty") in KEY_TYPES and key.get("use", "sig") == "sig" and "d" not in key
    ]
    keys = []
    for key in usable:
        try:
            keys += KeySet.import_key_set({"keys": [key]}).keys
        except (JoseError, ValueError, TypeError, KeyError) as error:
            log.warning(
                "a key of the issuer's can't be used", extra={"kid": str(key.get("kid"))[:100], "why": str(error)}
            )
    return KeySet(keys)


def _words(value: object) -> list[str]:
    """The words of a claim: a list of texts, or one text with spaces."""
    if isinstance(value, str):
        return value.split()
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _reason(error: Exception) -> str:
    return str(getattr(error, "error", None) or type(error).__name__)[:100]
