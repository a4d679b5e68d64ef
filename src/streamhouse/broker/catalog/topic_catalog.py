"""TopicCatalog: the topics, as this agent knows them.

Data path   every request names topics; **topic_catalog** resolves names and ids to `Topic`
Owns        the cache of topics and dynamic settings and its maximum age; creating, altering, growing and deleting
            topics
Leaves      rows to the metadata store, logs and objects of a deleted topic to `agent_session` and `retention`, merging
            settings to `dynamic_settings`
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from streamhouse.broker.catalog.dynamic_settings import DynamicSettings, Values
from streamhouse.broker.catalog.kafka_configs import Overrides
from streamhouse.broker.dependencies import Dependencies
from streamhouse.config import TopicSettings
from streamhouse.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopicName,
    Rejected,
    TopicExists,
    Unavailable,
    UnknownTopic,
    UnknownTopicId,
)
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import PartitionId, TopicId, TopicPartition, check_topic_name
from streamhouse.model.topic import Topic, TopicConfig, check_topic_config, keep_replication_factor, parse_topic_config

log: Final = logging.getLogger(__name__)

FRESH_S: Final = 300.0
MISS_S: Final = 1.0
MISS_AMONG_OTHERS_S: Final = 0.02
"""Maximum age of a miss in a cluster: a client may be faster than the notification about a new topic."""
CHANGE_TRIES: Final = 10


class _ParsedConfig(NamedTuple):
    """A topic's parsed settings and their input; valid while the input is the same object."""

    topic: Topic
    defaults: Values
    config: TopicConfig


