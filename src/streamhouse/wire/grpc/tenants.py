"""Tenants: messages of a tenant's users over gRPC, with the names that things have inside the cluster.

Data path   calls -> **tenants** (`enter`) -> method -> **tenants** (`leave`) -> calls
Owns        which fields of which messages name something that a tenant has; the methods that tenants don't have
Leaves      the form of names to `model.tenant`, rights to `broker.security`

Invariants  every text of every message is classified here: a new field is seen
            an answer shows nothing of another tenant, whatever a method returns: what it names is left out
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from enum import Enum, auto
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from streamhouse.errors import AccessDenied
from streamhouse.model.access import Caller
from streamhouse.model.tenant import qualified, unqualified, without_tenant
from streamhouse.wire.grpc.generated import streamhouse_pb2 as pb


class Kind(Enum):
    """The kind of a text field."""

    NAME = auto()
    """The name of something that a tenant has."""
    TEXT = auto()
    """A text for people, which may have names in it."""
    PLAIN = auto()
    """Nothing of the above."""


REFUSED: Final = frozenset({"ListAgents", "GetCluster"})
"""The methods that tenants don't have: they are about agents."""

TENANT: Final = ContextVar("grpc-tenant", default="")
"""The tenant of the call's caller; errors use its names."""

_BY_NAME: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("topic", "group_id"), Kind.NAME),
    **dict.fromkeys(
        (
            "bootstrap_servers",
            "client_host",
            "client_id",
            "cluster_id",
            "grpc",
            "http",
            "idempotency_key",
            "instance_id",
            "kafka",
            "key",
            "member_id",
            "metadata",
            "protocol",
            "protocol_type",
            "session_id",
            "state",
            "topic_id",
            "unset_config",
            "version",
        ),
        Kind.PLAIN,
    ),
}
_SPECIAL: Final[Mapping[tuple[str, str], Kind]] = {
    ("Topic", "name"): Kind.NAME,
    ("CreateTopicRequest", "name"): Kind.NAME,
    ("DescribeTopicRequest", "name"): Kind.NAME,
    ("AlterTopicRequest", "name"): Kind.NAME,
    ("DeleteTopicRequest", "name"): Kind.NAME,
    ("Error", "name"): Kind.PLAIN,
    ("Error", "message"): Kind.TEXT,
}


class UnclassifiedField(Exception):
    """A text field that is not classified as a tenant's name or another text."""


def kind_of(field: Any) -> Kind:
    """The kind of a text field; raise `UnclassifiedField`."""
    key = (field.containing_type.name, field.name)
    kind = _SPECIAL.get(key) or _BY_NAME.get(field.name)
    if kind is None:
        raise UnclassifiedField(f"does a tenant own what this names? field={'.'.join(key)}")
    return kind


def require_served(caller: Caller, name: str) -> None:
    """Raise `AccessDenied` unless tenants have this method."""
    if name in REFUSED:
        raise AccessDenied(caller.principal, operation="use", resource_type="method", name=name)


def enter(tenant: str, message: Any) -> None:
    """Give what a request names the names that it has inside the cluster."""
    _translate(message, lambda kind, text: qualified(tenant, text) if kind is Kind.NAME else text)


def leave(tenant: str, method: str, response: bytes) -> bytes:
    """An answer of a method with the names that the tenant's users know, without what isn't the tenant's."""
    message = getattr(pb, f"{method}Response").FromString(response)
    _translate(message, lambda kind, text: _SHOWN[kind](tenant, text))
    return bytes(message.SerializeToString())


_SHOWN: Final[Mapping[Kind, Callable[[str, str], str | None]]] = {
    Kind.NAME: unqualified,
    Kind.TEXT: without_tenant,
    Kind.PLAIN: lambda _, text: text,
}


def _translate(message: Any, name_of: Callable[[Kind, str], str | None]) -> bool:
    """Translate a message in place; returns whether all that it names has a name."""
    is_visible = True
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if field.message_type.GetOptions().map_entry:
                continue  # settings of topics
            if not field.is_repeated:
                is_visible = _translate(value, name_of) and is_visible
                continue
            kept = [each for each in value if _translate(each, name_of)]
            if len(kept) < len(value):
                message.ClearField(field.name)
                getattr(message, field.name).extend(kept)
        elif field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
            shown = name_of(kind_of(field), value)
            is_visible = is_visible and shown is not None
            setattr(message, field.name, shown or "")
    return is_visible
