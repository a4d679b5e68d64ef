"""Bearer tokens of an OpenID provider: what is accepted, and what never is."""

import base64
import hmac
import json
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from streamhouse.broker.security.token_issuer import UNKNOWN_KEY_WAIT_S, TokenIssuer, parse_keys
from streamhouse.config import SecuritySettings
from streamhouse.errors import Misconfigured, NotAuthenticated, Unavailable
from streamhouse.model.access import GROUP, USER, Principal
from tests.contracts.clocks import ManualClock

ISSUER, AUDIENCE = "https://id.example", "streamhouse"
SETTINGS = SecuritySettings(
    oauth_issuer=ISSUER,
    oauth_jwks_url="https://id.example/keys",
    oauth_audience=AUDIENCE,
    oauth_groups_claim="groups",
    oauth_scope="streams",
)
RSA = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
EC = ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed", "use": "sig"})


class Provider:
    """What is published, and how often it was fetched."""

    def __init__(self, *keys: Any) -> None:
        self.keys = [key.as_dict(private=False) for key in keys]
        self.fetches = 0
        self.is_away = False

    async def fetch(self) -> bytes:
        self.fetches += 1
        if self.is_away:
            raise Unavailable("away")
        return json.dumps({"keys": self.keys}).encode()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def issuer_of(provider: Provider, clock: ManualClock, settings: SecuritySettings = SETTINGS) -> TokenIssuer:
    return TokenIssuer(settings, provider.fetch, clock=clock)


def claims(clock: ManualClock, **changes: Any) -> dict[str, Any]:
    valid = {
        "iss": ISSUER,
        "aud": [AUDIENCE, "other"],
        "sub": "alice",
        "exp": clock.now_ms() // 1000 + 600,
        "scope": "openid streams",
        "groups": ["ops", "dev"],
    }
    return {name: value for name, value in (valid | changes).items() if value is not None}


def token(key: Any, algorithm: str, body: dict[str, Any], **header: Any) -> str:
    return jwt.encode({"alg": algorithm, "kid": key.kid, **header}, body, key, algorithms=[algorithm])


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256"), (ED, "Ed25519")])
async def test_a_valid_token_names_user_and_groups(key: Any, algorithm: str, clock: ManualClock) -> None:
    issuer = issuer_of(Provider(RSA, EC, ED), clock)
    caller = await issuer.verify(token(key, algorithm, claims(clock)))
    assert caller.principal == Principal(USER, "alice")
    assert caller.groups == (Principal(GROUP, "ops"), Principal(GROUP, "dev"))
    assert caller.expires_at_ms is not None
    assert caller.expires_at_ms - clock.now_ms() == pytest.approx(630_000, abs=1000)


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"exp": None},
        {"exp": "soon"},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"exp": 10**400},
        {"sub": None},
        {"sub": ""},
        {"sub": ["alice"]},
        {"sub": "*"},
        {"sub": "x" * 1001},
        {"scope": "openid"},
        {"scope": None},
    ],
)
async def test_a_token_with_other_claims_is_refused(changes: dict[str, Any], clock: ManualClock) -> None:
    with pytest.raises(NotAuthenticated):
        await issuer_of(Provider(RSA), clock).verify(token(RSA, "RS256", claims(clock, **changes)))


async def test_a_token_ends_after_its_time_and_the_skew(clock: ManualClock) -> None:
    issuer, text = issuer_of(Provider(RSA), clock), token(RSA, "RS256", claims(clock))
    clock.advance(ms=620_000)
    await issuer.verify(text)
    clock.advance(ms=20_000)
    with pytest.raises(NotAuthenticated, match="expired_token"):
        await issuer.verify(text)


async def test_no_algorithm_and_no_shared_secret_is_accepted(clock: ManualClock) -> None:
    issuer = issuer_of(Provider(RSA), clock)
    signed = ".".join([_part({"alg": "HS256", "kid": "rsa"}), _part(claims(clock))])
    confused = hmac.digest(RSA.as_pem(private=False), signed.encode(), "sha256")
    unsigned = ".".join([_part({"alg": "none", "kid": "rsa"}), _part(claims(clock)), ""])
    for forged in (unsigned, f"{signed}.{_encoded(confused)}", f"{signed}."):
        with pytest.raises(NotAuthenticated, match="algorithm"):
            await issuer.verify(forged)


