"""Authentication of HTTP and gRPC requests: from the headers of a request to its caller.

Owns        reading `Authorization` (Basic, Bearer) and `X-API-Key`; the delay of failed logins; which requests are a
            login for the audit log
Leaves      checking passwords and tokens to `broker.security`, the form of a refusal to each interface

Each request has its own credentials; a verified password is remembered for a while. A listener without a login takes
credentials, too, where access is controlled: processes of the cluster show theirs there. Wrong ones are never ignored.
"""

import base64
import binascii
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from streamhouse.broker.security.security import Security
from streamhouse.clock import Clock
from streamhouse.config.listener_spec import ListenerSpec
from streamhouse.errors import NotAuthenticated
from streamhouse.model.access import Caller, Principal
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.failed_logins import FailedLogins

CLIENT_ID: Final = "x-client-id"
"""The header or metadata key of a request's client id, by which quotas may apply."""
LOGIN_S: Final = 300.0
"""Each request has credentials; a caller who has shown none for so long logs in, as the audit log understands it."""
MAX_LOGINS: Final = 10_000
"""Callers that are remembered as logged in."""
MISSING: Final = "log in: send a user and password (Basic), a bearer token or an API key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user with a password, or a token alone."""

    user: str | None = None
    secret: str

    def __repr__(self) -> str:
        return "<Credentials>"  # never what is in them


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a request comes from. `certified`: the user whom the client's certificate names. `client_id`: what the
    client calls itself; proves nothing."""

    listener: ListenerSpec
    host: str
    certified: str | None = None
    client_id: str = ""


def read_credentials(authorization: Sequence[str], api_keys: Sequence[str]) -> Credentials | None:
    """The credentials in the headers of a request, None without any; raise `NotAuthenticated` if they can't be read."""
    if len(authorization) + len(api_keys) > 1:
        raise NotAuthenticated("a request has credentials once; send one Authorization or X-API-Key header")
    if api_keys:
        return Credentials(secret=_filled(api_keys[0]))
    return _of_header(authorization[0]) if authorization else None


def _of_header(text: str) -> Credentials:
    scheme, _, value = text.strip().partition(" ")
    match scheme.lower():
        case "bearer":
            return Credentials(secret=_filled(value))
        case "basic":
            return _basic(value.strip())
    raise NotAuthenticated("unknown kind of credentials; allowed=Basic, Bearer")


def _filled(token: str) -> str:
    token = token.strip()
    if not token or not token.isascii():
        raise NotAuthenticated("the token is empty or not ASCII")
    return token


def _basic(value: str) -> Credentials:
    try:
        user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise NotAuthenticated("Basic credentials can't be read: they are USER:PASSWORD as UTF-8, in base64") from None
    if not colon:
        raise NotAuthenticated("Basic credentials can't be read: they are USER:PASSWORD as UTF-8, in base64")
    return Credentials(user=user, secret=password)


class Authenticator:
    """The logins of one interface."""

    def __init__(self, security: Security, *, delay_s: float, clock: Clock) -> None:
        self._security = security
        self._failed = FailedLogins(delay_s, clock)
        self._clock = clock
        self._seen_at: OrderedDict[tuple[Principal, str, str, str], float] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Authenticator {self._failed!r}>"

    def unknown(self, origin: Origin) -> RequestAccess:
        """The rights of a request to something that is open to everybody."""
        return RequestAccess(self._security, self._anonymous(origin), client_id=origin.client_id)

    async def log_in(self, authorization: Sequence[str], api_keys: Sequence[str], origin: Origin) -> RequestAccess:
        """The rights of a request with these headers; raise `NotAuthenticated`, late, without the right ones."""
        has_login = origin.listener.protocol.has_login
        if not has_login and not self._security.access.is_enabled:
            return self.unknown(origin)  # credentials for another server, such as a proxy, are ignored
        since = self._security.users.generation
        try:
            credentials = read_credentials(authorization, api_keys)
            if credentials is None:
                if has_login:
                    raise NotAuthenticated(MISSING)
                return self.unknown(origin)
            caller = await self._checked(credentials, origin)
            self._record(caller, "token" if credentials.user is None else "password")
        except NotAuthenticated:
            if authorization or api_keys:
                await self._failed.failed(origin.host)
            raise

        async def renew() -> None:
            await self._check(credentials, origin)

        return RequestAccess(self._security, caller, renew, since=since, client_id=origin.client_id)

    def _record(self, caller: Caller, mechanism: str) -> None:
        """Record a login in the audit log, unless the caller is logged in already. Processes of the
        cluster, which also act for users, are not recorded."""
        if not self._security.audit.is_enabled or caller.is_process or caller.is_delegated:
            return
        key, now = (caller.principal, caller.host, caller.listener, mechanism), self._clock.monotonic()
        seen_at = self._seen_at.pop(key, None)
        self._seen_at[key] = now
        if len(self._seen_at) > MAX_LOGINS:
            self._seen_at.popitem(last=False)
        if seen_at is None or now >= seen_at + LOGIN_S:
            self._security.audit.login(caller, mechanism)

    async def _checked(self, credentials: Credentials, origin: Origin) -> Caller:
        user, secret = credentials.user, credentials.secret
        if user is None:
            is_known = self._security.remembers_token(secret)
        else:
            is_known = self._security.remembers(user, secret, listener=origin.listener.name)
        if not is_known:
            await self._failed.wait_turn(origin.host)
        return await self._check(credentials, origin)

    async def _check(self, credentials: Credentials, origin: Origin) -> Caller:
        where = {"host": origin.host, "listener": origin.listener.name}
        if credentials.user is None:
            caller = await self._security.log_in_with_token(credentials.secret, **where)
        else:
            caller = await self._security.log_in(credentials.user, credentials.secret, **where)
        return caller

    def _anonymous(self, origin: Origin) -> Caller:
        host, listener = origin.host, origin.listener.name
        if origin.certified is not None:
            return self._security.certified(origin.certified, host=host, listener=listener)
        return self._security.anonymous(host=host, listener=listener)
