"""Dynamic settings: changes of settings while agents run, and the effective settings of this agent.

Data path   topic_admin, topic_catalog -> **dynamic_settings** -> metadata store; then the broker applies them
Owns        the cached changes, changing them, and merging them with the settings of the start
Leaves      the list of settings to `kafka_configs`, the age of the cache to `topic_catalog`, applying them to the parts
            of `broker`, rows to the metadata store
"""

import asyncio
import difflib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from streamhouse.broker.catalog.kafka_configs import AGENT_SETTINGS, READ_ONLY, AgentSetting, Overrides
from streamhouse.broker.dependencies import Dependencies
from streamhouse.config import Settings
from streamhouse.errors import InvalidConfig, Rejected, Unavailable
from streamhouse.model.names import NodeId
from streamhouse.model.topic import MAX_NAMED, NO_DEFAULTS, check_lags, topic_values

log = logging.getLogger(__name__)

CHANGE_TRIES: Final = 10
MAX_VALUE_CHARS: Final = 1000

Values = Mapping[str, str]
Change = Callable[[Values], Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSettings:
    """The effective settings of an agent. `topic_defaults`: changed defaults of topic settings, by the topics'
    names."""

    settings: Settings
    topic_defaults: Values = field(default_factory=dict)


def merge(started_with: Settings, changed: Overrides) -> EffectiveSettings:
    """Merge an agent's settings with all valid changes."""
    settings, defaults = started_with, dict[str, str]()
    for name, text in {**changed.everywhere, **changed.here}.items():
        setting = AGENT_SETTINGS[name]
        if setting.topic:
            defaults[setting.topic] = text
        elif setting.path and setting.parse is not None:
            settings = _with(settings, setting.path, setting.parse(text))
    return EffectiveSettings(settings=settings, topic_defaults=defaults)


def _with(settings: Settings, path: str, value: object) -> Settings:
    section, name = path.split(".")
    changed = msgspec.structs.replace(getattr(settings, section), **{name: value})
    return msgspec.structs.replace(settings, **{section: changed})


def parse_values(values: Values) -> Values:
    """The values of known settings: a later release may have changed others."""
    return {name: text for name, text in values.items() if _value_error(name, text) is None}


def check_change(before: Values, after: Values) -> None:
    """Raise for changes of unknown or read-only settings, and for invalid values; unchanged settings are not
    checked."""
    for name, text in after.items():
        if before.get(name) != text and (refusal := _value_error(name, text)) is not None:
            raise refusal


def _value_error(name: str, text: str) -> Rejected | None:
    try:
        setting = find_agent_setting(name)
        if setting.parse is None:
            return _fixed(name)
        if len(text) > MAX_VALUE_CHARS:
            raise ValueError(f"must not be longer than {MAX_VALUE_CHARS} characters")
        setting.parse(text)
    except Rejected as refusal:
        return refusal
    except ValueError as error:
        why = str(error)[:MAX_NAMED]
        return Rejected(f"broker setting has a bad value; name={name} value={text[:MAX_NAMED]!r} why={why}")
    return None


def find_agent_setting(name: str) -> AgentSetting:
    """The setting of this name; raises for unknown and for read-only ones."""
    if (setting := AGENT_SETTINGS.get(name)) is not None:
        return setting
    if name in READ_ONLY:
        raise _fixed(name)
    near = difflib.get_close_matches(name[:MAX_NAMED], AGENT_SETTINGS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InvalidConfig(f"unknown broker setting; name={name[:MAX_NAMED]!r}{hint}")


def _fixed(name: str) -> Rejected:
    return Rejected(f"broker setting can't be changed while agents run; name={name}")


def check_effective(in_force: EffectiveSettings) -> None:
    """Raise for settings that contradict each other."""
    groups, topics = in_force.settings.groups, in_force.settings.topics
    if groups.min_session_timeout_s > groups.max_session_timeout_s:
        raise Rejected(
            "broker settings contradict each other; group.min.session.timeout.ms is above group.max.session.timeout.ms"
        )
    if topics.default_partitions > topics.max_partitions:
        raise Rejected(
            f"broker setting has a bad value; name=num.partitions value={topics.default_partitions} "
            f"limit={topics.max_partitions} setting=topics.max_partitions"
        )
    try:
        check_lags(topic_values({}, in_force.topic_defaults))
    except InvalidConfig:
        raise Rejected(
            "broker settings contradict each other; log.cleaner.min.compaction.lag.ms is above "
            "log.cleaner.max.compaction.lag.ms"
        ) from None


class DynamicSettings:
    def __init__(self, dependencies: Dependencies, *, on_settings_changed: Callable[[], None] = lambda: None) -> None:
        """`on_settings_changed` is called when the effective settings have changed."""
        self._dependencies = dependencies
        self._apply_settings = on_settings_changed
        self._rows: Mapping[NodeId | None, Values] = {}
        self._node_id: NodeId | None = None
        self.changed = Overrides()
        self.in_force = EffectiveSettings(settings=dependencies.settings)
        self._changing = asyncio.Lock()
        """Held while rows are read or changed: a read that started before a change must not undo it."""

    def __repr__(self) -> str:
        return f"<DynamicSettings node={self._node_id} {self.changed!r}>"

    @property
    def settings(self) -> Settings:
        return self.in_force.settings

    @property
    def topic_defaults(self) -> Values:
        return self.in_force.topic_defaults

    def _changed_in(self, rows: Mapping[NodeId | None, Values]) -> Overrides:
        here = NO_DEFAULTS if self._node_id is None else rows.get(self._node_id, NO_DEFAULTS)
        return Overrides(here=parse_values(here), everywhere=parse_values(rows.get(None, NO_DEFAULTS)))

    async def set_node(self, node_id: NodeId) -> None:
        """Set this agent's node id, and apply the changes for that node."""
        self._node_id = node_id
        await self.load()

    async def load(self) -> None:
        """Read the changes from the metadata store."""
        async with self._changing:
            self._take(await self._dependencies.metadata.broker_settings())

    async def alter(self, node_id: NodeId | None, change: Change, *, dry_run: bool = False) -> Values:
        """Change settings of one node, or of all agents, or with `dry_run` only check the change; returns the
        overrides. `change` computes them from the current overrides, and is called again after a concurrent change, so
        that no change is lost.
        """
        async with self._changing:
            for _ in range(CHANGE_TRIES):
                before = self._rows.get(node_id, NO_DEFAULTS)
                after = dict(change(before))
                self._check(node_id, before, after)
                if dry_run:
                    return after
                stored = await self._dependencies.metadata.alter_broker_settings(
                    node_id, expected=before, configs=after
                )
                self._take({**self._rows, node_id: stored})
                if stored == after:
                    return stored
        raise Unavailable("too many concurrent changes of broker settings")

    def _check(self, node_id: NodeId | None, before: Values, after: Values) -> None:
        check_change(before, after)
        check_effective(merge(self._dependencies.settings, self._changed_in({**self._rows, node_id: after})))
        if node_id is None:  # agents without overrides of their own
            check_effective(merge(self._dependencies.settings, Overrides(everywhere=parse_values(after))))

    def _take(self, rows: Mapping[NodeId | None, Values]) -> None:
        self._rows = rows
        self.changed = self._changed_in(rows)
        now = merge(self._dependencies.settings, self.changed)
        if now != self.in_force:
            self.in_force = now
            log.info("settings changed", extra={"changed": repr(self.changed)})
            self._apply_settings()
