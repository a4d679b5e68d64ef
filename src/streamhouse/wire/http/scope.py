"""Scope: what the server and the authentication add to the ASGI scope of a request."""

from collections.abc import Mapping
from typing import Any, Final

from starlette.types import Scope

from streamhouse.config.fields import Address
from streamhouse.config.listener_spec import DEFAULT_NAME, ListenerSpec
from streamhouse.wire.authentication import CLIENT_ID, Origin
from streamhouse.wire.authorization import RequestAccess

LISTENER: Final = "streamhouse.listener"
"""The `ListenerSpec` of the connection, from the server."""
CERTIFIED: Final = "streamhouse.certified"
"""The user whom the client's certificate names, from the server."""
ACCESS: Final = "streamhouse.access"
"""The rights of the request, from the authentication."""

_CLIENT_ID: Final = CLIENT_ID.encode()

PLAIN_LISTENER: Final = ListenerSpec(name=DEFAULT_NAME, bind=Address("127.0.0.1", 0))


def origin_of(scope: Scope) -> Origin:
    client = scope.get("client")
    client_ids = (value for name, value in scope.get("headers", ()) if name == _CLIENT_ID)
    return Origin(
        listener=scope.get(LISTENER, PLAIN_LISTENER),
        host=client[0] if client else "",
        certified=scope.get(CERTIFIED),
        client_id=next(client_ids, b"").decode(errors="replace"),
    )


def access_of(scope: Mapping[str, Any]) -> RequestAccess:
    """The rights of a request that has passed authentication."""
    access = scope[ACCESS]
    assert isinstance(access, RequestAccess)
    return access
