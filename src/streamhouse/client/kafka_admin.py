"""Kafka admin: topics, their settings, offsets and sizes, over the Kafka protocol.

Requests go to the leader or coordinator where Kafka requires it. Connections are aiokafka's.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IncompatibleBrokerVersion, NodeNotReadyError
from aiokafka.protocol.admin import CreatePartitionsRequest, DeleteTopicsRequest, DescribeConfigsRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.offset import OffsetRequest

from streamhouse.client.kafka_errors import from_code, no_agent, translate_errors
from streamhouse.client.kafka_messages import (
    AlterTopicConfigs,
    CreateTopics,
    OffsetsAtTime,
    PartitionSizes,
    TopicMetadata,
)
from streamhouse.client.types import Cluster, Config, Partition, TimeRange, Topic
from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import Unavailable, UnknownTopic

_GROUP: Final = 0
_TOPIC_RESOURCE: Final = 2
_DEFAULT_SOURCE: Final = 5
_NO_LEADER_CODES: Final = (5, 6)
_LATEST_TIME: Final = -3
_LEADER_TRIES: Final = 20
_LEADER_WAIT_S: Final = 0.1
_METADATA_TRIES: Final = 50
_METADATA_WAIT_S: Final = 0.1


class Admin:
    def __init__(
        self,
        bootstrap: str,
        *,
        timeout_s: float = 10.0,
        clock: Clock | None = None,
        client_id: str = "streamhouse-admin",
    ) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._client: Any = None

    def __repr__(self) -> str:
        return f"<Admin {self._bootstrap} {'open' if self._client else 'closed'}>"

    async def __aenter__(self) -> Self:
        client = AIOKafkaClient(
            bootstrap_servers=self._bootstrap,
            client_id=self._client_id,
            request_timeout_ms=int(self._timeout_s * 1000),
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                with translate_errors(bootstrap=self._bootstrap, subject="cluster"):
                    await client.bootstrap()
        except TimeoutError:
            await client.close()
            raise no_agent(self._bootstrap) from None
        except BaseException:
            await client.close()
            raise
        self._client = client
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()
        self._client = None

    async def cluster(self) -> Cluster:
        answer = await self.send(TopicMetadata([], create=False), subject="cluster")
        return Cluster(agents={node: f"{host}:{port}" for node, host, port, _ in answer.brokers})

    async def topics(self) -> list[Topic]:
        """All topics by name."""
        answer = await self.send(TopicMetadata(None, create=False), subject="topics")
        return sorted((_topic(told) for told in answer.topics if not told[0]), key=lambda topic: topic.name)

    async def topic(self, name: str, *, create: bool = False) -> Topic:
        """One topic; `create` lets the agent make it where its settings allow. Raises `UnknownTopic`."""
        for _ in range(_LEADER_TRIES):
            answer = await self.send(TopicMetadata([name], create=create), subject=name)
            told = next(iter(answer.topics), None)
            if told is None:
                break
            if told[0] in _NO_LEADER_CODES:  # being created: a leader is on its way
                await self._clock.sleep(_LEADER_WAIT_S)
                continue
            if told[0]:
                raise from_code(told[0], subject=name)
            return _topic(told)
        raise UnknownTopic(name)

    async def new_topic(self, name: str) -> Topic:
        """A topic that was created a moment ago: the agent that is asked may hear of it later than the one that made
        it."""
        for _ in range(_METADATA_TRIES):
            with suppress(UnknownTopic):
                return await self.topic(name)
            await self._clock.sleep(_METADATA_WAIT_S)
        return await self.topic(name)

    async def create_topic(self, name: str, *, partitions: int | None = None, configs: Mapping[str, str]) -> None:
        request = CreateTopics(
            name,
            partitions=-1 if partitions is None else partitions,
            configs=dict(configs),
            timeout_ms=int(self._timeout_s * 1000),
        )
        answer = await self.send(request, subject=name)
        for topic, code, text in answer.topic_errors:
            if code:
                raise from_code(code, subject=topic, text=text)

    async def alter_topic(self, name: str, configs: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        """Change settings of a topic, None: back to the default; those that aren't named stay."""
        answer = await self.send(AlterTopicConfigs(name, dict(configs), dry_run=dry_run), subject=name)
        for code, text, _, topic in answer.responses:
            if code:
                raise from_code(code, subject=topic, text=text)

    async def grow_topic(self, name: str, partitions: int, *, dry_run: bool = False) -> None:
        """Let a topic have so many partitions; there are never fewer."""
        request = CreatePartitionsRequest([(name, (partitions, None))], int(self._timeout_s * 1000), dry_run)
        answer = await self.send(request, subject=name)
        for topic, code, text in answer.topic_errors:
            if code:
                raise from_code(code, subject=topic, text=text)

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest([name], int(self._timeout_s * 1000))
        answer = await self.send(request, subject=name)
        for topic, code in answer.topic_error_codes:
            if code:
                raise from_code(code, subject=topic)

    async def configs(self, topic: str) -> list[Config] | None:
        """The topic's settings by name, or None when the agent doesn't answer this question."""
        answer = await self._ask(DescribeConfigsRequest([(_TOPIC_RESOURCE, topic, None)]), subject=topic)
        if answer is None:
            return None
        code, text, _, _, entries = answer.resources[0]
        if code:
            raise from_code(code, subject=topic, text=text)
        # v0 says whether the value is the default, v1 and later where it comes from.
        by_flag = answer.API_VERSION == 0
        own = [not e[3] if by_flag else e[3] != _DEFAULT_SOURCE for e in entries]
        configs = [Config(name=e[0], value=e[1], own=o) for e, o in zip(entries, own, strict=True)]
        return sorted(configs, key=lambda config: config.name)

    async def offsets(
        self, topic: Topic, at: int, partitions: Iterable[int] | None = None, *, committed: bool = False
    ) -> dict[int, int]:
        """Per partition the offset at `EARLIEST`, `LATEST` or a time in milliseconds; -1 when none is so late. With
        `committed` a partition ends where transactions are open."""
        wanted = set(range(len(topic.partitions)) if partitions is None else partitions)
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            try:
                return await self._offsets(topic, at, wanted, isolation_level=int(committed))
            except Unavailable:  # a leader that died or handed over: there will be another one
                if self._clock.monotonic() > deadline:
                    raise
            await self._clock.sleep(_LEADER_WAIT_S)
            topic = await self.topic(topic.name)

    async def _offsets(self, topic: Topic, at: int, wanted: set[int], *, isolation_level: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for leader, numbers in _by_leader(topic, wanted).items():
            request = OffsetRequest(-1, isolation_level, [(topic.name, [(number, at) for number in numbers])])
            answer = await self.send(request, subject=topic.name, node=leader)
            for number, code, _, offset in answer.topics[0][1]:
                if code:
                    raise from_code(code, subject=f"{topic.name}-{number}")
                found[number] = offset
        return dict(sorted(found.items()))

    async def sizes(self, topic: Topic) -> dict[int, int] | None:
        """Bytes of each partition, or None when the agent doesn't answer this question."""
        found: dict[int, int] = {}
        for leader, numbers in _by_leader(topic).items():
            answer = await self._ask(PartitionSizes(topic.name, numbers), subject=topic.name, node=leader)
            if answer is None:
                return None
            for code, directory, topics in answer.results:
                if code:
                    raise from_code(code, subject=directory)
                found |= {number: size for _, partitions in topics for number, size, _, _ in partitions}
        return dict(sorted(found.items()))

    async def times(self, topic: Topic) -> dict[int, TimeRange] | None:
        """From when to when the records of each partition are; those without any are left out.

        None when the agent doesn't answer this question.
        """
        first, last = await self._times(topic, 0), await self._times(topic, _LATEST_TIME)
        if first is None or last is None:
            return None
        return {
            number: TimeRange(first_ms=first[number], last_ms=last[number])
            for number in sorted(first)
            if first[number] >= 0 and last.get(number, -1) >= 0
        }

    async def _times(self, topic: Topic, at: int) -> dict[int, int] | None:
        found: dict[int, int] = {}
        for leader, numbers in _by_leader(topic).items():
            answer = await self._ask(OffsetsAtTime(topic.name, numbers, at=at), subject=topic.name, node=leader)
            if answer is None:
                return None
            for number, code, timestamp_ms, *_ in answer.topics[0][1]:
                if code:
                    raise from_code(code, subject=f"{topic.name}-{number}")
                found[number] = timestamp_ms
        return found

    async def _ask(self, request: Any, *, subject: str, node: int | None = None) -> Any | None:
        """The answer, or None from an agent that doesn't know the question."""
        with translate_errors(bootstrap=self._bootstrap, subject=subject):
            try:
                return await self._send(request, node)
            except (IncompatibleBrokerVersion, NotImplementedError):
                return None

    async def coordinator(self, group_id: str) -> int:
        """The agent that coordinates a group."""
        answer = await self.send(FindCoordinatorRequest(group_id, _GROUP), subject=group_id)
        if answer.error_code:
            raise from_code(answer.error_code, subject=group_id, text=getattr(answer, "error_message", None))
        return int(answer.coordinator_id)

    async def send(self, request: Any, *, subject: str, node: int | None = None) -> Any:
        """For `groups` and `producer`, which ask more on the same connections."""
        with translate_errors(bootstrap=self._bootstrap, subject=subject):
            return await self._send(request, node)

    async def _send(self, request: Any, node: int | None) -> Any:
        """Ask this agent, or any. One that died a moment ago is still listed, so another one is asked then."""
        if node is not None:
            if node not in {broker.nodeId for broker in self._client.cluster.brokers()}:  # somebody new
                await self._client.force_metadata_update()
            return await self._client.send(node, request)
        others = {broker.nodeId for broker in self._client.cluster.brokers()}
        chosen = self._client.get_random_node()
        while True:
            others.discard(chosen)
            try:
                return await self._client.send(chosen, request)
            except NodeNotReadyError:  # nothing was sent, so nothing is done twice
                if not others:
                    raise
                chosen = others.pop()


def _by_leader(topic: Topic, wanted: set[int] | None = None) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for partition in topic.partitions:
        if wanted is None or partition.partition in wanted:
            found[partition.leader].append(partition.partition)
    return found


def _topic(told: Any) -> Topic:
    _, name, internal, partitions = told
    found = [Partition(partition=p[1], leader=p[2], epoch=p[3]) for p in partitions]
    return Topic(name=name, internal=internal, partitions=tuple(sorted(found, key=lambda p: p.partition)))
