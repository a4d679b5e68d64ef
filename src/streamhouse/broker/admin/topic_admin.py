"""TopicAdmin: changes and queries of topics, logs and the agent itself, for administration tools.

Data path   none: wire -> **topic_admin** -> catalog, logs, metadata store
Owns        altering and growing topics with their open logs, deleting records, sizes, reading and changing the agent's
            settings by Kafka's names
Leaves      the rows to the metadata store, flushing to `flush`, creating and deleting topics to `catalog`
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from streamhouse.broker.catalog.kafka_configs import AgentConfig, Overrides, agent_configs, common_configs
from streamhouse.broker.context import BrokerContext
from streamhouse.broker.security.audit import SettingsChange, describing
from streamhouse.config import Address, without_password
from streamhouse.errors import InvalidTopicName, OffsetOutOfRange, PolicyViolation, Rejected, UnknownTopic
from streamhouse.format.producer_snapshot import ProducerEntry
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import NodeId, PartitionId, TopicPartition
from streamhouse.model.topic import Topic

HIGH_WATERMARK: Final = -1
"""Special offset of DeleteRecords: the high watermark at the time of the request."""


class TopicAdmin:
    def __init__(self, context: BrokerContext) -> None:
        self._dependencies = context.dependencies
        self._catalog = context.catalog
        self._open_log = context.open_partitions.open_log
        self._agent_session = context.session_manager.agent_session

    def __repr__(self) -> str:
        return f"<TopicAdmin {self._catalog!r}>"

    # --- topics

    async def alter_topic(self, name: str, change: SettingsChange, *, dry_run: bool = False) -> Topic:
        """Change a topic's settings; its open logs use them when this returns. `change` computes them from the current
        ones, and may be called more than once."""
        described = change if dry_run else describing(f"topic {name}", change)
        topic = await self._catalog.alter(name, described, dry_run=dry_run)
        agent_session = self._agent_session()
        if not dry_run and agent_session is not None:
            with suppress(UnknownTopic):  # the topic was deleted meanwhile
                await agent_session.logs.configure(name, self._catalog.find)
        return topic

    async def grow_topic(self, name: str, partitions: int, *, dry_run: bool = False) -> Topic:
        return await self._catalog.grow(name, partitions, dry_run=dry_run)

    # --- logs

    async def delete_records(self, name: TopicPartition, offset: int) -> int:
        """Move the log start to at least `offset`, durably; returns the log start.

        The log start is never above the flushed end, so the tail is flushed first."""
        if name.topic == OFFSETS_TOPIC:
            raise InvalidTopicName(f"records of an internal topic can't be deleted; name={name.topic}")
        opened = await self._open_log(name)
        end = opened.high_watermark
        start = end if offset == HIGH_WATERMARK else offset
        if not opened.config.deletes:
            raise PolicyViolation(f"cleanup.policy of the topic does not say delete; partition={name}")
        if not 0 <= start <= end:
            raise OffsetOutOfRange(name, offset=offset, start=opened.log_start, end=end)
        if start > opened.log_start:
            await opened.wait_flushed(start)
            await self._dependencies.metadata.advance_log_start({opened.partition: start})
            opened.advance_log_start(start)
        return opened.log_start

    async def sizes(self, topics: Sequence[Topic]) -> Mapping[TopicPartition, int]:
        """Size of each partition: its segments, and its tail in memory."""
        stored = await self._dependencies.metadata.sizes([topic.topic_id for topic in topics])
        agent_session = self._agent_session()
        tails = {item.partition: item.tail_bytes for item in agent_session.logs} if agent_session is not None else {}
        return {
            TopicPartition(topic.name, number): stored.get(partition, 0) + tails.get(partition, 0)
            for topic in topics
            for number in range(topic.partitions)
            for partition in [PartitionId(topic.topic_id, number)]
        }

    async def producers(self, name: TopicPartition) -> Sequence[ProducerEntry]:
        """The idempotent producers that the partition remembers."""
        return (await self._open_log(name)).producers(now_ms=self._dependencies.agreed_time().earlier_ms)

    # --- the agent

    @property
    def store(self) -> str:
        """The URL of the object store, for display."""
        settings = self._dependencies.settings
        return without_password(settings.store.url) or str(Path(settings.agent.data).absolute() / "objects")

    async def configs(self, *, advertised: Address) -> Sequence[AgentConfig]:
        """The agent's settings by Kafka's names, with the source of each value."""
        agent_session = self._agent_session()
        return agent_configs(
            self._dependencies.settings,
            node_id=agent_session.session.node_id if agent_session is not None else -1,
            advertised=advertised,
            store=self.store,
            changed=await self.changed(),
        )

    async def common_configs(self) -> Sequence[AgentConfig]:
        """The dynamic settings of all agents."""
        return common_configs(await self.changed())

    async def changed(self) -> Overrides:
        """The dynamic settings, of this agent and of all agents."""
        return await self._catalog.changed()

    async def alter_agent(self, node_id: NodeId | None, change: SettingsChange, *, dry_run: bool = False) -> None:
        """Change dynamic settings of one agent, or with None of all; at this agent they are in effect when this
        returns. `change` computes the overrides from the current ones, and may be called more than once."""
        try:
            owner = "all agents" if node_id is None else f"agent {node_id}"
            described = change if dry_run else describing(owner, change)
            await self._catalog.dynamic.alter(node_id, described, dry_run=dry_run)
        except Rejected:
            raise
        except BaseException:  # the change may have been applied
            self._catalog.invalidate()
            raise