class TopicCatalog:
    def __init__(self, dependencies: Dependencies, *, on_settings_changed: Callable[[], None] = lambda: None) -> None:
        """`on_settings_changed` is called when settings of this agent or of cached topics have changed."""
        self._dependencies = dependencies
        self._apply_settings = on_settings_changed
        self.dynamic = DynamicSettings(dependencies, on_settings_changed=on_settings_changed)
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[TopicId, Topic] = {}
        self._configs: dict[TopicId, _ParsedConfig] = {}
        self._loaded_at: float | None = None
        self._miss_s = MISS_S if dependencies.single_agent else MISS_AMONG_OTHERS_S
        self._creating = asyncio.Lock()
        self.hits = 0
        self.misses = 0
        self.evictions = 0  # no eviction: the number of topics is limited, and all are cached
        self._changing = asyncio.Lock()
        """Held while topics are read or changed: a read that started before a change must not undo it."""

    def __repr__(self) -> str:
        return f"<TopicCatalog topics={len(self._by_name)}>"

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def _settings(self) -> TopicSettings:
        return self.dynamic.settings.topics

    def config_of(self, topic: Topic) -> TopicConfig:
        """The effective settings of a topic: its own, and the current defaults."""
        newest = self._by_id.get(topic.topic_id, topic)
        defaults = self.dynamic.topic_defaults
        known = self._configs.get(topic.topic_id)
        if known is not None and known.topic is newest and known.defaults is defaults:
            return known.config
        config = parse_topic_config(newest.overrides, defaults)
        if len(self._configs) > len(self._by_id):  # some belong to deleted topics
            self._configs.clear()
        self._configs[topic.topic_id] = _ParsedConfig(newest, defaults, config)
        return config

    async def configs(self) -> dict[TopicId, TopicConfig]:
        """The effective settings of all topics, for maintenance. A topic whose settings can't be parsed, because
        another version wrote them, is skipped."""
        configs: dict[TopicId, TopicConfig] = {}
        for topic in await self.all():
            try:
                configs[topic.topic_id] = self.config_of(topic)
            except InvalidConfig as error:
                log.warning(
                    "topic skipped, its settings can't be parsed", extra={"topic": topic.name, "why": str(error)}
                )
        return configs

    def known(self, topic_id: TopicId) -> Topic | None:
        """The topic in the cache, whatever the cache's age."""
        return self._by_id.get(topic_id)

    def knows(self, name: str) -> bool:
        """Whether a topic of this name is in the cache, whatever the cache's age."""
        return name in self._by_name

    def name_of(self, partition: PartitionId) -> TopicPartition | PartitionId:
        """The name of a partition, for display; its id if the topic isn't in the cache."""
        topic = self._by_id.get(partition.topic_id)
        return partition if topic is None else TopicPartition(topic.name, partition.partition)

    def invalidate(self) -> None:
        """Another agent changed topics or settings: read them again before the next result."""
        self._loaded_at = None

    async def changed(self) -> Overrides:
        """The settings that were changed while agents run."""
        await self._refresh(FRESH_S, is_known=self._loaded_at is not None)
        return self.dynamic.changed

    async def all(self) -> Sequence[Topic]:
        await self._refresh(FRESH_S, is_known=self._loaded_at is not None)
        return sorted(self._by_name.values(), key=lambda topic: topic.name)

    async def by_name(self) -> Mapping[str, Topic]:
        """All topics; a view that changes with them."""
        await self._refresh(FRESH_S, is_known=self._loaded_at is not None)
        return self._by_name

    async def find(self, name: str) -> Topic:
        """The topic of this name; raises `UnknownTopic`. On the hot path: no suspension while the cache is fresh."""
        if (topic := self._by_name.get(name)) is not None and self._is_fresh(FRESH_S):
            self.hits += 1
            return topic
        self.misses += 1
        await self._refresh(FRESH_S if topic is not None else self._miss_s, is_known=topic is not None)
        if (topic := self._by_name.get(name)) is None:
            raise UnknownTopic(name)
        return topic

    async def find_if_any(self, name: str) -> Topic | None:
        """The topic of this name, or None."""
        try:
            return await self.find(name)
        except UnknownTopic:
            return None

    async def find_cached(self, name: str) -> Topic:
        """Like `find`, for frequent callers: an unknown topic is not looked up again. The store notifies about topics
        that other agents create."""
        await self._refresh(FRESH_S, is_known=self._loaded_at is not None)
        if (topic := self._by_name.get(name)) is None:
            raise UnknownTopic(name)
        return topic

    async def find_partition(self, name: TopicPartition) -> PartitionId | UnknownTopic:
        """The partition that the name means now; raises if there is none."""
        try:
            topic = await self.find(name.topic)
        except UnknownTopic as error:
            return error
        if not 0 <= name.partition < topic.partitions:
            return UnknownTopic(name)
        return PartitionId(topic.topic_id, name.partition)

    async def find_by_id(self, topic_id: TopicId) -> Topic:
        if (topic := self._by_id.get(topic_id)) is not None and self._is_fresh(FRESH_S):
            self.hits += 1
            return topic
        self.misses += 1
        await self._refresh(FRESH_S if topic is not None else self._miss_s, is_known=topic is not None)
        if (topic := self._by_id.get(topic_id)) is None:
            raise UnknownTopicId(topic_id)
        return topic

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        overrides: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> Topic:
        """Create a topic, or with `dry_run` only check that it could be created."""
        check_topic_name(name)
        count = self._settings.default_partitions if partitions is None else partitions
        if not 1 <= count <= self._settings.max_partitions:
            raise InvalidPartitions(
                f"number of partitions is out of range; partitions={count} allowed=1 to {self._settings.max_partitions}"
            )
        check_topic_config(overrides or {}, self.dynamic.topic_defaults, topic=name)
        await self._refresh(self._miss_s)
        if name in self._by_name:
            raise TopicExists(name)
        self._check_collision(name)
        if len(self._by_name) >= self._settings.max_topics:
            raise Rejected(f"too many topics; limit={self._settings.max_topics} setting=topics.max_topics")
        topic = Topic(
            topic_id=TopicId(self._dependencies.ids.uuid()),
            name=name,
            partitions=count,
            overrides=dict(overrides or {}),
            created_at_ms=self._dependencies.clock.now_ms(),
        )
        if not dry_run:
            async with self._change():
                await self._dependencies.metadata.create_topic(topic)
                self._keep(topic)
        return topic

    async def alter(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, dry_run: bool = False
    ) -> Topic:
        """Change a topic's settings, or with `dry_run` only check the change. `change` computes them from the current
        ones, and is called again after a concurrent change, so that no change is lost.
        """
        topic = await self.find(name)
        for _ in range(CHANGE_TRIES):
            overrides = dict(keep_replication_factor(topic.overrides, change(topic.overrides)))
            check_topic_config(overrides, self.dynamic.topic_defaults, topic=name)
            if dry_run:
                return replace(topic, overrides=overrides)
            topic = await self._changed(
                name,
                partial(self._dependencies.metadata.alter_topic, expected=topic.overrides, overrides=overrides),
                topic,
            )
            if topic.overrides == overrides:
                return topic
        raise Unavailable(f"too many concurrent changes of topic settings; name={name}")

    async def grow(self, name: str, partitions: int, *, dry_run: bool = False) -> Topic:
        """Add partitions to a topic, or with `dry_run` only check the change; the number never decreases."""
        topic = await self.find(name)
        for _ in range(CHANGE_TRIES):
            self._check_growth(topic, partitions)
            if dry_run:
                return replace(topic, partitions=partitions)
            topic = await self._changed(
                name,
                partial(self._dependencies.metadata.add_partitions, from_count=topic.partitions, to_count=partitions),
                topic,
            )
            if topic.partitions == partitions:
                return topic
        raise Unavailable(f"too many concurrent changes of the topic; name={name}")

    def _check_growth(self, topic: Topic, partitions: int) -> None:
        if topic.name == OFFSETS_TOPIC:
            raise InvalidPartitions(f"the partitions of an internal topic are fixed; name={topic.name}")
        if partitions <= topic.partitions:
            raise InvalidPartitions(
                f"a topic can only get more partitions; name={topic.name} has={topic.partitions} requested={partitions}"
            )
        if partitions > self._settings.max_partitions:
            raise InvalidPartitions(
                f"number of partitions is out of range; name={topic.name} partitions={partitions} "
                f"limit={self._settings.max_partitions} setting=topics.max_partitions"
            )

    async def _changed(self, name: str, change: Callable[[TopicId], Awaitable[Topic]], topic: Topic) -> Topic:
        try:
            async with self._change():
                changed = await change(topic.topic_id)
                self._keep(changed)
        except UnknownTopicId:
            raise UnknownTopic(name) from None
        return changed

    async def find_or_create(self, name: str) -> Topic:
        """Find a topic, or create it for clients that use an unknown topic, several of them concurrently."""
        async with self._creating:
            try:
                return await self.find(name)
            except UnknownTopic:
                pass
            try:
                return await self.create(name)
            except TopicExists:
                return await self.find(name)  # another agent has created it concurrently

    def _check_collision(self, name: str) -> None:
        """Kafka's rule: names that differ only in `.` and `_` would share their metrics."""
        folded = name.replace(".", "_")
        for other in self._by_name:
            if other.replace(".", "_") == folded:
                raise InvalidTopicName(f"topic name collides: '.' and '_' count as the same; name={name} other={other}")

    async def delete(self, topic: Topic) -> None:
        async with self._change():
            await self._dependencies.metadata.delete_topic(topic.topic_id)
            known = self._by_name.get(topic.name)
            if known is not None and known.topic_id == topic.topic_id:
                del self._by_name[topic.name]
            self._by_id.pop(topic.topic_id, None)

    async def reload(self) -> None:
        """Read the topics again after a change; the cache is served meanwhile."""
        async with self._changing:
            await self._read()

    async def renew(self) -> None:
        """Read topics and settings again, for a caller that shows them to an operator: the cache then has all changes
        acknowledged by any agent before this call. Concurrent callers share a read. While the store is unavailable, the
        cache stays as it is."""
        requested_at = self._dependencies.clock.monotonic()
        with suppress(Unavailable):
            async with self._changing:
                if self._loaded_at is None or self._loaded_at <= requested_at:
                    await self._read()

    def _is_fresh(self, seconds: float) -> bool:
        return self._loaded_at is not None and self._dependencies.clock.monotonic() - self._loaded_at < seconds

    async def _refresh(self, seconds: float, *, is_known: bool = False) -> None:
        """Read topics and settings again unless the cache is younger than `seconds`; concurrent callers share a read.
        While the store is unavailable, the cache is served.
        """
        async with self._changing:
            # Only one call waits for an unavailable store; heartbeats notice when it is back.
            if self._is_fresh(seconds) or (is_known and self._dependencies.metadata.failures_in_a_row):
                return
            try:
                await self._read()
            except Unavailable:
                if is_known:
                    return
                raise

    async def _read(self) -> None:
        requested_at = self._dependencies.clock.monotonic()
        topics = await self._dependencies.metadata.topics()
        await self.dynamic.load()
        before, self._by_id = self._by_id, {topic.topic_id: topic for topic in topics}
        self._by_name = {topic.name: topic for topic in topics}
        self._loaded_at = requested_at
        if any(topic.overrides != before.get(topic.topic_id, topic).overrides for topic in topics):
            self._apply_settings()

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """Wraps a change in the store. A failed change may have been applied, so the cache is invalidated then."""
        async with self._changing:
            try:
                yield
            except BaseException:
                self._loaded_at = None
                raise

    def _keep(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
