"""Configs: the agent's settings, by the names that Kafka's tools ask for.

Data path   administration -> **configs**
Owns        which of our settings is what Kafka calls what, and in which unit
Leaves      the settings to `streamhouse.config`, where they come from to `load`
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, get_args

import msgspec

from streamhouse.config import Address, Settings
from streamhouse.model.topic_settings import TOPIC_SETTINGS, SettingType


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """One setting of the agent. `is_default`: nobody chose the value."""

    name: str
    type: SettingType
    value: str
    is_default: bool
    about: str


class _Source(NamedTuple):
    """Kafka's name, and the field of ours that it stands for."""

    name: str
    type: SettingType
    path: str
    write: Callable[[float], object] = int


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _minutes(seconds: float) -> int:
    return round(seconds / 60)


_SOURCES: Final = (
    _Source("auto.create.topics.enable", SettingType.BOOLEAN, "topics.auto_create", bool),
    _Source("connections.max.idle.ms", SettingType.LONG, "kafka.idle_timeout_s", _ms),
    _Source("fetch.max.bytes", SettingType.INT, "fetch.max_bytes"),
    _Source("group.initial.rebalance.delay.ms", SettingType.INT, "groups.initial_rebalance_delay_s", _ms),
    _Source("group.max.session.timeout.ms", SettingType.INT, "groups.max_session_timeout_s", _ms),
    _Source("group.max.size", SettingType.INT, "groups.max_members"),
    _Source("group.min.session.timeout.ms", SettingType.INT, "groups.min_session_timeout_s", _ms),
    _Source("log.retention.check.interval.ms", SettingType.LONG, "retention.check_s", _ms),
    _Source("max.connections", SettingType.INT, "kafka.max_connections"),
    _Source("num.partitions", SettingType.INT, "topics.default_partitions"),
    _Source("offset.metadata.max.bytes", SettingType.INT, "groups.offset_metadata_bytes"),
    _Source("offsets.retention.check.interval.ms", SettingType.LONG, "groups.offsets_check_s", _ms),
    _Source("offsets.retention.minutes", SettingType.INT, "groups.offsets_retention_s", _minutes),
    _Source("offsets.topic.num.partitions", SettingType.INT, "groups.shards"),
    _Source("producer.id.expiration.ms", SettingType.INT, "producers.expire_s", _ms),
    _Source("socket.request.max.bytes", SettingType.INT, "kafka.max_request_bytes"),
)


def agent_configs(settings: Settings, *, node_id: int, advertised: Address, store: str) -> Sequence[AgentConfig]:
    """Everything there is to tell, by name."""
    found = {
        config.name: config
        for config in (
            *_defaults_of_topics(),
            *(_from_setting(source, settings) for source in _SOURCES),
            *_facts(settings, node_id=node_id, advertised=advertised, store=store),
        )
    }
    return [config for _, config in sorted(found.items())]


def _from_setting(source: _Source, settings: Settings) -> AgentConfig:
    value, default = _read(settings, source.path), _read(Settings(), source.path)
    return AgentConfig(
        name=source.name,
        type=source.type,
        value=_text(source.write(value)),
        is_default=value == default,
        about=f"{_about(source.path)} (setting {source.path})",
    )


def _read(settings: Settings, path: str) -> float:
    section, name = path.split(".")
    value: float = getattr(getattr(settings, section), name)
    return value


def _about(path: str) -> str:
    section, name = path.split(".")
    (found,) = (field for field in msgspec.structs.fields(type(getattr(Settings(), section))) if field.name == name)
    return str(get_args(found.type)[1].description)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _defaults_of_topics() -> list[AgentConfig]:
    """What holds for a topic that wasn't told otherwise."""
    return [
        AgentConfig(
            name=setting.synonym,
            type=setting.type,
            value=setting.default,
            is_default=True,
            about=f"the default of topics: {setting.about}",
        )
        for setting in TOPIC_SETTINGS.values()
    ]


def _facts(settings: Settings, *, node_id: int, advertised: Address, store: str) -> list[AgentConfig]:
    identity = "given by the metadata store when the agent's session began"
    once = "the store, not replicas, makes an acknowledged record durable"
    chosen = [
        ("advertised.listeners", SettingType.LIST, f"PLAINTEXT://{advertised}", "where clients are told to connect"),
        ("broker.id", SettingType.INT, str(node_id), identity),
        ("listeners", SettingType.LIST, f"PLAINTEXT://{settings.kafka.listen}", "the Kafka listener's address"),
        ("log.dirs", SettingType.LIST, store, "where records live"),
        ("node.id", SettingType.INT, str(node_id), identity),
    ]
    fixed = [
        ("default.replication.factor", SettingType.INT, "1", once),
        ("delete.topic.enable", SettingType.BOOLEAN, "true", "topics can be deleted"),
        ("offsets.topic.replication.factor", SettingType.INT, "1", once),
    ]
    return [
        *(AgentConfig(name=n, type=t, value=v, is_default=False, about=a) for n, t, v, a in chosen),
        *(AgentConfig(name=n, type=t, value=v, is_default=True, about=a) for n, t, v, a in fixed),
    ]
