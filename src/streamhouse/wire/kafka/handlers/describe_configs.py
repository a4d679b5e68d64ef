"""DescribeConfigs, API key 32, versions 1-4: the settings of topics and of the agent.

Behaviour   a topic: all its settings, its own and the defaults, with type and documentation (v3) if requested
            a broker, by its id: the agent's settings by Kafka's names, with the name of ours; read-only unless they can
            be changed while it runs; without an id: those changed for all brokers while they run; of another broker:
            INVALID_REQUEST, as in Kafka, because each one returns its own
            where a value comes from: the topic, this broker or all of them, changed while they run, what the agent was
            started with, the default
            settings can be requested by name; unknown names are left out, no names mean all
            a resource that occurs twice with the same names is answered once
            synonyms are all these values, strongest first; of topics' settings whose default in Kafka follows from
            another one (retention.ms from hours) the default is not among them, as there
            a topic's replication factor is returned as a read-only default: tools that compare the settings of a topic
            (Terraform, MirrorMaker) would otherwise treat it as an added setting
            groups and client metrics have no settings here; kafka-configs always requests them
Left out    broker loggers: INVALID_REQUEST
Versions    v3 type and documentation · v4 flexible
"""

from collections.abc import Iterable
from typing import Final

from streamhouse.broker.catalog.kafka_configs import AgentConfig, Overrides
from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import all_of, need
from streamhouse.model.topic import Topic
from streamhouse.model.topic_settings import REPLICATION_FACTOR, TOPIC_SETTINGS, TopicSetting
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from streamhouse.wire.kafka.resources import (
    CONFIG_TYPES,
    SOURCES,
    ConfigResourceType,
    ConfigSource,
    check_configs,
    find_topic,
    no_settings,
    node_of,
)

WITHOUT_SETTINGS: Final = frozenset({ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS})
DERIVED: Final = frozenset({"flush.ms", "remote.storage.enable", "retention.ms", "segment.jitter.ms", "segment.ms"})
"""Settings without a default synonym in Kafka: their default comes from another setting, such as hours."""


@handles(
    DescribeConfigsRequest,
    (1, 4),
    needs=all_of(
        need((Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC), when="of a topic"),
        need((Operation.DESCRIBE_CONFIGS, ResourceType.GROUP), when="of a group"),
        need((Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER), when="of a broker, or of client metrics"),
    ),
)
async def handle(context: Context, request: DescribeConfigsRequest) -> HandlerResult:
    # A short request can have a long response, so repeated resources are answered once.
    unique = {(each.resource_type, each.resource_name, _keys(each)): each for each in request.resources}
    await context.broker.catalog.renew()  # another agent may have made the change that the client wants to see
    return DescribeConfigsResponse(
        results=[await _resource(context, resource, request) async for resource in iterate_fairly(unique.values())]
    )


def _keys(resource: DescribeConfigsResource) -> tuple[str, ...]:
    return tuple(resource.configuration_keys or ())


async def _resource(
    context: Context, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        check_configs(context, Operation.DESCRIBE_CONFIGS, resource)
        matches = await _configs(context, resource)
    except StreamhouseError as error:
        result.error_code, result.error_message = context.count_error(error), str(error)
        return result
    requested = set(_keys(resource))
    result.configs = [config for config in matches if not requested or config.name in requested]
    for config in result.configs:
        if not request.include_synonyms:
            config.synonyms = []
        if not request.include_documentation:
            config.documentation = None
    return result


async def _configs(context: Context, resource: DescribeConfigsResource) -> Iterable[DescribeConfigsResourceResult]:
    if resource.resource_type == ConfigResourceType.TOPIC:
        topic = await find_topic(context, resource.resource_name)
        changed = await context.broker.topic_admin.changed()
        return [_of_topic(topic, setting, changed) for _, setting in sorted(TOPIC_SETTINGS.items())]
    if resource.resource_type == ConfigResourceType.BROKER:
        if node_of(context, resource.resource_name) is None:
            return map(_of_agent, await context.broker.topic_admin.common_configs())
        return map(_of_agent, await context.broker.topic_admin.configs(advertised=context.advertised))
    if resource.resource_type in WITHOUT_SETTINGS:
        return []
    raise no_settings(resource)


def _of_topic(topic: Topic, setting: TopicSetting, changed: Overrides) -> DescribeConfigsResourceResult:
    if setting.name == REPLICATION_FACTOR:
        return _fixed(setting, str(topic.replication_factor))
    own = topic.overrides.get(setting.name)
    synonyms = []
    if own is not None:
        synonyms.append(DescribeConfigsSynonym(name=setting.name, value=own, source=ConfigSource.TOPIC))
    for source, value in changed.chosen(setting.synonym):
        synonyms.append(DescribeConfigsSynonym(name=setting.synonym, value=value, source=SOURCES[source]))
    default = DescribeConfigsSynonym(name=setting.synonym, value=setting.default, source=ConfigSource.DEFAULT)
    in_force = synonyms[0] if synonyms else default
    if setting.synonym and setting.name not in DERIVED:
        synonyms.append(default)
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=in_force.value,
        config_source=in_force.source,
        synonyms=synonyms,
        config_type=CONFIG_TYPES[setting.type],
        documentation=setting.about,
    )


def _fixed(setting: TopicSetting, value: str) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=value,
        read_only=True,
        config_source=ConfigSource.DEFAULT,
        synonyms=[],
        config_type=CONFIG_TYPES[setting.type],
        documentation=setting.about,
    )


def _of_agent(config: AgentConfig) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=SOURCES[config.source],
        synonyms=[
            DescribeConfigsSynonym(name=config.name, value=value, source=SOURCES[source])
            for source, value in config.values
        ],
        config_type=CONFIG_TYPES[config.type],
        documentation=config.about,
    )
