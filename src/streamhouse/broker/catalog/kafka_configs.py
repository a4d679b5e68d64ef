"""The agent's settings under Kafka's names: values, where each comes from, and which may change at runtime.

Leaves      the settings themselves to `streamhouse.config`, topic defaults to `model.topic_settings`, changed values to
            `dynamic_settings`
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, get_args

import msgspec

from streamhouse.config import Address, Settings
from streamhouse.model.topic_settings import MAX_INT, MAX_LONG, TOPIC_SETTINGS, SettingType, switch, whole

Parse = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSetting:
    """One of Kafka's broker settings. `topic`: the topic setting whose default it is. `path`: our setting; `parse`
    converts a value to our unit, `write` to Kafka's. Without `parse` it is read-only; without a `default` it is only
    returned when it was changed."""

    name: str
    type: SettingType
    about: str
    default: str | None
    parse: Parse | None = None
    topic: str = ""
    path: str = ""
    write: Callable[[float], object] = int

    def text(self, settings: Settings) -> str | None:
        """The value at the agent's start, in Kafka's format."""
        return _text(self.write(_read(settings, self.path))) if self.path else self.default


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _minutes(seconds: float) -> int:
    return round(seconds / 60)


def _seconds_of(unit_s: float, low: int) -> Parse:
    parse = whole(low, MAX_INT)
    return lambda text: parse(text) * unit_s


_MS: Final = 0.001
_MINUTE: Final = 60.0


def _setting(
    name: str, kind: SettingType, path: str, write: Callable[[float], object] = int, parse: Parse | None = None
) -> AgentSetting:
    return AgentSetting(
        name=name,
        type=kind,
        about=f"{_description(path)} (setting {path})",
        default=_text(write(_read(Settings(), path))),
        parse=parse,
        path=path,
        write=write,
    )


def _read(settings: Settings, path: str) -> float:
    section, name = path.split(".")
    value: float = getattr(getattr(settings, section), name)
    return value


def _description(path: str) -> str:
    section, name = path.split(".")
    (setting,) = (field for field in msgspec.structs.fields(type(getattr(Settings(), section))) if field.name == name)
    return str(get_args(setting.type)[1].description)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_CHANGEABLE: Final = (
    _setting("auto.create.topics.enable", SettingType.BOOLEAN, "topics.auto_create", bool, switch),
    _setting("connections.max.idle.ms", SettingType.LONG, "kafka.idle_timeout_s", _ms),
    _setting("connections.max.reauth.ms", SettingType.LONG, "security.max_reauth_s", _ms),
    _setting("fetch.max.bytes", SettingType.INT, "fetch.max_bytes", int, whole(1024, MAX_INT)),
    _setting(
        "group.initial.rebalance.delay.ms",
        SettingType.INT,
        "groups.initial_rebalance_delay_s",
        _ms,
        _seconds_of(_MS, 0),
    ),
    _setting("group.max.session.timeout.ms", SettingType.INT, "groups.max_session_timeout_s", _ms, _seconds_of(_MS, 1)),
    _setting("group.max.size", SettingType.INT, "groups.max_members", int, whole(1, MAX_INT)),
    _setting("group.min.session.timeout.ms", SettingType.INT, "groups.min_session_timeout_s", _ms, _seconds_of(_MS, 1)),
    _setting("log.retention.check.interval.ms", SettingType.LONG, "retention.check_s", _ms),
    _setting("max.connection.creation.rate", SettingType.INT, "kafka.connections_per_s", round, whole(1, MAX_INT)),
    _setting("max.connections", SettingType.INT, "kafka.max_connections", int, whole(1, MAX_INT)),
    _setting("max.connections.per.ip", SettingType.INT, "kafka.max_connections_per_ip", int, whole(1, MAX_INT)),
    _setting("max.connections.per.ip.overrides", SettingType.STRING, "kafka.max_connections_per_ip_overrides", str),
    _setting("num.partitions", SettingType.INT, "topics.default_partitions", int, whole(1, MAX_INT)),
    _setting("offset.metadata.max.bytes", SettingType.INT, "groups.offset_metadata_bytes", int, whole(0, MAX_INT)),
    _setting("offsets.retention.check.interval.ms", SettingType.LONG, "groups.offsets_check_s", _ms),
    _setting(
        "offsets.retention.minutes", SettingType.INT, "groups.offsets_retention_s", _minutes, _seconds_of(_MINUTE, 1)
    ),
    _setting("offsets.topic.num.partitions", SettingType.INT, "groups.shards"),
    _setting("producer.id.expiration.ms", SettingType.INT, "producers.expire_s", _ms),
    _setting("socket.request.max.bytes", SettingType.INT, "kafka.max_request_bytes"),
)

_FIXED_FOR_TOPICS: Final = frozenset(
    {"remote.storage.enable", *(name for name in TOPIC_SETTINGS if name.startswith("table."))}
)
"""Settings that are read-only in Kafka as well, or belong to a single topic."""

_FOR_TOPICS: Final = tuple(
    AgentSetting(
        name=setting.synonym,
        type=setting.type,
        about=f"the default of topics: {setting.about}",
        default=setting.default,
        parse=None if setting.name in _FIXED_FOR_TOPICS else setting.parse,
        topic=setting.name,
    )
    for setting in TOPIC_SETTINGS.values()
    if setting.synonym
)

_NO_EFFECT: Final = "accepted for compatibility, without effect: "

_NO_COPIES: Final = _NO_EFFECT + "no records are copied between agents"
_NO_TIERS: Final = _NO_EFFECT + "all records are in the object store, and there is no second tier"


def _unused(name: str, kind: SettingType, default: int, low: int, about: str) -> AgentSetting:
    high = MAX_INT if kind is SettingType.INT else MAX_LONG
    return AgentSetting(name=name, type=kind, about=about, default=str(default), parse=whole(low, high))


_FOR_REPLICAS_AND_TIERS: Final = (
    _unused("leader.replication.throttled.rate", SettingType.LONG, MAX_LONG, 0, _NO_COPIES),
    _unused("follower.replication.throttled.rate", SettingType.LONG, MAX_LONG, 0, _NO_COPIES),
    _unused("replica.alter.log.dirs.io.max.bytes.per.second", SettingType.LONG, MAX_LONG, 0, _NO_COPIES),
    _unused("num.replica.fetchers", SettingType.INT, 1, 1, _NO_COPIES),
    _unused("remote.fetch.max.wait.ms", SettingType.INT, 500, 1, _NO_TIERS),
    _unused("remote.list.offsets.request.timeout.ms", SettingType.LONG, 30_000, 1, _NO_TIERS),
    _unused("remote.log.index.file.cache.total.size.bytes", SettingType.LONG, 1024**3, 1, _NO_TIERS),
    _unused("remote.log.manager.copier.thread.pool.size", SettingType.INT, 10, 1, _NO_TIERS),
    _unused("remote.log.manager.copy.max.bytes.per.second", SettingType.LONG, MAX_LONG, 1, _NO_TIERS),
    _unused("remote.log.manager.expiration.thread.pool.size", SettingType.INT, 10, 1, _NO_TIERS),
    _unused("remote.log.manager.fetch.max.bytes.per.second", SettingType.LONG, MAX_LONG, 1, _NO_TIERS),
    _unused("remote.log.reader.threads", SettingType.INT, 10, 1, _NO_TIERS),
)
"""Dynamic settings of Kafka."""

_STORED_ONLY: Final = (
    *_FOR_REPLICAS_AND_TIERS,
    AgentSetting(
        name="background.threads",
        type=SettingType.INT,
        about=_NO_EFFECT + "an agent's background work has no threads of its own",
        default="10",
        parse=whole(1, MAX_INT),
    ),
    AgentSetting(
        name="cleanup.policy",
        type=SettingType.LIST,
        about=_NO_EFFECT + "it is a topic's; the default of topics is log.cleanup.policy",
        default=None,
        parse=TOPIC_SETTINGS["cleanup.policy"].parse,
    ),
    AgentSetting(
        name="sasl.kerberos.min.time.before.relogin",
        type=SettingType.LONG,
        about=_NO_EFFECT + "an agent does not log in with Kerberos",
        default="60000",
        parse=whole(0, MAX_LONG),
    ),
)

AGENT_SETTINGS: Final[Mapping[str, AgentSetting]] = {
    setting.name: setting for setting in (*_FOR_TOPICS, *_CHANGEABLE, *_STORED_ONLY)
}


class SettingSource(Enum):
    """The source of a value, in order of precedence."""

    THIS_AGENT = "changed for this agent while it runs"
    EVERY_AGENT = "changed for every agent while they run"
    STARTED_WITH = "what the agent was started with"
    DEFAULT = "nobody chose it"


class ConfigValue(NamedTuple):
    source: SettingSource
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Dynamic settings by Kafka's names."""

    here: Mapping[str, str] = field(default_factory=dict)
    everywhere: Mapping[str, str] = field(default_factory=dict)

    def chosen(self, name: str) -> list[ConfigValue]:
        """The changed values of a setting with their sources, in order of precedence."""
        levels = ((SettingSource.THIS_AGENT, self.here), (SettingSource.EVERY_AGENT, self.everywhere))
        return [ConfigValue(source, values[name]) for source, values in levels if name in values]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """One setting of the agent with all its values; the first is effective."""

    name: str
    type: SettingType
    values: tuple[ConfigValue, ...]
    about: str
    read_only: bool = True

    @property
    def value(self) -> str:
        return self.values[0].value

    @property
    def source(self) -> SettingSource:
        return self.values[0].source


