"""Authentication: who sends a request, before it is routed.

Data path   middleware -> **authentication** -> router of the app
Owns        the rights of each request in its scope, its quotas; 401 in the form of the API or of the schema registry
Leaves      credentials to `wire.authentication`, what an operation needs to `endpoint` and the schema registry

Only probes, the root of the schema registry, the files of the console and its login are open to everybody; they show no
data.
Credentials in a URL are not looked at: URLs are logged by proxies and kept by browsers.
"""

from collections.abc import Collection
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from streamhouse.broker.security.quotas import Quotas
from streamhouse.clock import Clock
from streamhouse.errors import NotAuthenticated, Retriable, StreamhouseError
from streamhouse.wire.authentication import Authenticator
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.client_throttle import ClientThrottle
from streamhouse.wire.http.errors import TENANT, error_response
from streamhouse.wire.http.routes.schemas import V1_JSON, is_registry_path
from streamhouse.wire.http.routes.schemas import error_response as registry_response
from streamhouse.wire.http.routes.schemas_errors import registry_error
from streamhouse.wire.http.scope import ACCESS, origin_of
from streamhouse.wire.http.throttling import Throttle

CHALLENGES: Final = ('Basic realm="streamhouse", charset="UTF-8"', 'Bearer realm="streamhouse"')


class Authentication:
    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        *,
        open_paths: Collection[str],
        open_calls: Collection[tuple[str, str]] = (),
        open_below: str,
        quotas: Quotas,
        clock: Clock,
    ) -> None:
        self.app = app
        self._quotas = quotas
        self._clock = clock
        self._authenticator = authenticator
        self._open_paths = frozenset(open_paths)
        self._open_calls = frozenset(open_calls)
        self._open_below = f"{open_below}/"

    def __repr__(self) -> str:
        return f"<Authentication {self._authenticator!r}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            scope[ACCESS] = access = await self._log_in(scope)
            TENANT.set(access.caller.tenant)
        except (NotAuthenticated, Retriable) as error:
            await _refusal(scope, error)(scope, receive, send)
        else:
            if not self._quotas.is_active:
                await self.app(scope, receive, send)
                return
            throttle = ClientThrottle(self._quotas, access.caller, self._clock, client_id=access.client_id)
            await throttle.received(0)
            bodies = Throttle(throttle, receive, send)
            await throttle.measured(self.app(scope, bodies.receive, bodies.send))

    async def _log_in(self, scope: Scope) -> RequestAccess:
        origin = origin_of(scope)
        is_open = scope["path"] in self._open_paths or scope["path"].startswith(self._open_below)
        is_reading = scope["method"] in ("GET", "HEAD")
        if (is_open and is_reading) or (scope["method"], scope["path"]) in self._open_calls:
            return self._authenticator.unknown(origin)
        return await self._authenticator.log_in(_values(scope, b"authorization"), _values(scope, b"x-api-key"), origin)


def _values(scope: Scope, header: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == header]


def _refusal(scope: Scope, error: StreamhouseError) -> Response:
    if is_registry_path(scope["path"]):
        response = registry_response(registry_error(error), error, V1_JSON)
    else:
        response = error_response(error)
    if isinstance(error, NotAuthenticated):
        for challenge in CHALLENGES:
            response.headers.append("www-authenticate", challenge)
    return response
