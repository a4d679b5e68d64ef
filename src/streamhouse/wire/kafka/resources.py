"""Resources: what has settings, as the config APIs name and number it.

Data path   the handlers of DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources
Owns        Kafka's numbers for resources, sources and types of settings; which resources can be named
Leaves      the settings of topics to `model.topic_settings`, the agent's to `broker.settings.configs`
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, Protocol

from streamhouse.broker.settings.configs import Source
from streamhouse.broker.turns import in_turns
from streamhouse.errors import Rejected, StreamhouseError
from streamhouse.model.names import NodeId, check_topic_name
from streamhouse.model.topic import Topic
from streamhouse.model.topic_settings import SettingType
from streamhouse.wire.kafka.answer import Context

MAX_NAMED: Final = 100
"""Characters of a wrong name that an answer repeats."""


Change = Callable[[Mapping[str, str]], Mapping[str, str]]


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


SOURCES: Final[Mapping[Source, ConfigSource]] = {
    Source.THIS_AGENT: ConfigSource.DYNAMIC_BROKER,
    Source.EVERY_AGENT: ConfigSource.DYNAMIC_DEFAULT_BROKER,
    Source.STARTED_WITH: ConfigSource.STATIC_BROKER,
    Source.DEFAULT: ConfigSource.DEFAULT,
}

CONFIG_TYPES: Final[Mapping[SettingType, int]] = {
    SettingType.BOOLEAN: 1,
    SettingType.STRING: 2,
    SettingType.INT: 3,
    SettingType.LONG: 5,
    SettingType.DOUBLE: 6,
    SettingType.LIST: 7,
}


class Resource(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...


def count_names(resources: Iterable[Resource]) -> "Counter[tuple[int, str]]":
    """How often each resource is named."""
    return Counter((resource.resource_type, resource.resource_name) for resource in resources)


def require_once(resource: Resource, named: "Counter[tuple[int, str]]") -> None:
    """Raise for a resource that is named more than once: the order of changes would matter."""
    if named[resource.resource_type, resource.resource_name] > 1:
        raise Rejected(f"resource occurs twice in the request; name={resource.resource_name[:MAX_NAMED]}")


async def find_topic(context: Context, name: str) -> Topic:
    check_topic_name(name)
    return await context.broker.topic(name)


async def find_topics(context: Context, names: Iterable[str]) -> dict[str, Topic | StreamhouseError]:
    """Topics by name, or why there is none, however often a name occurs."""
    found: dict[str, Topic | StreamhouseError] = {}
    async for name in in_turns(dict.fromkeys(names)):
        try:
            found[name] = await find_topic(context, name)
        except StreamhouseError as error:
            found[name] = error
    return found


def require_this_agent(context: Context, name: str) -> None:
    """Raise unless a broker's name is the number of the agent that was asked."""
    if not (name.isascii() and name.isdecimal()):
        raise Rejected(f"broker id must be a whole number; id={name[:MAX_NAMED]!r}")
    if name != str(context.broker.node_id):
        raise Rejected(f"settings are told by the agent itself; asked={name[:MAX_NAMED]} this={context.broker.node_id}")


def node_of(context: Context, name: str) -> NodeId | None:
    """Whose settings a broker's name stands for: those of the agent that was asked, or with None of every agent."""
    if not name:
        return None
    require_this_agent(context, name)
    return context.broker.node_id


def no_settings(resource: Resource) -> Rejected:
    """For resources that have no settings here."""
    kind = resource.resource_type
    known = {each.value: each.name.lower().replace("_", " ") for each in ResourceType}
    return Rejected(f"only topics and brokers have settings here; resource={known.get(kind, kind)}")


async def alter_resource(
    context: Context, resource: Resource, *, of_topic: Change, of_agent: Change, dry_run: bool
) -> None:
    """Change the settings that a topic or a broker has of its own, by a function of those that it has now."""
    if resource.resource_type == ResourceType.TOPIC:
        await find_topic(context, resource.resource_name)
        await context.broker.administration.alter_topic(resource.resource_name, of_topic, dry_run=dry_run)
    elif resource.resource_type == ResourceType.BROKER:
        node_id = node_of(context, resource.resource_name)
        await context.broker.administration.alter_agent(node_id, of_agent, dry_run=dry_run)
    else:
        raise no_settings(resource)
