"""DescribeClientQuotas, API key 48, versions 0-1: list client quotas.

Behaviour   the quotas whose entities match every component: by name, by being the default (a null name), or by having a
            part of that type at all; with `strict`, entities with other parts don't match
            an entity or a kind of match that Kafka doesn't know, or one that is given twice, is INVALID_REQUEST
Left out    nothing
Versions    v1 flexible
"""

from dataclasses import replace
from typing import Final

from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.model.quota import (
    ADDRESS_ENTITY,
    CLIENT_ENTITY,
    DEFAULT,
    USER_ENTITY,
    Quota,
    QuotaEntity,
    entity_in_tenant,
)
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from streamhouse.wire.kafka.resources import MAX_NAMED

ENTITIES: Final = (USER_ENTITY, CLIENT_ENTITY, ADDRESS_ENTITY)
EXACT, DEFAULT_NAME, ANY_NAME = range(3)
MATCHES: Final = (EXACT, DEFAULT_NAME, ANY_NAME)


@handles(DescribeClientQuotasRequest, (0, 1), needs=needs(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER))
async def handle(context: Context, request: DescribeClientQuotasRequest) -> HandlerResult:
    if not context.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(
            error_code=context.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            error_message="not authorised to describe the cluster's configuration",
            entries=None,
        )
    types = [component.entity_type for component in request.components]
    for component in request.components:
        if (
            component.entity_type not in ENTITIES
            or component.match_type not in MATCHES
            or types.count(component.entity_type) > 1
        ):
            return DescribeClientQuotasResponse(
                error_code=context.count_error(ErrorCode.INVALID_REQUEST),
                error_message=(
                    f"unknown entity or match; entity={component.entity_type[:MAX_NAMED]!r} "
                    f"match={component.match_type} known={','.join(ENTITIES)}"
                ),
                entries=None,
            )
    quotas = await context.broker.security.quotas.list()
    if context.tenant:
        shown = ((entity_in_tenant(context.tenant, each.entity), each) for each in quotas)
        quotas = [replace(each, entity=entity) for entity, each in shown if entity is not None]
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[_entry(each) for each in quotas if _matches(each.entity, request)],
    )


def _matches(entity: QuotaEntity, request: DescribeClientQuotasRequest) -> bool:
    parts = entity.parts()
    if request.strict and len(parts) != len(request.components):
        return False
    return all(_is_named(parts.get(component.entity_type), component) for component in request.components)


def _is_named(name: str | None, component: ComponentData) -> bool:
    if component.match_type == ANY_NAME:
        return name is not None
    return name == (component.match if component.match_type == EXACT else DEFAULT)


def _entry(quota: Quota) -> EntryData:
    return EntryData(
        entity=[
            EntityData(entity_type=kind, entity_name=None if name == DEFAULT else name)
            for kind, name in quota.entity.parts().items()
        ],
        values=[ValueData(key=limit, value=value) for limit, value in quota.limits.items()],
    )
