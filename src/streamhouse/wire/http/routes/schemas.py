"""The schema registry at the root of the HTTP port, as Confluent's clients expect it.

Data path   app's router -> **schemas** -> table -> handlers -> broker.schemas
Owns        media types, errors as bodies, the registry's metadata routes
Leaves      paths to `schemas_subjects`, `schemas_ids` and `schemas_config`, promises to `broker.schemas`

Every path also exists below /contexts/{context}, with the subjects and ids of that context.
"""

import logging
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from streamhouse import __version__
from streamhouse.broker.broker import Broker
from streamhouse.errors import StreamhouseError
from streamhouse.limits import LargeWork
from streamhouse.model.needs import LOGGED_IN, OPEN, Needs
from streamhouse.model.tenant import cluster_id_of, without_tenant
from streamhouse.wire.http.errors import TENANT, headers_of_error
from streamhouse.wire.http.request_body import RequestBodies, content_type, negotiate_type
from streamhouse.wire.http.routes import schemas_config, schemas_ids, schemas_subjects
from streamhouse.wire.http.routes.schemas_errors import RegistryError, registry_error
from streamhouse.wire.http.routes.schemas_requests import Entry, RegistryCall, Table
from streamhouse.wire.http.routes.schemas_tenants import enter, leave
from streamhouse.wire.http.scope import access_of

log = logging.getLogger(__name__)

V1_JSON: Final = "application/vnd.schemaregistry.v1+json"
MEDIA_TYPES: Final = (V1_JSON, "application/vnd.schemaregistry+json", "application/json")
SENT_TYPES: Final = (*MEDIA_TYPES, "application/octet-stream")
ROOTS: Final = ("subjects", "schemas", "config", "mode", "compatibility", "contexts")
_ENCODER: Final = msgspec.json.Encoder()


def routes(broker: Broker, bodies: RequestBodies, *, cluster_id: str) -> list[Route]:
    registry = Registry(broker, bodies, cluster_id=cluster_id)
    below = [path for root in ROOTS for path in (f"/{root}", f"/{root}/{{rest:path}}")]
    return [Route(path, registry) for path in ("/", *below, "/v1/metadata/id", "/v1/metadata/version")]


def is_registry_path(path: str) -> bool:
    """Whether errors of a request to this path have the registry's form."""
    return path == "/" or path.startswith("/v1/metadata/") or path.lstrip("/").partition("/")[0] in ROOTS


class Registry:
    """An ASGI application."""

    def __init__(self, broker: Broker, bodies: RequestBodies, *, cluster_id: str) -> None:
        self._bodies = bodies
        self._large_bodies = LargeWork()
        self._settings = broker.settings.schemas
        self.entries = (
            *schemas_subjects.entries(broker.schemas),
            *schemas_ids.entries(broker.schemas),
            *schemas_config.entries(broker.schemas),
            *about(cluster_id),
        )
        self._table = Table(self.entries)

    def __repr__(self) -> str:
        return f"<Registry {self._table!r}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        await (await self._answer(request))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        media_type = V1_JSON
        try:
            media_type = negotiate_type(request.headers.get("accept"), MEDIA_TYPES)
            match = self._table.find(request.method, request.scope["raw_path"])
            if request.method in ("POST", "PUT"):
                content_type(request.headers.get("content-type"), SENT_TYPES)
            access = access_of(request.scope)
            if tenant := access.caller.tenant:
                match = enter(access.caller, match)
            call = RegistryCall(
                request=request,
                bodies=self._bodies,
                path=match.path,
                context=match.context,
                large_bodies=self._large_bodies,
                settings=self._settings,
                access=access,
            )
            with call.access.acts(f"{request.method} {request.url.path}") as acts:
                async with call.access.watched():
                    require(call, match.entry.needs)
                    response = await match.entry.handler(call)
                acts.end()
        except StreamhouseError as error:
            return error_response(registry_error(error), error, media_type)
        if tenant:
            response = leave(tenant, response)
        if isinstance(response, Response):
            response.headers["content-type"] = media_type
            return response
        return Response(_ENCODER.encode(response), media_type=media_type)


def require(call: RegistryCall, needs: Needs) -> None:
    """Raise `AccessDenied` unless the caller has the rights on the subject in the path, or on the registry."""
    for need in needs.early:
        for right in need.rights:
            call.require_subject(right.operation, call.subject())


def error_response(registry_error: RegistryError, error: StreamhouseError, media_type: str) -> Response:
    if registry_error.status >= 500:
        log.warning("the registry failed", extra={"why": str(error)})
    message = without_tenant(tenant, registry_error.message) if (tenant := TENANT.get()) else registry_error.message
    body = _ENCODER.encode({"error_code": registry_error.error_code, "message": message})
    return Response(body, status_code=registry_error.status, media_type=media_type, headers=headers_of_error(error))


def about(cluster_id: str) -> list[Entry]:
    """Metadata of the registry."""

    async def root(_: RegistryCall) -> Any:
        return {}

    async def identity(call: RegistryCall) -> Any:
        shown = cluster_id_of(call.tenant, cluster_id) if call.tenant else cluster_id
        return {"scope": {"path": [], "clusters": {"kafka-cluster": shown, "schema-registry-cluster": "schemas"}}}

    async def version(_: RegistryCall) -> Any:
        return {"version": __version__, "commitId": ""}

    return [
        Entry("GET", "", root, OPEN),
        Entry("GET", "v1/metadata/id", identity, LOGGED_IN),
        Entry("GET", "v1/metadata/version", version, LOGGED_IN),
    ]
