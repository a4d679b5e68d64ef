"""Tenants of listeners: what `security.listener_tenants` says."""

from collections.abc import Mapping
from typing import Final

from streamhouse.config import Settings
from streamhouse.config.exposure import grpc_listeners, http_listeners, kafka_listeners
from streamhouse.errors import Misconfigured
from streamhouse.model.tenant import ALLOWED, is_tenant

SETTING: Final = "security.listener_tenants"


def tenants_of_listeners(settings: Settings) -> Mapping[str, str]:
    """The tenants by the names of their listeners; raise `Misconfigured` if such a listener isn't there, or is one that
    agents use among themselves."""
    tenants = _parsed(settings.security.listener_tenants)
    if not tenants:
        return tenants
    interfaces = (kafka_listeners(settings), http_listeners(settings), grpc_listeners(settings))
    known = {spec.name for specs in interfaces for spec in specs}
    if unknown := sorted(tenants.keys() - known):
        raise Misconfigured(
            f"no listener has this name; setting={SETTING} name={unknown[0]} listeners={', '.join(sorted(known))}"
        )
    for specs in interfaces[:2]:
        if specs and specs[0].name in tenants:
            raise Misconfigured(
                "agents use the first Kafka and HTTP listeners among themselves, so these can't be a tenant's; "
                f"setting={SETTING} name={specs[0].name}"
            )
    return tenants


def _parsed(text: str) -> Mapping[str, str]:
    tenants: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        listener, colon, tenant = part.partition(":")
        if not colon or not listener or listener in tenants:
            raise Misconfigured(f"a listener has one tenant, as in PUBLIC:acme; setting={SETTING} value={part!r}")
        if not is_tenant(tenant):
            raise Misconfigured(f"not a tenant's name; setting={SETTING} value={part!r} allowed={ALLOWED}")
        tenants[listener] = tenant
    return tenants