READ_ONLY: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "broker.rack",
        "default.replication.factor",
        "delete.topic.enable",
        "listeners",
        "log.dirs",
        "node.id",
        "offsets.topic.replication.factor",
    }
)
"""Read-only values of an agent that are not settings."""


def agent_configs(
    settings: Settings, *, node_id: int, advertised: Address, store: str, changed: Overrides
) -> Sequence[AgentConfig]:
    """All configs of an agent that was started with `settings`, by name."""
    configs = [
        *(_agent_config(setting, settings, changed) for setting in AGENT_SETTINGS.values()),
        *_read_only_configs(settings, node_id=node_id, advertised=advertised, store=store),
    ]
    return sorted((config for config in configs if config.values), key=lambda config: config.name)


def common_configs(changed: Overrides) -> Sequence[AgentConfig]:
    """The configs changed for all agents, by name."""
    return [
        AgentConfig(
            name=name,
            type=AGENT_SETTINGS[name].type,
            values=(ConfigValue(SettingSource.EVERY_AGENT, value),),
            about=AGENT_SETTINGS[name].about,
            read_only=False,
        )
        for name, value in sorted(changed.everywhere.items())
        if name in AGENT_SETTINGS
    ]


def _agent_config(setting: AgentSetting, settings: Settings, changed: Overrides) -> AgentConfig:
    values = changed.chosen(setting.name)
    started_with = setting.text(settings)
    if started_with is not None and started_with != setting.default:
        values.append(ConfigValue(SettingSource.STARTED_WITH, started_with))
    if setting.default is not None:
        values.append(ConfigValue(SettingSource.DEFAULT, setting.default))
    return AgentConfig(
        name=setting.name,
        type=setting.type,
        values=tuple(values),
        about=setting.about,
        read_only=setting.parse is None,
    )


def _read_only_configs(settings: Settings, *, node_id: int, advertised: Address, store: str) -> list[AgentConfig]:
    identity = "given by the metadata store when the agent's session began"
    once = "the store, not replicas, makes an acknowledged record durable"
    chosen = [
        ("advertised.listeners", SettingType.LIST, f"PLAINTEXT://{advertised}", "addresses that clients connect to"),
        ("broker.id", SettingType.INT, str(node_id), identity),
        ("broker.rack", SettingType.STRING, settings.agent.zone, "the agent's zone; empty if it has none"),
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
        AgentConfig(name=name, type=kind, values=(ConfigValue(source, value),), about=about)
        for source, facts in ((SettingSource.STARTED_WITH, chosen), (SettingSource.DEFAULT, fixed))
        for name, kind, value, about in facts
    ]
