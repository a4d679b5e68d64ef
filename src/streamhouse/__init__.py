"""StreamHouse: an event log with Kafka's protocol, object storage for records and a database for facts.

Read the rooms top to bottom and you follow a record: `cli` and `agent`, then `wire` (protocols), `broker` (promises),
`stores` (dependencies to the outside), `format` (bytes at rest), `model` (nouns), and the context floor. Calls go down,
never up; `docs/architecture.md` walks the path.

Programs start here: `from streamhouse import Client`, or `SyncClient` (docs/python-client.md). The names below are
loaded when they are used first, so that importing this costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streamhouse import errors
    from streamhouse.client.client import Client
    from streamhouse.client.credentials import Credentials
    from streamhouse.client.delivery import Delivery
    from streamhouse.client.sync import SyncClient
    from streamhouse.client.types import NewSchema, Record, Schema, SchemaRef, SchemaReference
    from streamhouse.errors import StreamhouseError
    from streamhouse.model.record import Receipt

__version__ = "0.1.0"

__all__ = [
    "Client",
    "Credentials",
    "Delivery",
    "NewSchema",
    "Receipt",
    "Record",
    "Schema",
    "SchemaRef",
    "SchemaReference",
    "StreamhouseError",
    "SyncClient",
    "__version__",
    "errors",
]

_MODULES: Final = {
    "Client": "streamhouse.client.client",
    "Credentials": "streamhouse.client.credentials",
    "Delivery": "streamhouse.client.delivery",
    "NewSchema": "streamhouse.client.types",
    "Receipt": "streamhouse.model.record",
    "Record": "streamhouse.client.types",
    "Schema": "streamhouse.client.types",
    "SchemaRef": "streamhouse.client.types",
    "SchemaReference": "streamhouse.client.types",
    "StreamhouseError": "streamhouse.errors",
    "SyncClient": "streamhouse.client.sync",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("streamhouse.errors")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
