"""ListConfigResources, API key 74, versions 0-1: resources with settings.

Behaviour   topics and agents, of the requested types, or of all types if none is requested
            before v1 only client metrics can be requested, of which there are none
            groups, broker loggers and client metrics have no settings here, so there are none
            an unknown type is UNSUPPORTED_VERSION
Left out    nothing
Versions    v0 flexible · v1 types of resources
"""

from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from streamhouse.wire.kafka.resources import ConfigResourceType

TYPES_SINCE: Final = 1


@handles(ListConfigResourcesRequest, (0, 1), needs=needs(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER))
async def handle(context: Context, request: ListConfigResourcesRequest) -> HandlerResult:
    if not context.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=context.count_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if context.version < TYPES_SINCE:
        return ListConfigResourcesResponse()
    requested = set(request.resource_types) or set(map(int, ConfigResourceType))
    if not requested <= set(map(int, ConfigResourceType)):
        return ListConfigResourcesResponse(error_code=context.count_error(ErrorCode.UNSUPPORTED_VERSION))
    try:
        return ListConfigResourcesResponse(config_resources=await _resources(context, requested))
    except StreamhouseError as error:
        return ListConfigResourcesResponse(error_code=context.count_error(error))


async def _resources(context: Context, requested: set[int]) -> list[ConfigResource]:
    result: list[ConfigResource] = []
    if ConfigResourceType.TOPIC in requested:
        names = [topic.name for topic in await context.broker.topics()]
        result += [ConfigResource(resource_name=name, resource_type=ConfigResourceType.TOPIC) for name in names]
    if ConfigResourceType.BROKER in requested:
        nodes = [str(node) for node, _ in context.agents()]
        result += [ConfigResource(resource_name=node, resource_type=ConfigResourceType.BROKER) for node in nodes]
    return result