@pytest.mark.parametrize(
    "header",
    [
        b'"alg"',
        b'["alg"]',
        b"5",
        b"null",
        b"{}",
        b"\xff",
        b"[" * 12_000,
        b'{"alg": ["RS256"]}',
        b'{"alg": "RS256", "crit": 1}',
    ],
)
async def test_a_header_that_is_none_is_refused_as_a_wrong_login(header: bytes, clock: ManualClock) -> None:
    """Anybody may send one before a login."""
    with pytest.raises(NotAuthenticated):
        await issuer_of(Provider(RSA), clock).verify(
            f"{_encoded(header)}.{_part(claims(clock))}.{_encoded(b'x' * 256)}"
        )


async def test_a_key_in_the_header_is_not_believed(clock: ManualClock) -> None:
    mine = RSAKey.generate_key(2048, {"kid": "mine"})
    issuer = issuer_of(Provider(RSA), clock)
    for header in ({"jwk": mine.as_dict(private=False)}, {"jku": "https://evil.example/keys"}, {"kid": "rsa"}):
        with pytest.raises(NotAuthenticated):
            await issuer.verify(token(mine, "RS256", claims(clock), **header))


async def test_a_changed_token_is_refused(clock: ManualClock) -> None:
    issuer = issuer_of(Provider(RSA), clock)
    head, _, signature = token(RSA, "RS256", claims(clock)).split(".")
    for forged in (f"{head}.{_part(claims(clock, sub='admin'))}.{signature}", "a.b.c", "a.b", "", "....", "é.é.é"):
        with pytest.raises(NotAuthenticated):
            await issuer.verify(forged)


async def test_keys_are_fetched_when_a_token_names_a_new_one_but_not_for_every_forged_one(clock: ManualClock) -> None:
    provider = Provider(RSA)
    issuer = issuer_of(provider, clock)
    await issuer.verify(token(RSA, "RS256", claims(clock)))
    for _ in range(50):
        with pytest.raises(NotAuthenticated):
            await issuer.verify(token(EC, "ES256", claims(clock)))
    assert provider.fetches == 1
    provider.keys.append(EC.as_dict(private=False))
    clock.advance(ms=round(UNKNOWN_KEY_WAIT_S * 1000))
    await issuer.verify(token(EC, "ES256", claims(clock)))
    assert provider.fetches == 2


async def test_known_keys_stay_in_use_while_the_provider_is_away(clock: ManualClock) -> None:
    provider = Provider(RSA)
    issuer = issuer_of(provider, clock)
    await issuer.verify(token(RSA, "RS256", claims(clock)))
    provider.is_away = True
    clock.advance(ms=60_000)
    with pytest.raises(NotAuthenticated):
        await issuer.verify(token(EC, "ES256", claims(clock)))
    await issuer.verify(token(RSA, "RS256", claims(clock)))


def test_only_public_keys_for_signatures_are_taken() -> None:
    secret = OctKey.generate_key(256, {"kid": "oct"})
    encryption = RSAKey.generate_key(2048, {"kid": "enc", "use": "enc"})
    published = [
        secret.as_dict(private=True),
        encryption.as_dict(private=False),
        RSA.as_dict(private=True),
        EC.as_dict(private=False),
        {"kty": "RSA", "kid": "broken"},
        {"kty": 7},
    ]
    assert [key.kid for key in parse_keys(json.dumps({"keys": published}).encode()).keys] == ["ec"]


@pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b'{"keys": 1}', b"[" * 100_000])
def test_what_is_no_jwks_is_the_providers_failure(data: bytes) -> None:
    with pytest.raises(Unavailable):
        parse_keys(data)


@pytest.mark.parametrize(
    "settings",
    [
        SecuritySettings(oauth_issuer=ISSUER, oauth_jwks_url="http://id.example", oauth_audience="a"),
        SecuritySettings(oauth_issuer=ISSUER, oauth_audience="a"),
        SecuritySettings(oauth_issuer=ISSUER, oauth_jwks_url="https://id.example"),
    ],
)
def test_settings_that_would_accept_too_much_are_refused(settings: SecuritySettings, clock: ManualClock) -> None:
    with pytest.raises(Misconfigured):
        issuer_of(Provider(), clock, settings)


def _part(value: dict[str, Any]) -> str:
    return _encoded(json.dumps(value).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
