"""DescribeCluster, API key 60, versions 0-2: the agents and the cluster id.

Behaviour   returns brokers; a request for controllers is MISMATCHED_ENDPOINT_TYPE, for any other type
            UNSUPPORTED_ENDPOINT_TYPE
            an agent's rack is its zone (`agent.zone`)
            authorised operations are what the caller may do (KIP-430)
Left out    fenced brokers: there are none
Versions    v1 endpoint type · v2 fenced brokers
"""

from typing import Final

from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.access import NOT_REQUESTED, cluster_operations
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


@handles(
    DescribeClusterRequest,
    (0, 2),
    needs=all_of(need((Operation.DESCRIBE, ResourceType.CLUSTER), when="for authorised operations")),
)
async def handle(context: Context, request: DescribeClusterRequest) -> HandlerResult:
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=context.count_error(ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            error_message="this is a broker; there are no controllers to ask",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=context.count_error(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            error_message=f"unknown type of endpoint; type={request.endpoint_type}",
        )
    agents, zones = context.agents(), context.zones()
    requested = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=context.cluster_id,
        controller_id=min(node for node, _ in agents),
        brokers=[
            DescribeClusterBroker(broker_id=node, host=address.host, port=address.port, rack=zones.get(node))
            for node, address in agents
        ],
        cluster_authorized_operations=cluster_operations(context) if requested else NOT_REQUESTED,
    )
