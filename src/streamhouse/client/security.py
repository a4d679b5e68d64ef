"""Security client: users, API keys, access rules, roles and quotas, over the agent's HTTP listener."""

from collections.abc import Mapping, Sequence
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec

from streamhouse.client.http import Http, error_from_response
from streamhouse.client.security_types import KeyInfo, Me, NewKey, QuotaInfo, Role, Rule, UserInfo
from streamhouse.errors import Rejected

T = TypeVar("T")


class _Users(msgspec.Struct):
    users: list[UserInfo]


class _Keys(msgspec.Struct):
    keys: list[KeyInfo]


class _Acls(msgspec.Struct):
    acls: list[Rule]


class _Roles(msgspec.Struct):
    roles: list[Role]


class _Quotas(msgspec.Struct):
    quotas: list[QuotaInfo]


class Security:
    """Users, API keys, access rules, roles and quotas. Every call needs its own rights on the cluster."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def __repr__(self) -> str:
        return f"<Security {self._http!r}>"

    # --- users

    async def users(self) -> list[UserInfo]:
        return (await self._send("GET", "/v1/users", _Users)).users

    async def create_user(self, name: str, password: str) -> UserInfo:
        """Raises `UserExists`, and `InvalidCredentials` for an invalid name or password."""
        return await self._send("POST", "/v1/users", UserInfo, body={"name": name, "password": password})

    async def change_password(self, name: str, password: str) -> None:
        """Every user may change its own. Raises `UnknownUser`."""
        await self._content("PUT", f"/v1/users/{_quoted(name)}/password", body={"password": password})

    async def who_am_i(self) -> Me:
        return await self._send("GET", "/v1/whoami", Me)

    async def delete_user(self, name: str) -> None:
        """Delete a user, with its keys and roles; raises `UnknownUser`."""
        await self._content("DELETE", f"/v1/users/{_quoted(name)}")

    # --- API keys

    async def keys(self) -> list[KeyInfo]:
        return (await self._send("GET", "/v1/keys", _Keys)).keys

    async def create_key(
        self, principal: str | None = None, *, description: str = "", ttl_s: float | None = None
    ) -> NewKey:
        """A key for a principal, by default for the caller."""
        body = {"principal": principal, "description": description, "ttl_s": ttl_s}
        return await self._send("POST", "/v1/keys", NewKey, body=body)

    async def revoke_key(self, key_id: str) -> None:
        """Raises `UnknownKey`."""
        await self._content("DELETE", f"/v1/keys/{_quoted(key_id)}")

    # --- access rules

    async def acls(self, selected: Mapping[str, str] | None = None) -> list[Rule]:
        """The rules with these fields, by default all; `matching=true` selects those that apply to `name`."""
        return (await self._send("GET", "/v1/acls", _Acls, params=selected)).acls

    async def create_acls(self, rules: Sequence[Rule]) -> None:
        await self._content("POST", "/v1/acls", body={"acls": list(rules)})

    async def delete_acls(self, selected: Mapping[str, str]) -> list[Rule]:
        """Delete the rules with these fields, and return them."""
        return (await self._send("DELETE", "/v1/acls", _Acls, params=selected)).acls

    # --- roles

    async def roles(self) -> list[Role]:
        return (await self._send("GET", "/v1/roles", _Roles)).roles

    async def change_role(self, name: str, *, added: Sequence[str] = (), removed: Sequence[str] = ()) -> Role:
        """Add and remove members. A role exists while it has members or rules."""
        body = {"add": list(added), "remove": list(removed)}
        return await self._send("POST", f"/v1/roles/{_quoted(name)}/members", Role, body=body)

    # --- quotas

    async def quotas(self) -> list[QuotaInfo]:
        return (await self._send("GET", "/v1/quotas", _Quotas)).quotas

    async def set_quota(self, entity: Mapping[str, str], limits: Mapping[str, float | None]) -> QuotaInfo:
        """Change limits of an entity; None removes one, others stay."""
        return await self._send("PUT", "/v1/quotas", QuotaInfo, body={"entity": dict(entity), "limits": dict(limits)})

    # --- requests

    async def _send(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
    ) -> T:
        content = await self._content(method, path, params=params, body=body)
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as error:
            raise Rejected(f"unexpected response; path={path} why={error}") from None

    async def _content(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: object = None
    ) -> bytes:
        response = await self._http.send(method, path, params=params, body=body)
        if response.status >= httpx.codes.BAD_REQUEST:
            raise error_from_response(response)
        return response.content


def _quoted(name: str) -> str:
    return quote(name, safe="")
