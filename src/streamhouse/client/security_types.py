"""Users, API keys, access rules, roles and quotas, as the JSON of `/v1/users`, `/v1/keys`, `/v1/acls`, `/v1/roles` and
`/v1/quotas` has them."""

from typing import Final

import msgspec

ANY: Final = "*"


class UserInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A user who logs in with a password; `mechanisms` are the SASL mechanisms for which one is stored."""

    name: str
    created_at_ms: int
    mechanisms: list[str] = []


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticated caller; `unrestricted`: it may do everything."""

    principal: str
    groups: list[str] = []
    host: str
    listener: str
    unrestricted: bool


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, without its secret; `expires_at_ms` None: until it is revoked."""

    key_id: str
    principal: str
    description: str = ""
    created_at_ms: int
    expires_at_ms: int | None = None


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was just created. `api_key` is its text, which can't be read again."""

    key: KeyInfo
    api_key: str

    def __repr__(self) -> str:
        return f"<NewKey {self.key.key_id} {self.key.principal}>"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """An access rule (ACL): who may, or may not, do what to which resources, from where."""

    principal: str
    operation: str
    resource_type: str
    name: str
    pattern: str = "literal"
    permission: str = "allow"
    host: str = ANY


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """A role and the principals that have it; rules for `Role:NAME` are rules for them."""

    name: str
    members: list[str]


class QuotaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a user, a client id, both, or an address (`user`, `client-id`, `ip`), by Kafka's names."""

    entity: dict[str, str]
    limits: dict[str, float]
