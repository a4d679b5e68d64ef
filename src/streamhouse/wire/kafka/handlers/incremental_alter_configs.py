"""IncrementalAlterConfigs, API key 44, versions 0-1: some settings of a topic or a broker are changed, the others stay.

Behaviour   each resource on its own: a setting is set, deleted (what holds without it holds again), or items are
            appended to or subtracted from a list
            a broker, by its id: what is changed for it while it runs; without an id: for every broker
            two clients that change different settings at once both succeed
            unknown settings and lists that aren't lists are INVALID_CONFIG, and so are values that a topic can't have;
            values that a broker can't have and settings that can't be changed while it runs are INVALID_REQUEST, as in
            Kafka; then nothing changes. Deleting an unset one is no error
            a resource or a setting that occurs twice, a missing value, an unknown operation: INVALID_REQUEST
            in effect when the response is sent: a topic's for appends and retention, a broker's on this agent; on other
            agents when they are notified
            validate_only checks everything and changes nothing
Left out    broker loggers, client metrics, groups: INVALID_REQUEST
Versions    v1 flexible
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from streamhouse.broker.catalog.dynamic_settings import find_agent_setting
from streamhouse.broker.catalog.kafka_configs import AgentSetting
from streamhouse.errors import InvalidConfig, Rejected, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import all_of, need
from streamhouse.model.topic import find_setting
from streamhouse.model.topic_settings import SettingType, TopicSetting, split_list
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from streamhouse.wire.kafka.resources import MAX_NAMED, alter_resource, check_configs, count_names, require_once


class Change(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Setting = TopicSetting | AgentSetting

CHANGES: Final = frozenset(map(int, Change))


@handles(
    IncrementalAlterConfigsRequest,
    (0, 1),
    needs=all_of(
        need((Operation.ALTER_CONFIGS, ResourceType.TOPIC), when="of a topic"),
        need((Operation.ALTER_CONFIGS, ResourceType.GROUP), when="of a group"),
        need((Operation.ALTER_CONFIGS, ResourceType.CLUSTER), when="of a broker, or of client metrics"),
    ),
)
async def handle(context: Context, request: IncrementalAlterConfigsRequest) -> HandlerResult:
    named = count_names(request.resources)
    return IncrementalAlterConfigsResponse(
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
        _check(resource.configs)
        await alter_resource(
            context,
            resource,
            of_topic=lambda overrides: apply(resource.configs, overrides, find=find_setting),
            of_agent=lambda changed: apply(resource.configs, changed, find=find_agent_setting),
            dry_run=dry_run,
        )
    except StreamhouseError as error:
        result.error_code, result.error_message = context.count_error(error), str(error)
    return result


def _check(configs: Sequence[AlterableConfig]) -> None:
    """Raise for requests that are invalid for any resource."""
    for name, count in Counter(config.name for config in configs).items():
        if count > 1:
            raise Rejected(f"setting occurs twice; name={name[:MAX_NAMED]}")
    for config in configs:
        if config.config_operation not in CHANGES:
            raise Rejected(f"unknown operation; name={config.name[:MAX_NAMED]} operation={config.config_operation}")
        if config.value is None and config.config_operation != Change.DELETE:
            raise Rejected(f"setting has no value; name={config.name[:MAX_NAMED]}")


def apply(
    changes: Sequence[AlterableConfig], overrides: Mapping[str, str], *, find: Callable[[str], Setting]
) -> Mapping[str, str]:
    """A resource's own settings after these changes. Decides; touches nothing."""
    changed = dict(overrides)
    for change in changes:
        match change.config_operation:
            case Change.SET:
                changed[change.name] = change.value or ""
            case Change.DELETE:
                changed.pop(change.name, None)
            case _:
                changed[change.name] = _joined(change, changed, find(change.name))
    return changed


def _joined(change: AlterableConfig, overrides: Mapping[str, str], setting: Setting) -> str:
    """A list with the items of a change, or without them."""
    if setting.type is not SettingType.LIST:
        raise InvalidConfig(f"only lists can be appended to or subtracted from; name={change.name}")
    items = split_list(overrides.get(change.name, setting.default or ""))
    others = split_list(change.value or "")
    if change.config_operation == Change.APPEND:
        return ",".join([*items, *(item for item in dict.fromkeys(others) if item not in items)])
    return ",".join(item for item in items if item not in others)
