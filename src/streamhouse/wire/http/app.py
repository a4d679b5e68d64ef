"""App: the routes of the HTTP port, put together.

Data path   HTTP -> gate -> **app** -> endpoints -> routes -> broker
Owns        the groups of routes, and the error handlers
Leaves      sockets to `server`, paths and shapes to `routes`, promises to the broker, error bodies to `errors`
"""

from pathlib import Path
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from streamhouse.broker.broker import Broker
from streamhouse.clock import SystemClock
from streamhouse.errors import StreamhouseError
from streamhouse.limits import LargeWork
from streamhouse.wire.authentication import Authenticator
from streamhouse.wire.http import openapi
from streamhouse.wire.http.authentication import Authentication
from streamhouse.wire.http.console import PREFIX, console_routes
from streamhouse.wire.http.endpoint import make_routes
from streamhouse.wire.http.errors import on_defect, on_error, on_http_error
from streamhouse.wire.http.middleware import HttpMetrics, RequestLimits
from streamhouse.wire.http.operations import Operation
from streamhouse.wire.http.records.schema_encoding import SchemaEncoding
from streamhouse.wire.http.records.streams import JsonMemory, Streams
from streamhouse.wire.http.request_body import RequestBodies
from streamhouse.wire.http.routes import (
    agents,
    cluster,
    damaged_wals,
    doctor,
    external_commits,
    fetch,
    groups,
    health,
    login,
    maintenance,
    metrics,
    partition_freezes,
    partitions,
    pipelines,
    produce,
    read_plans,
    schemas,
    search,
    security,
    segments,
    settings,
    sql,
    supervisors,
    tables,
    topics,
    traces,
    transactions,
    views,
)
from streamhouse.wire.http.site import Site


class Peers(metrics.Peers, traces.TracePeers, Protocol):
    """The HTTP ports of other agents."""


def make_app(
    broker: Broker,
    registry: CollectorRegistry,
    *,
    cluster_id: str = "",
    grpc: str | None = None,
    console: Path | None = None,
    peers: Peers | None = None,
) -> RequestLimits:
    """The HTTP port's application; `grpc` is the agent's advertised gRPC address, `console` the folder of the console,
    `peers` are the HTTP ports of other agents."""
    limits = broker.settings.http
    http_metrics = HttpMetrics(registry)
    bodies = RequestBodies(limits)
    encoding, memory = SchemaEncoding(broker.settings.schemas), JsonMemory(limits)
    large_bodies = LargeWork()
    declared: list[Operation[Any, Any]] = [
        *topics.operations(broker),
        *produce.operations(broker, bodies, broker.schemas, encoding, large_bodies),
        *fetch.operations(broker, broker.schemas, encoding, Streams(broker, limits, http_metrics), memory),
        *search.operations(broker, broker.schemas, encoding, memory),
        *groups.operations(broker),
        *transactions.operations(broker),
        *segments.operations(broker),
        *read_plans.operations(broker),
        *external_commits.operations(broker),
        *maintenance.operations(broker),
        *tables.operations(broker),
        *pipelines.operations(broker),
        *supervisors.operations(broker, traces.ReadRelay(broker, peers)),
        *views.operations(broker),
        *sql.operations(broker),
        *partitions.operations(broker),
        *agents.operations(broker),
        *cluster.operations(broker, cluster_id=cluster_id, grpc=grpc),
        *metrics.operations(broker, registry, peers),
        *doctor.operations(broker),
        *settings.operations(broker),
        *damaged_wals.operations(broker),
        *security.operations(broker),
        *login.operations(broker),
        *health.operations(broker, registry),
    ]
    site = Site()
    declared += openapi.operations(declared, site)
    # only agents use these, so they aren't in the OpenAPI document
    declared += [*partition_freezes.operations(broker), *traces.operations(broker)]
    app = Starlette(
        routes=[
            *make_routes(declared, bodies, large_bodies),
            Route("/docs/{page:path}", site),
            *console_routes(console),
            *schemas.routes(broker, bodies, cluster_id=cluster_id),
        ],
        exception_handlers={StreamhouseError: on_error, HTTPException: on_http_error, Exception: on_defect},
    )
    app.router.redirect_slashes = False
    authenticator = Authenticator(
        broker.security, delay_s=broker.settings.security.failed_login_delay_s, clock=SystemClock()
    )
    open_paths = ["/", *(each.path for each in declared if each.needs.is_open)]
    open_calls = [(each.method, each.path) for each in declared if each.needs.is_open and each.method != "GET"]
    authentication = Authentication(
        app,
        authenticator,
        open_paths=open_paths,
        open_calls=open_calls,
        open_below=PREFIX,
        quotas=broker.security.quotas,
        clock=SystemClock(),
    )
    return RequestLimits(authentication, limits, http_metrics, bodies=bodies, tracer=broker.tracer)
