"""CreateTopics, API key 19, versions 2-7: create topics with partitions and settings.

Behaviour   each topic on its own: created, or rejected with code and message
            partitions -1: `topics.default_partitions`
            replication factor -1, or any up to 32: the store makes records durable, so the factor is stored as a
            setting of the topic, shown to tools that compare it, and otherwise has no effect
            assignments by hand are checked as Kafka does (partitions from 0 on without gaps, no broker twice, known
            brokers, as many for each partition); the first broker of each leads the partition as long as it lives
            a name that occurs twice in a request is INVALID_REQUEST
            names that differ only in `.` and `_` collide, which is INVALID_TOPIC_EXCEPTION
            validate_only checks everything and creates nothing
            the answer lists all settings of the topic (v5)
Left out    timeout_ms: the topic exists when the response is sent
Versions    v4 default partitions and factor · v5 flexible, settings in the answer · v7 topic id
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from streamhouse.broker.catalog.kafka_configs import Overrides
from streamhouse.errors import (
    InvalidAssignment,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplication,
    Rejected,
    StreamhouseError,
)
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.names import check_topic_name
from streamhouse.model.needs import all_of, need
from streamhouse.model.topic import Topic
from streamhouse.model.topic_settings import MAX_REPLICATION, REPLICATION_FACTOR, TOPIC_SETTINGS, TopicSetting
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from streamhouse.wire.kafka.resources import SOURCES, ConfigSource, assign, check_assigned
from streamhouse.wire.kafka.schema import ZERO_UUID

DEFAULT: Final = -1


@handles(
    CreateTopicsRequest,
    (2, 7),
    needs=all_of(
        need((Operation.CREATE, ResourceType.CLUSTER), (Operation.CREATE, ResourceType.TOPIC)),
        need((Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC), when="to see the new topic's settings in the response"),
    ),
)
async def handle(context: Context, request: CreateTopicsRequest) -> HandlerResult:
    counts = Counter(topic.name for topic in request.topics)
    unique = {topic.name: topic for topic in request.topics}
    return CreateTopicsResponse(
        topics=[
            await _create(context, topic, dry_run=request.validate_only)
            if counts[name] == 1
            else _rejection(context, name, Rejected(f"topic occurs twice in the request; name={name}"))
            async for name, topic in iterate_fairly(unique.items())
        ]
    )


async def _create(context: Context, requested: CreatableTopic, *, dry_run: bool) -> CreatableTopicResult:
    try:
        context.check_create_topic(requested.name)
        check_topic_name(requested.name)
        overrides = dict(_overrides(requested))
        assigned = _assigned(context, requested) if requested.assignments else []
        partitions, factor = _layout(requested)
        if factor is not None and factor > 1:
            overrides[REPLICATION_FACTOR] = str(factor)
        changed = await context.broker.topic_admin.changed()
        if not dry_run:
            context.charge_mutations(partitions or context.broker.settings.topics.default_partitions)
        topic = await context.broker.create_topic(
            requested.name, partitions=partitions, overrides=overrides, dry_run=dry_run
        )
        if assigned and not dry_run:
            await assign(context, topic, assigned)
    except StreamhouseError as error:
        return _rejection(context, requested.name, error)
    if not context.allows_topic(Operation.DESCRIBE_CONFIGS, topic.name):
        return CreatableTopicResult(
            name=topic.name,
            topic_id=ZERO_UUID if dry_run else topic.topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=ZERO_UUID if dry_run else topic.topic_id,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=_configs(topic, changed),
    )


def _rejection(context: Context, name: str, error: StreamhouseError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=context.count_error(error), error_message=str(error))


def _overrides(requested: CreatableTopic) -> Mapping[str, str]:
    chosen: dict[str, str] = {}
    for config in requested.configs:
        if config.value is None:
            raise InvalidConfig(f"topic setting has no value; name={config.name}")
        chosen[config.name] = config.value
    return chosen


def _layout(requested: CreatableTopic) -> tuple[int | None, int | None]:
    """The requested numbers of partitions and replicas (None: default); raises for invalid ones."""
    if requested.assignments:
        return len(requested.assignments), len(requested.assignments[0].broker_ids)
    if requested.replication_factor != DEFAULT and not 1 <= requested.replication_factor <= MAX_REPLICATION:
        raise InvalidReplication(
            "replication factor is out of range; "
            f"factor={requested.replication_factor} allowed=-1, 1 to {MAX_REPLICATION}"
        )
    if requested.num_partitions != DEFAULT and requested.num_partitions < 1:
        raise InvalidPartitions(f"number of partitions is out of range; partitions={requested.num_partitions}")
    return _unless_default(requested.num_partitions), _unless_default(requested.replication_factor)


def _unless_default(number: int) -> int | None:
    return None if number == DEFAULT else number


def _assigned(context: Context, requested: CreatableTopic) -> list[list[int]]:
    """The brokers of each partition by manual assignment; raises for an invalid assignment."""
    if requested.num_partitions != DEFAULT or requested.replication_factor != DEFAULT:
        raise Rejected("with assignments by hand, partitions and replication factor must be -1")
    ordered = sorted(requested.assignments, key=lambda assignment: assignment.partition_index)
    if [assignment.partition_index for assignment in ordered] != list(range(len(ordered))):
        raise InvalidAssignment("assigned partitions must count from 0 without gaps or repetitions")
    assigned = [assignment.broker_ids for assignment in ordered]
    check_assigned(context, assigned)
    return assigned


def _configs(topic: Topic, changed: Overrides) -> list[CreatableTopicConfigs]:
    return [_config(topic, setting, changed) for _, setting in sorted(TOPIC_SETTINGS.items())]


def _config(topic: Topic, setting: TopicSetting, changed: Overrides) -> CreatableTopicConfigs:
    value, source = setting.default, ConfigSource.DEFAULT
    if setting.name == REPLICATION_FACTOR:
        return CreatableTopicConfigs(
            name=setting.name, value=str(topic.replication_factor), read_only=True, config_source=source
        )
    if setting.name in topic.overrides:
        value, source = topic.overrides[setting.name], ConfigSource.TOPIC
    elif chosen := changed.chosen(setting.synonym):
        value, source = chosen[0].value, SOURCES[chosen[0].source]
    return CreatableTopicConfigs(name=setting.name, value=value, config_source=source)
