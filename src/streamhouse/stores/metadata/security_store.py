"""The calls of the metadata store for users, keys, access rules, roles, quotas and delegation tokens.

Every change is announced as `ChangeKind.SECURITY`, so that all agents act on it at once.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from streamhouse.model.access import Acl, AclFilter, Principal
from streamhouse.model.credentials import ApiKey, DelegationToken, User
from streamhouse.model.quota import Quota
from streamhouse.model.scram import ScramCredential, ScramMechanism


class SecurityStore(Protocol):
    # --- rules
    async def acls(self) -> Sequence[Acl]:
        """Every rule, sorted."""
        ...

    async def add_acls(self, acls: Sequence[Acl], *, max_acls: int) -> None:
        """Add rules, all or none; one that is there already stays. Raise `SecurityLimit` beyond `max_acls`."""
        ...

    async def delete_acls(self, filters: Sequence[AclFilter]) -> Sequence[Sequence[Acl]]:
        """Delete the rules that each filter selects; returns them, in the order of the filters."""
        ...

    # --- users
    async def users(self) -> Sequence[User]:
        """Every user, by name, with empty keys in its credentials."""
        ...

    async def find_user(self, name: str) -> User | None: ...

    async def put_credentials(
        self,
        name: str,
        *,
        upserts: Sequence[ScramCredential] = (),
        deletions: Sequence[ScramMechanism] = (),
        is_new: bool = False,
        max_users: int,
    ) -> None:
        """Change how a user logs in; a user that isn't there is created, one without credentials is deleted.

        Raise `UserExists` with `is_new` when the user is there, `UnknownUser` when a mechanism to delete is not, and
        `SecurityLimit` beyond `max_users`.
        """
        ...

    async def delete_user(self, name: str) -> bool:
        """Delete a user with credentials, keys and roles; whether there was one."""
        ...

    # --- API keys
    async def keys(self) -> Sequence[ApiKey]:
        """Every key, oldest first, without hashes."""
        ...

    async def find_key(self, key_id: str) -> ApiKey | None: ...

    async def add_key(self, key: ApiKey, *, max_keys: int) -> None:
        """Add a key; raise `SecurityLimit` beyond `max_keys`."""
        ...

    async def delete_key(self, key_id: str) -> bool: ...

    # --- roles
    async def role_members(self) -> Mapping[str, Sequence[Principal]]:
        """The members of each role, by its name."""
        ...

    async def change_role(
        self, role: str, *, added: Sequence[Principal] = (), removed: Sequence[Principal] = ()
    ) -> None: ...

    # --- quotas
    async def quotas(self) -> Sequence[Quota]: ...

    async def put_quota(self, quota: Quota, *, max_quotas: int) -> None:
        """Set the limits of an entity; none: the entity has no limits of its own any more. Raise `SecurityLimit` beyond
        `max_quotas`."""
        ...

    async def exchange_quota_usage(
        self, agent: str, used: Mapping[str, float], *, ttl_ms: int
    ) -> Sequence[Mapping[str, float]]:
        """Keep what an agent has granted lately, and return what each other agent has, unless it is older than
        `ttl_ms`. This announces nothing."""
        ...

    # --- delegation tokens
    async def delegation_tokens(self) -> Sequence[DelegationToken]:
        """Every token that is not over, oldest first."""
        ...

    async def find_delegation_token(self, token_id: str) -> DelegationToken | None:
        """A token, also one that is over."""
        ...

    async def put_delegation_token(self, token: DelegationToken, *, max_tokens: int) -> None:
        """Add a token. Raises `SecurityLimit` beyond `max_tokens`."""
        ...

    async def prolong_delegation_token(self, token_id: str, expires_at_ms: int) -> bool:
        """Change when a token expires; returns False if it was deleted meanwhile."""
        ...

    async def delete_delegation_token(self, token_id: str) -> bool: ...
