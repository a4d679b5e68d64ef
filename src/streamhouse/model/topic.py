"""Topic: a name, an id, a number of partitions and the settings people give it.

Owns        which topic settings exist, their types, defaults and meaning (Kafka's names), and how they are validated
Leaves      acting on them: `broker` appends and cleans by them
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from streamhouse.errors import InvalidConfig
from streamhouse.model.names import TopicId

MAX_LONG: Final = 2**63 - 1
MAX_INT: Final = 2**31 - 1


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must lie between {low} and {high}")
        return value

    return parse


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return text

    return parse


def _policies(text: str) -> str:
    chosen = [part.strip() for part in text.split(",")]
    if not chosen or any(part not in ("delete", "compact") for part in chosen):
        raise ValueError("must be delete, compact, or both with a comma")
    return ",".join(chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    name: str
    default: str
    parse: Callable[[str], object]
    about: str


TOPIC_SETTINGS: Final[Mapping[str, TopicSetting]] = {
    setting.name: setting
    for setting in (
        TopicSetting(
            name="cleanup.policy",
            default="delete",
            parse=_policies,
            about="what happens to old records: delete, compact, or both",
        ),
        TopicSetting(
            name="retention.ms",
            default=str(7 * 24 * 3600 * 1000),
            parse=_integer(-1, MAX_LONG),
            about="records older than this may be deleted; -1 keeps them for ever",
        ),
        TopicSetting(
            name="retention.bytes",
            default="-1",
            parse=_integer(-1, MAX_LONG),
            about="the oldest records of a partition larger than this may be deleted; -1 sets no limit",
        ),
        TopicSetting(
            name="max.message.bytes",
            default=str(1024 * 1024 + 12),
            parse=_integer(0, MAX_INT),
            about="largest record batch that is accepted, as sent (compressed)",
        ),
        TopicSetting(
            name="message.timestamp.type",
            default="CreateTime",
            parse=_one_of("CreateTime", "LogAppendTime"),
            about="whether records keep the producer's timestamp or get the agent's",
        ),
        TopicSetting(
            name="message.timestamp.before.max.ms",
            default=str(MAX_LONG),
            parse=_integer(0, MAX_LONG),
            about="how far a producer's timestamp may lie behind the agent's clock",
        ),
        TopicSetting(
            name="message.timestamp.after.max.ms",
            default=str(3600 * 1000),
            parse=_integer(0, MAX_LONG),
            about="how far a producer's timestamp may lie ahead of the agent's clock",
        ),
        TopicSetting(
            name="compression.type",
            default="producer",
            parse=_one_of("producer"),
            about="batches stay as the producer compressed them; segments add LZ4 where it pays",
        ),
        TopicSetting(
            name="min.insync.replicas",
            default="1",
            parse=_integer(1, MAX_INT),
            about="accepted for compatibility: the store, not replicas, makes an acknowledged record durable",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings in force for a topic, parsed once."""

    retention_ms: int
    retention_bytes: int
    max_message_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    deletes: bool
    compacts: bool


def parse_topic_config(overrides: Mapping[str, str]) -> TopicConfig:
    """What a topic's own settings and the defaults add up to; raises `InvalidConfig` naming the first bad one."""
    for name, text in overrides.items():
        _parse(name, text)
    merged = {name: overrides.get(name, setting.default) for name, setting in TOPIC_SETTINGS.items()}
    policy = merged["cleanup.policy"]
    return TopicConfig(
        retention_ms=int(merged["retention.ms"]),
        retention_bytes=int(merged["retention.bytes"]),
        max_message_bytes=int(merged["max.message.bytes"]),
        log_append_time=merged["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=int(merged["message.timestamp.before.max.ms"]),
        timestamp_after_max_ms=int(merged["message.timestamp.after.max.ms"]),
        deletes="delete" in policy,
        compacts="compact" in policy,
    )


def _parse(name: str, text: str) -> object:
    setting = TOPIC_SETTINGS.get(name)
    if setting is None:
        raise InvalidConfig(f"unknown topic setting; name={name!r} known={','.join(TOPIC_SETTINGS)}")
    try:
        return setting.parse(text)
    except ValueError as error:
        raise InvalidConfig(f"topic setting has a bad value; name={name} value={text!r} why={error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    topic_id: TopicId
    name: str
    partitions: int
    overrides: Mapping[str, str] = field(default_factory=dict)
    created_at_ms: int
