"""AlterClientQuotas, API key 49, versions 0-1: how much clients may use is changed.

Behaviour   an entity that a quota is set for is UNSUPPORTED_VERSION: quotas are not enforced, so none is accepted
            removing quotas is no error, because there are none
Left out    quotas
Versions    v1 flexible
"""

from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
    RequestEntryData,
)


@handles(AlterClientQuotasRequest, (0, 1), needs=(need((Operation.ALTER_CONFIGS, ResourceType.CLUSTER)),))
async def handle(context: Context, request: AlterClientQuotasRequest) -> HandlerResult:
    return AlterClientQuotasResponse(
        entries=[_entry(context, requested) async for requested in iterate_fairly(request.entries)]
    )


def _entry(context: Context, requested: RequestEntryData) -> EntryData:
    if not context.allows_cluster(Operation.ALTER_CONFIGS):
        return EntryData(
            error_code=context.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            error_message="not authorised to alter the cluster's configuration",
            entity=requested.entity,
        )
    if all(change.remove for change in requested.ops):
        return EntryData(error_message=None, entity=requested.entity)
    return EntryData(
        error_code=context.count_error(ErrorCode.UNSUPPORTED_VERSION),
        error_message="quotas are not enforced by this agent, so none is accepted",
        entity=requested.entity,
    )
