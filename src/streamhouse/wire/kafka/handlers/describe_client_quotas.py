"""DescribeClientQuotas, API key 48, versions 0-1: how much clients may use.

Behaviour   no quotas exist, so none are told, whoever is asked about
            an entity or a kind of match that Kafka doesn't know is INVALID_REQUEST
Left out    quotas
Versions    v1 flexible
"""

from typing import Final

from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from streamhouse.wire.kafka.resources import MAX_NAMED

ENTITIES: Final = ("user", "client-id", "ip")
MATCHES: Final = range(3)


@handles(DescribeClientQuotasRequest, (0, 1), needs=(need((Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)),))
async def handle(context: Context, request: DescribeClientQuotasRequest) -> HandlerResult:
    if not context.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(
            error_code=context.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            error_message="not authorised to describe the cluster's configuration",
            entries=None,
        )
    for component in request.components:
        if component.entity_type not in ENTITIES or component.match_type not in MATCHES:
            return DescribeClientQuotasResponse(
                error_code=context.count_error(ErrorCode.INVALID_REQUEST),
                error_message=(
                    f"unknown entity or match; entity={component.entity_type[:MAX_NAMED]!r} "
                    f"match={component.match_type} known={','.join(ENTITIES)}"
                ),
                entries=None,
            )
    return DescribeClientQuotasResponse(error_message=None)
