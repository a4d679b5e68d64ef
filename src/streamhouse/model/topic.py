"""Topic: a name, an id, a number of partitions and its settings.

Owns        merging a topic's settings with defaults, and rejecting invalid ones
Leaves      the list of settings to `topic_settings`; applying them to `broker`
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from streamhouse.errors import InvalidConfig
from streamhouse.model.names import TopicId
from streamhouse.model.schema import Check
from streamhouse.model.table import table_settings
from streamhouse.model.topic_settings import REPLICATION_FACTOR, TOPIC_SETTINGS, TopicSetting, split_list, switch

RecordPart: TypeAlias = Literal["key", "value"]

MAX_NAMED: Final = 100
"""Maximum length of an invalid name or value in an error."""

NO_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType({})
"""No changed defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The effective settings of a topic, parsed once."""

    retention_ms: int
    retention_bytes: int
    max_message_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    deletes: bool
    compacts: bool
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    schema_checks: Mapping[RecordPart, Check] = field(default_factory=dict)
    """The schema checks of keys and values; those that are off are left out."""


def topic_values(overrides: Mapping[str, str], defaults: Mapping[str, str] = NO_DEFAULTS) -> Mapping[str, str]:
    """The text of every setting: the topic's own, else the agent's default, else the built-in default."""
    return {name: overrides.get(name, defaults.get(name, setting.default)) for name, setting in TOPIC_SETTINGS.items()}


def parse_topic_config(overrides: Mapping[str, str], defaults: Mapping[str, str] = NO_DEFAULTS) -> TopicConfig:
    """Parse the effective settings of a topic; raises `InvalidConfig` with the first invalid one.

    `defaults` are valid values that replace built-in defaults. They may change while the topic exists, so only
    `check_topic_config` checks whether they contradict the topic's own settings.
    """
    for name, text in overrides.items():
        _parse(name, text)
    check_lags(topic_values(overrides))
    merged = topic_values(overrides, defaults)
    policy = split_list(merged["cleanup.policy"])
    return TopicConfig(
        retention_ms=int(merged["retention.ms"]),
        retention_bytes=int(merged["retention.bytes"]),
        max_message_bytes=int(merged["max.message.bytes"]),
        log_append_time=merged["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=int(merged["message.timestamp.before.max.ms"]),
        timestamp_after_max_ms=int(merged["message.timestamp.after.max.ms"]),
        deletes="delete" in policy,
        compacts="compact" in policy,
        delete_retention_ms=int(merged["delete.retention.ms"]),
        min_compaction_lag_ms=int(merged["min.compaction.lag.ms"]),
        max_compaction_lag_ms=int(merged["max.compaction.lag.ms"]),
        min_cleanable_dirty_ratio=float(merged["min.cleanable.dirty.ratio"]),
        schema_checks=_schema_checks(merged),
    )


def _schema_checks(values: Mapping[str, str]) -> Mapping[RecordPart, Check]:
    """If both names of a setting are used, the stricter one is effective."""
    checks: dict[RecordPart, tuple[str, str]] = {
        "key": (values["streamhouse.schema.validation.key"], values["confluent.key.schema.validation"]),
        "value": (values["streamhouse.schema.validation"], values["confluent.value.schema.validation"]),
    }
    enabled = {
        part: Check.SUBJECT if switch(theirs) else Check.ID if ours == "true" else Check(ours)
        for part, (ours, theirs) in checks.items()
    }
    return {part: check for part, check in enabled.items() if check is not Check.OFF}


def check_topic_config(overrides: Mapping[str, str], defaults: Mapping[str, str], *, topic: str = "") -> None:
    """Raise `InvalidConfig` for settings that are invalid for a topic of this name."""
    parse_topic_config(overrides, defaults)
    check_lags(topic_values(overrides, defaults))
    table_settings(topic, overrides)


def check_lags(values: Mapping[str, str]) -> None:
    if int(values["min.compaction.lag.ms"]) > int(values["max.compaction.lag.ms"]):
        raise InvalidConfig(
            "topic settings contradict each other; min.compaction.lag.ms is above max.compaction.lag.ms"
        )


def keep_replication_factor(before: Mapping[str, str], after: Mapping[str, str]) -> Mapping[str, str]:
    """Settings that replace all settings of a topic, with the topic's replication factor unless they have one: clients
    that replace all settings don't know of it."""
    if REPLICATION_FACTOR in before and REPLICATION_FACTOR not in after:
        return {**after, REPLICATION_FACTOR: before[REPLICATION_FACTOR]}
    return after


def find_setting(name: str) -> TopicSetting:
    """The setting of this name; raises `InvalidConfig` if it is unknown."""
    if (setting := TOPIC_SETTINGS.get(name)) is not None:
        return setting
    named = name[:MAX_NAMED]
    near = difflib.get_close_matches(named, TOPIC_SETTINGS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InvalidConfig(f"unknown topic setting; name={named!r}{hint}")


def _parse(name: str, text: str) -> object:
    setting = find_setting(name)
    try:
        return setting.parse(text)
    except ValueError as error:
        why = str(error)[:MAX_NAMED]
        raise InvalidConfig(
            f"topic setting has a bad value; name={name} value={text[:MAX_NAMED]!r} why={why}"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    topic_id: TopicId
    name: str
    partitions: int
    overrides: Mapping[str, str] = field(default_factory=dict)
    created_at_ms: int

    @property
    def replication_factor(self) -> int:
        """The requested replication factor; tools compare it, and it has no other effect."""
        return int(self.overrides.get(REPLICATION_FACTOR, TOPIC_SETTINGS[REPLICATION_FACTOR].default))
