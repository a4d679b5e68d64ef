"""App: the routes of the HTTP port, put together.

Data path   HTTP -> **app** -> routes -> broker
Owns        which groups of routes there are, and that errors become problem details
Leaves      sockets to `server`, paths and shapes to `routes`, promises to the broker, error bodies to `errors`
"""

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from streamhouse.broker.broker import Broker
from streamhouse.errors import StreamhouseError

from .errors import on_error
from .routes import agents, doctor, health, partitions, segments


def make_app(broker: Broker, registry: CollectorRegistry) -> Starlette:
    return Starlette(
        routes=[
            *health.routes(broker, registry),
            *segments.routes(broker),
            *agents.routes(broker),
            *partitions.routes(broker),
            *doctor.routes(broker),
        ],
        exception_handlers={StreamhouseError: on_error},
    )
