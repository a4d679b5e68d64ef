"""Quotas of users, client ids and addresses, with Kafka's names (KIP-13, KIP-124, KIP-612)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from streamhouse.errors import InvalidConfig
from streamhouse.model.tenant import qualified, unqualified

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_LIMITS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""Limits of users and client ids."""
ADDRESS_LIMITS: Final = (CONNECTION_CREATION_RATE,)
"""Limits of addresses."""

USER_ENTITY: Final = "user"
CLIENT_ENTITY: Final = "client-id"
ADDRESS_ENTITY: Final = "ip"
MAX_NAME_CHARS: Final = 1000

DEFAULT: Final = "<default>"
"""The entity name of Kafka's default quota."""


class QuotaEntity(NamedTuple):
    """The entity of a quota: a user, a client id, both together, or an address. None: not part of the entity."""

    user: str | None = None
    client_id: str | None = None
    address: str | None = None

    def parts(self) -> Mapping[str, str]:
        """The parts of the entity by Kafka's names of their types."""
        names = {USER_ENTITY: self.user, CLIENT_ENTITY: self.client_id, ADDRESS_ENTITY: self.address}
        return {kind: name for kind, name in names.items() if name is not None}


def entity_of_tenant(tenant: str, entity: QuotaEntity) -> QuotaEntity:
    """The entity that is stored for one as a tenant's clients name it; raise `InvalidConfig` for an address, which is
    no tenant's."""
    if entity.address is not None:
        raise InvalidConfig("quotas of addresses are for the whole cluster")
    named = (None if name is None else qualified(tenant, name) for name in (entity.user, entity.client_id))
    return QuotaEntity(*named)


def entity_in_tenant(tenant: str, entity: QuotaEntity) -> QuotaEntity | None:
    """A stored entity as a tenant's clients see it; None if it isn't the tenant's."""
    parts = [name for name in (entity.user, entity.client_id) if name is not None]
    if entity.address is not None or any(unqualified(tenant, name) is None for name in parts):
        return None
    named = (None if name is None else unqualified(tenant, name) for name in (entity.user, entity.client_id))
    return QuotaEntity(*named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The limits of an entity, by Kafka's names."""

    entity: QuotaEntity
    limits: Mapping[str, float] = field(default_factory=dict)


def check_quota(quota: Quota) -> None:
    """Raise `InvalidConfig` for an unknown entity type or limit, or an invalid value."""
    parts = quota.entity.parts()
    if not parts or (ADDRESS_ENTITY in parts and len(parts) > 1):
        raise InvalidConfig(f"quotas are for user, client-id, both, or ip; entity={dict(parts)}")
    if any(not name or len(name) > MAX_NAME_CHARS for name in parts.values()):
        raise InvalidConfig(f"names in an entity have 1 to {MAX_NAME_CHARS} characters; entity={str(parts)[:200]}")
    allowed = ADDRESS_LIMITS if ADDRESS_ENTITY in parts else CLIENT_LIMITS
    for name, value in quota.limits.items():
        if name not in allowed:
            raise InvalidConfig(f"no such limit of this entity; limit={name[:100]!r} allowed={', '.join(allowed)}")
        if not 0 < value < float("inf"):
            raise InvalidConfig(f"a limit is a number above 0; limit={name} value={value}")


def entity_text(entity: QuotaEntity) -> str:
    """The canonical text of an entity, as stored."""
    return json.dumps(dict(entity.parts()), sort_keys=True)


def entity_of(text: str) -> QuotaEntity:
    parts = json.loads(text)
    return QuotaEntity(parts.get(USER_ENTITY), parts.get(CLIENT_ENTITY), parts.get(ADDRESS_ENTITY))
