"""Resources that several Kafka APIs name: settings, assignments, operations and replicas.

Owns        Kafka's numbers for resources, sources and types of settings; which assignments of brokers are valid; the
            bits of authorised operations; the list of replicas of a partition
Leaves      settings of topics to `model.topic_settings`, those of agents and pinned leaders to `broker`

Records are in the object store and not on agents, so only the first broker of an assignment counts: it is the preferred
leader. Tools compare the list of replicas with the one that they requested (kafka-reassign-partitions), or its length
(Terraform, Strimzi, ksqlDB): an assigned list is shown as it is, and otherwise as many ids as were requested: the
leader, then other live agents, then ids that no agent has. All are in sync: a missing replica makes no record less
durable. No id occurs twice, because tools reject such lists.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import chain, count, islice
from typing import Final, Protocol

from streamhouse.broker.catalog.kafka_configs import SettingSource
from streamhouse.errors import GroupAccessDenied, InvalidAssignment, Rejected, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation
from streamhouse.model.names import NodeId, PartitionId, check_topic_name
from streamhouse.model.topic import Topic
from streamhouse.model.topic_settings import SettingType
from streamhouse.wire.kafka.context import Context

MAX_NAMED: Final = 100
"""Characters of an invalid name that an error message repeats."""


Change = Callable[[Mapping[str, str]], Mapping[str, str]]


class ConfigResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


SOURCES: Final[Mapping[SettingSource, ConfigSource]] = {
    SettingSource.THIS_AGENT: ConfigSource.DYNAMIC_BROKER,
    SettingSource.EVERY_AGENT: ConfigSource.DYNAMIC_DEFAULT_BROKER,
    SettingSource.STARTED_WITH: ConfigSource.STATIC_BROKER,
    SettingSource.DEFAULT: ConfigSource.DEFAULT,
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
    """The number of occurrences of each resource."""
    return Counter((resource.resource_type, resource.resource_name) for resource in resources)


def require_once(resource: Resource, named: "Counter[tuple[int, str]]") -> None:
    """Raise if a resource occurs more than once: the order of changes would matter."""
    if named[resource.resource_type, resource.resource_name] > 1:
        raise Rejected(f"resource occurs twice in the request; name={resource.resource_name[:MAX_NAMED]}")


async def find_topic(context: Context, name: str) -> Topic:
    check_topic_name(name)
    return await context.broker.topic(name)


async def find_topics(context: Context, names: Iterable[str]) -> dict[str, Topic | StreamhouseError]:
    """Topics by name, or the error; each name is looked up once."""
    result: dict[str, Topic | StreamhouseError] = {}
    async for name in iterate_fairly(dict.fromkeys(names)):
        try:
            result[name] = await find_topic(context, name)
        except StreamhouseError as error:
            result[name] = error
    return result


def require_this_agent(context: Context, name: str) -> None:
    """Raise unless a broker's name is the node id of this agent."""
    if not (name.isascii() and name.isdecimal()):
        raise Rejected(f"broker id must be a whole number; id={name[:MAX_NAMED]!r}")
    if name != str(context.broker.node_id):
        raise Rejected(f"not the broker that was addressed; requested={name[:MAX_NAMED]} this={context.broker.node_id}")


def node_of(context: Context, name: str) -> NodeId | None:
    """The node whose settings are meant: this agent, or None for all agents."""
    if not name:
        return None
    require_this_agent(context, name)
    return context.broker.node_id


def no_settings(resource: Resource) -> Rejected:
    """The error for resources that have no settings here."""
    kind = resource.resource_type
    known = {each.value: each.name.lower().replace("_", " ") for each in ConfigResourceType}
    return Rejected(f"only topics and brokers have settings here; resource={known.get(kind, kind)}")


async def alter_resource(
    context: Context, resource: Resource, *, of_topic: Change, of_agent: Change, dry_run: bool
) -> None:
    """Change the overrides of a topic or broker, by a function of its current overrides."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        await find_topic(context, resource.resource_name)
        await context.broker.topic_admin.alter_topic(resource.resource_name, of_topic, dry_run=dry_run)
    elif resource.resource_type == ConfigResourceType.BROKER:
        node_id = node_of(context, resource.resource_name)
        await context.broker.topic_admin.alter_agent(node_id, of_agent, dry_run=dry_run)
    else:
        raise no_settings(resource)


def check_assigned(context: Context, assigned: Sequence[Sequence[int]]) -> None:
    """Raise `InvalidAssignment` if a broker of a partition is missing, repeated or unknown."""
    known = eligible_brokers(context)
    for brokers in assigned:
        if not brokers or len(set(brokers)) < len(brokers) or not known.issuperset(brokers):
            raise InvalidAssignment(
                f"brokers of a partition are missing, repeated, unknown or draining; brokers={list(brokers)} "
                f"known={sorted(known)}"
            )
        if len(brokers) != len(assigned[0]):
            raise InvalidAssignment(f"partitions have different numbers of brokers; brokers={list(brokers)}")


def eligible_brokers(context: Context) -> set[int]:
    """The agents that may lead partitions."""
    return {int(agent.node_id) for agent in context.broker.agents() if not agent.draining}


async def assign(context: Context, topic: Topic, assigned: Sequence[Sequence[int]], *, at: int = 0) -> None:
    """Assign the partitions from number `at` on to these brokers."""
    replicas = {PartitionId(topic.topic_id, at + number): brokers for number, brokers in enumerate(assigned)}
    pins = {partition: brokers[0] for partition, brokers in replicas.items()}
    await context.broker.cluster_admin.pin(pins, replicas)


def check_configs(context: Context, operation: Operation, resource: Resource) -> None:
    """Raise `AccessDenied` unless the caller may do this to the settings of a resource."""
    if resource.resource_type == ConfigResourceType.TOPIC:
        context.check_topic(operation, resource.resource_name)
    elif resource.resource_type == ConfigResourceType.GROUP:
        context.check_group(operation, resource.resource_name)
    else:
        context.check_agents(operation)


def split_groups(
    context: Context, operation: Operation, group_ids: Iterable[str]
) -> tuple[list[str], dict[str, GroupAccessDenied]]:
    """The groups that the caller may do this to, and why it may not do it to the others."""
    allowed: list[str] = []
    denied: dict[str, GroupAccessDenied] = {}
    for group_id in dict.fromkeys(group_ids):
        try:
            context.check_group(operation, group_id)
            allowed.append(group_id)
        except GroupAccessDenied as error:
            denied[group_id] = error
    return allowed, denied


def replicas_of(leader: int | None, *, assigned: Sequence[int] = (), factor: int, agents: Sequence[int]) -> list[int]:
    """The replicas of a partition: `assigned`, if the leader is one of them, otherwise `factor` node ids with the
    leader's first; `agents` are the live agents. Empty without a leader."""
    if leader is None:
        return []
    if leader in assigned:
        return list(assigned)
    others = sorted(node for node in agents if node != leader)
    others = [node for node in others if node > leader] + [node for node in others if node < leader]
    free = (node for node in count(1) if node != leader and node not in agents)
    return list(islice(chain((leader,), others, free), len(assigned) or factor))
