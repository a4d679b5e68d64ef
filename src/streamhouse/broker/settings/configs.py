"""Configs: the agent's settings as tools are told them, with where each value comes from.

Data path   administration -> **configs**
Owns        the order in which values hold, and what can't be changed because it is a fact
Leaves      which settings there are to `agent_settings`, what was changed to `dynamic`
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from streamhouse.broker.settings.agent_settings import AGENT_SETTINGS, AgentSetting
from streamhouse.config import Address, Settings
from streamhouse.model.topic_settings import SettingType


class Source(Enum):
    """Where a value comes from, strongest first."""

    THIS_AGENT = "changed for this agent while it runs"
    EVERY_AGENT = "changed for every agent while they run"
    STARTED_WITH = "what the agent was started with"
    DEFAULT = "nobody chose it"


class Chosen(NamedTuple):
    source: Source
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What was changed while agents run, by Kafka's names."""

    here: Mapping[str, str] = field(default_factory=dict)
    everywhere: Mapping[str, str] = field(default_factory=dict)

    def chosen(self, name: str) -> list[Chosen]:
        """Who changed a setting, strongest first."""
        levels = ((Source.THIS_AGENT, self.here), (Source.EVERY_AGENT, self.everywhere))
        return [Chosen(source, values[name]) for source, values in levels if name in values]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """One setting of the agent, and all the values that it was given, of which the first is in force."""

    name: str
    type: SettingType
    values: tuple[Chosen, ...]
    about: str
    read_only: bool = True

    @property
    def value(self) -> str:
        return self.values[0].value

    @property
    def source(self) -> Source:
        return self.values[0].source


FACTS: Final = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "default.replication.factor",
        "delete.topic.enable",
        "listeners",
        "log.dirs",
        "node.id",
        "offsets.topic.replication.factor",
    }
)
"""What is told of an agent besides its settings."""


def agent_configs(
    settings: Settings, *, node_id: int, advertised: Address, store: str, changed: Changed
) -> Sequence[AgentConfig]:
    """Everything there is to tell of an agent that was started with `settings`, by name."""
    found = [
        *(_told(setting, settings, changed) for setting in AGENT_SETTINGS.values()),
        *_facts(settings, node_id=node_id, advertised=advertised, store=store),
    ]
    return sorted((config for config in found if config.values), key=lambda config: config.name)


def common_configs(changed: Changed) -> Sequence[AgentConfig]:
    """What was changed for every agent, and nothing else, by name."""
    return [
        AgentConfig(
            name=name,
            type=AGENT_SETTINGS[name].type,
            values=(Chosen(Source.EVERY_AGENT, value),),
            about=AGENT_SETTINGS[name].about,
            read_only=False,
        )
        for name, value in sorted(changed.everywhere.items())
        if name in AGENT_SETTINGS
    ]


def _told(setting: AgentSetting, settings: Settings, changed: Changed) -> AgentConfig:
    values = changed.chosen(setting.name)
    started_with = setting.text(settings)
    if started_with is not None and started_with != setting.default:
        values.append(Chosen(Source.STARTED_WITH, started_with))
    if setting.default is not None:
        values.append(Chosen(Source.DEFAULT, setting.default))
    return AgentConfig(
        name=setting.name,
        type=setting.type,
        values=tuple(values),
        about=setting.about,
        read_only=setting.parse is None,
    )


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
        AgentConfig(name=name, type=kind, values=(Chosen(source, value),), about=about)
        for source, facts in ((Source.STARTED_WITH, chosen), (Source.DEFAULT, fixed))
        for name, kind, value, about in facts
    ]
