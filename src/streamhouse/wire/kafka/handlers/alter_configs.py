"""AlterConfigs, API key 33, versions 0-2: replace the settings of topics, or the dynamic settings of brokers.

Behaviour   each resource on its own: afterwards it has the settings of the request and no others
            a broker, by its id: its dynamic settings; without an id: those of all brokers. Other settings keep
            what the agent was started with
            unknown settings are INVALID_CONFIG, and so are values that a topic can't have; values that a broker can't
            have and settings that can't be changed while it runs are INVALID_REQUEST, as in Kafka; then nothing changes
            a resource or a setting that occurs twice, or a setting without a value: INVALID_REQUEST
            in effect when the response is sent: a topic's for appends and retention, a broker's on this agent; on other
            agents when they are notified
            validate_only checks everything and changes nothing
Left out    broker loggers, client metrics, groups: INVALID_REQUEST
Versions    v2 flexible
"""

from collections import Counter

from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from streamhouse.wire.kafka.resources import MAX_NAMED, alter_resource, check_configs, count_names, require_once


@handles(
    AlterConfigsRequest,
    (0, 2),
    needs=all_of(
        need((Operation.ALTER_CONFIGS, ResourceType.TOPIC), when="of a topic"),
        need((Operation.ALTER_CONFIGS, ResourceType.GROUP), when="of a group"),
        need((Operation.ALTER_CONFIGS, ResourceType.CLUSTER), when="of a broker, or of client metrics"),
    ),
)
async def handle(context: Context, request: AlterConfigsRequest) -> HandlerResult:
    named = count_names(request.resources)
    return AlterConfigsResponse(
        responses=[
            await _alter(context, resource, named, dry_run=request.validate_only)
            async for resource in iterate_fairly(request.resources)
        ]
    )


async def _alter(
    context: Context, resource: AlterConfigsResource, named: "Counter[tuple[int, str]]", *, dry_run: bool
) -> AlterConfigsResourceResponse:
    result = AlterConfigsResourceResponse(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        check_configs(context, Operation.ALTER_CONFIGS, resource)
        require_once(resource, named)
        requested = _requested_settings(resource)
        await alter_resource(
            context, resource, of_topic=lambda _: requested, of_agent=lambda _: requested, dry_run=dry_run
        )
    except StreamhouseError as error:
        result.error_code, result.error_message = context.count_error(error), str(error)
    return result


def _requested_settings(resource: AlterConfigsResource) -> dict[str, str]:
    requested: dict[str, str] = {}
    for config in resource.configs:
        if config.value is None:
            raise Rejected(f"setting has no value; name={config.name[:MAX_NAMED]}")
        if config.name in requested:
            raise Rejected(f"setting occurs twice; name={config.name[:MAX_NAMED]}")
        requested[config.name] = config.value
    return requested
