"""Credentials in the metadata store: users with passwords, API keys, delegation tokens."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from streamhouse.errors import InvalidCredentials
from streamhouse.model.access import Principal
from streamhouse.model.scram import ScramCredential, ScramMechanism
from streamhouse.model.tenant import bare

MAX_USER_CHARS: Final = 200
MAX_PASSWORD_CHARS: Final = 1000
MAX_DESCRIPTION_CHARS: Final = 500
KEY_PREFIX: Final = "shk_"
"""The prefix of every API key, by which scanners for leaked secrets recognise one."""

_KEY: Final = re.compile(r"shk_([0-9a-f]{16})_([0-9a-f]{64})")
_USER: Final = re.compile(r"[^\x00-\x1f\x7f,=:]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user who logs in with a password."""

    name: str
    created_at_ms: int
    credentials: Mapping[ScramMechanism, ScramCredential] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key of a principal; only its hash is stored. `expires_at_ms` None: valid until it is revoked."""

    key_id: str
    principal: Principal
    secret_hash: bytes
    description: str = ""
    created_at_ms: int
    expires_at_ms: int | None = None

    def __repr__(self) -> str:
        return f"<ApiKey {self.key_id} {self.principal}>"  # never the hash

    def is_valid_at(self, now_ms: int) -> bool:
        return self.expires_at_ms is None or now_ms < self.expires_at_ms


def key_text(key_id: str, secret: str) -> str:
    """The API key as shown once to its owner: its id, and 256 random bits as hex digits."""
    return f"{KEY_PREFIX}{key_id}_{secret}"


def parse_key(text: str) -> tuple[str, str] | None:
    """Parse an API key into id and secret; None if it is not one."""
    match = _KEY.fullmatch(text)
    return None if match is None else (match[1], match[2])


def hash_secret(secret: str) -> bytes:
    """The hash of a key's secret, which has 256 random bits: it needs no salt and no slow function."""
    return hashlib.sha256(secret.encode()).digest()


def check_user_name(name: str) -> None:
    if len(name) > MAX_USER_CHARS or not _USER.fullmatch(name) or bare(name) in ("", "*", "ANONYMOUS"):
        raise InvalidCredentials(
            f"a user's name has 1 to {MAX_USER_CHARS} characters, none of , = : or control characters, and is not "
            f"ANONYMOUS; user={name[:100]!r}"
        )


def check_password(password: str) -> None:
    if not password or len(password) > MAX_PASSWORD_CHARS or "\x00" in password:
        raise InvalidCredentials(f"a password has 1 to {MAX_PASSWORD_CHARS} characters, and no NUL")


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A token with which its bearer acts as the owner (KIP-48). Its secret is derived from the cluster secret and the
    id."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...] = ()
    issued_at_ms: int
    expires_at_ms: int
    max_at_ms: int
