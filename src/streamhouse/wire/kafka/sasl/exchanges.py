"""Exchanges: one login by one mechanism, message by message, against the users and tokens of the cluster."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from streamhouse.broker.security.security import Security
from streamhouse.broker.security.users import WRONG_LOGIN
from streamhouse.errors import NotAuthenticated
from streamhouse.model.access import Caller
from streamhouse.model.scram import ScramCredential, ScramMechanism
from streamhouse.wire.kafka.sasl.oauthbearer import ABORT, parse_bearer, refusal
from streamhouse.wire.kafka.sasl.plain import parse_plain
from streamhouse.wire.kafka.sasl.scram import ClientFirst, ScramChallenge, parse_first

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
NONCE_BYTES: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginOrigin:
    """The listener and the host of a login."""

    security: Security
    host: str
    listener: str


class Step(NamedTuple):
    """The answer to a message; `caller` once the client has proven who it is."""

    reply: bytes
    caller: Caller | None = None
    is_by_delegation_token: bool = False


class Exchange(Protocol):
    async def step(self, message: bytes) -> Step:
        """Take the client's next message; raise `NotAuthenticated`."""
        ...


class PlainExchange:
    def __init__(self, origin: LoginOrigin) -> None:
        self._origin = origin

    async def step(self, message: bytes) -> Step:
        user, password = parse_plain(message)
        origin = self._origin
        return Step(b"", await origin.security.log_in(user, password, host=origin.host, listener=origin.listener))


class BearerExchange:
    def __init__(self, origin: LoginOrigin) -> None:
        self._origin = origin
        self._failed: NotAuthenticated | None = None

    async def step(self, message: bytes) -> Step:
        if self._failed is not None:
            raise self._failed if message == ABORT else NotAuthenticated("the login has failed")
        token, authorization_id = parse_bearer(message)
        origin = self._origin
        try:
            caller = await origin.security.log_in_with_token(token, host=origin.host, listener=origin.listener)
        except NotAuthenticated as error:
            self._failed = error
            return Step(refusal())
        if authorization_id not in ("", caller.principal.name):
            raise NotAuthenticated("the authorization id is not the name in the token")
        return Step(b"", caller)


class ScramExchange:
    def __init__(self, mechanism: ScramMechanism, origin: LoginOrigin) -> None:
        self._mechanism = mechanism
        self._origin = origin
        self._first: ClientFirst | None = None
        self._challenge: ScramChallenge | None = None
        self._caller: Caller | None = None

    async def step(self, message: bytes) -> Step:
        if self._challenge is None or self._first is None:
            return await self._begin(parse_first(message))
        try:
            reply = self._challenge.verify(message)
            if self._caller is None:
                raise NotAuthenticated(WRONG_LOGIN)
        except NotAuthenticated:
            origin, first = self._origin, self._first
            name = first.name if first.is_token else origin.security.user_name(origin.listener, first.name)
            origin.security.audit.failed_login(name, self._mechanism, host=origin.host, listener=origin.listener)
            raise
        return Step(reply, self._caller, self._first.is_token)

    async def _begin(self, first: ClientFirst) -> Step:
        """Challenge the client; an unknown user is challenged too, with a decoy."""
        credential = await (self._credential_of_token(first.name) if first.is_token else self._credential(first.name))
        self._first = first
        self._challenge = ScramChallenge(
            first,
            credential,
            server_nonce=secrets.token_urlsafe(NONCE_BYTES),
        )
        return Step(self._challenge.text.encode())

    async def _credential(self, name: str) -> ScramCredential:
        origin = self._origin
        name = origin.security.user_name(origin.listener, name)
        credential, is_stored = await origin.security.users.challenge(name, self._mechanism)
        if is_stored:
            self._caller = origin.security.proven(name, credential, host=origin.host, listener=origin.listener)
        return credential

    async def _credential_of_token(self, token_id: str) -> ScramCredential:
        origin, tokens = self._origin, self._origin.security.delegation_tokens
        found = await tokens.find_credential(token_id, self._mechanism) if tokens is not None else None
        if found is None or not origin.security.is_of_listener(origin.listener, found.token.owner):
            return (await origin.security.users.challenge("", self._mechanism)).credential
        self._caller = origin.security.delegated(found.token, host=origin.host, listener=origin.listener)
        return found.credential


EXCHANGES: Final[Mapping[str, Callable[[LoginOrigin], Exchange]]] = {
    ScramMechanism.SHA_512.value: partial(ScramExchange, ScramMechanism.SHA_512),
    ScramMechanism.SHA_256.value: partial(ScramExchange, ScramMechanism.SHA_256),
    PLAIN: PlainExchange,
    OAUTHBEARER: BearerExchange,
}
"""The mechanisms that can be enabled."""
