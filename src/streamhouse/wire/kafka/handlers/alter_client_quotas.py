"""AlterClientQuotas, API key 49, versions 0-1: change client quotas (KIP-546).

Behaviour   entities are a user, a client id, both, or an address; a null name is the default for all without own quotas
            producer_byte_rate, consumer_byte_rate, request_percentage and controller_mutation_rate, for addresses
            connection_creation_rate; anything else is INVALID_REQUEST
            a quota holds for the whole cluster; in Kafka it holds per broker
            each entry is atomic and independent of the others
Left out    nothing
Versions    v1 flexible
"""

from streamhouse.errors import InvalidConfig, Rejected, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.model.quota import (
    ADDRESS_ENTITY,
    CLIENT_ENTITY,
    DEFAULT,
    USER_ENTITY,
    QuotaEntity,
    entity_of_tenant,
)
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    RequestEntryData,
)
from streamhouse.wire.kafka.resources import MAX_NAMED


@handles(AlterClientQuotasRequest, (0, 1), needs=needs(Operation.ALTER_CONFIGS, ResourceType.CLUSTER))
async def handle(context: Context, request: AlterClientQuotasRequest) -> HandlerResult:
    return AlterClientQuotasResponse(
        entries=[
            await _alter(context, requested, dry_run=request.validate_only)
            async for requested in iterate_fairly(request.entries)
        ]
    )


async def _alter(context: Context, requested: RequestEntryData, *, dry_run: bool) -> EntryData:
    if not context.allows_cluster(Operation.ALTER_CONFIGS):
        return EntryData(
            error_code=context.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            error_message="not authorised to alter the cluster's configuration",
            entity=requested.entity,
        )
    changes = {change.key: None if change.remove else change.value for change in requested.ops}
    try:
        if len(changes) != len(requested.ops):
            raise Rejected("a limit is changed twice in one entry")
        entity = _entity(requested)
        if context.tenant:
            entity = entity_of_tenant(context.tenant, entity)
        await context.broker.security.quotas.alter(entity, changes, dry_run=dry_run)
    except InvalidConfig as error:
        context.count_error(ErrorCode.INVALID_REQUEST)
        return EntryData(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error), entity=requested.entity)
    except StreamhouseError as error:
        return EntryData(error_code=context.count_error(error), error_message=str(error), entity=requested.entity)
    return EntryData(error_message=None, entity=requested.entity)


def _entity(requested: RequestEntryData) -> QuotaEntity:
    """The entity; raises for one that Kafka doesn't know either."""
    parts: dict[str, str] = {}
    for part in requested.entity:
        if part.entity_type not in (USER_ENTITY, CLIENT_ENTITY, ADDRESS_ENTITY) or part.entity_type in parts:
            raise InvalidConfig(f"unknown or repeated type of entity; type={part.entity_type[:MAX_NAMED]!r}")
        parts[part.entity_type] = DEFAULT if part.entity_name is None else part.entity_name
    return QuotaEntity(parts.get(USER_ENTITY), parts.get(CLIENT_ENTITY), parts.get(ADDRESS_ENTITY))
