"""Administration: what tools change and ask about topics, logs and the agent itself.

Data path   none of the hot ones: wire -> **administration** -> catalogue, logs, metadata store
Owns        altering and growing topics with their open logs, deleting records, sizes, telling and changing the agent's
            settings by Kafka's names
Leaves      the rows to the metadata store, flushing to `flush`, creating and deleting topics to `catalogue`
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from streamhouse.broker.catalog.kafka_configs import AgentConfig, Changed, agent_configs, common_configs
from streamhouse.broker.context import Ground
from streamhouse.config import Address, without_password
from streamhouse.errors import InvalidTopicName, OffsetOutOfRange, PolicyViolation, Rejected, UnknownTopic
from streamhouse.format.producer_snapshot import ProducerEntry
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.names import NodeId, PartitionId, TopicPartition
from streamhouse.model.topic import Topic

TO_THE_END: Final = -1
"""Instead of an offset: everything that consumers could see when it was asked for."""


class Administration:
    def __init__(self, ground: Ground) -> None:
        self._doors = ground.doors
        self._catalogue = ground.catalogue
        self._open_log = ground.leading.open_log
        self._tenure = ground.succession.tenure

    def __repr__(self) -> str:
        return f"<Administration {self._catalogue!r}>"

    # --- topics

    async def alter_topic(
        self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, dry_run: bool = False
    ) -> Topic:
        """Give a topic other settings, which hold for its open logs when this returns.

        `change` makes them of those in force, and may be asked more than once.
        """
        topic = await self._catalogue.alter(name, change, dry_run=dry_run)
        tenure = self._tenure()
        if not dry_run and tenure is not None:
            with suppress(UnknownTopic):  # deleted meanwhile
                await tenure.configure(name, self._catalogue.find)
        return topic

    async def grow_topic(self, name: str, partitions: int, *, dry_run: bool = False) -> Topic:
        return await self._catalogue.grow(name, partitions, dry_run=dry_run)

    # --- logs

    async def delete_records(self, name: TopicPartition, offset: int) -> int:
        """Let a log begin at `offset` at the earliest, durably; returns where it begins.

        The log start never lies above the flushed end, so what is only in the tail is flushed first.
        """
        if name.topic == OFFSETS_TOPIC:
            raise InvalidTopicName(f"records of an internal topic can't be deleted; name={name.topic}")
        opened = await self._open_log(name)
        end = opened.high_watermark
        start = end if offset == TO_THE_END else offset
        if not opened.config.deletes:
            raise PolicyViolation(f"cleanup.policy of the topic does not say delete; partition={name}")
        if not 0 <= start <= end:
            raise OffsetOutOfRange(name, offset=offset, start=opened.log_start, end=end)
        if start > opened.log_start:
            await opened.wait_flushed(start)
            await self._doors.metadata.advance_log_start({opened.partition: start})
            opened.start_at(start)
        return opened.log_start

    async def sizes(self, topics: Sequence[Topic]) -> Mapping[TopicPartition, int]:
        """Bytes of each partition: what its segments hold for it, and its tail in memory."""
        stored = await self._doors.metadata.sizes([topic.topic_id for topic in topics])
        tenure = self._tenure()
        tails = {item.partition: item.tail_bytes for item in tenure.logs()} if tenure is not None else {}
        return {
            TopicPartition(topic.name, number): stored.get(partition, 0) + tails.get(partition, 0)
            for topic in topics
            for number in range(topic.partitions)
            for partition in [PartitionId(topic.topic_id, number)]
        }

    async def producers(self, name: TopicPartition) -> Sequence[ProducerEntry]:
        """The idempotent producers that the partition remembers."""
        return (await self._open_log(name)).producers(now_ms=self._doors.agreed_time().earlier_ms)

    # --- the agent

    @property
    def store(self) -> str:
        """Where records are, as people read it."""
        settings = self._doors.settings
        return without_password(settings.store.url) or str(Path(settings.agent.data).absolute() / "objects")

    async def configs(self, *, advertised: Address) -> Sequence[AgentConfig]:
        """The agent's settings by Kafka's names, and where each value comes from."""
        tenure = self._tenure()
        return agent_configs(
            self._doors.settings,
            node_id=tenure.session.node_id if tenure is not None else -1,
            advertised=advertised,
            store=self.store,
            changed=await self.changed(),
        )

    async def common_configs(self) -> Sequence[AgentConfig]:
        """What was changed for every agent."""
        return common_configs(await self.changed())

    async def changed(self) -> Changed:
        """What was changed while agents run, for this one and for all of them."""
        return await self._catalogue.changed()

    async def alter_agent(
        self, node_id: NodeId | None, change: Callable[[Mapping[str, str]], Mapping[str, str]], *, dry_run: bool = False
    ) -> None:
        """Change settings of one agent, or with None of every one, while they run; here they hold when this returns.

        `change` makes those that were changed of those that were changed before, and may be asked more than once.
        """
        try:
            await self._catalogue.dynamic.alter(node_id, change, dry_run=dry_run)
        except Rejected:
            raise
        except BaseException:  # it may have happened
            self._catalogue.invalidate()
            raise
