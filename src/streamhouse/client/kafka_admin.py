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

from streamhouse.client.credentials import NO_CREDENTIALS, Credentials
from streamhouse.client.kafka_errors import from_code, no_agent, translate_errors
from streamhouse.client.kafka_messages import (
    AlterTopicConfigs,
    CreateTopics,
    OffsetsAtTime,
    PartitionSizes,
    TopicMetadata,
)
from streamhouse.client.kafka_security import connection_options, explain_failure
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
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        self._bootstrap = bootstrap
        self._credentials = credentials
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
            **connection_options(self._credentials),
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                with translate_errors(bootstrap=self._bootstrap, subject="cluster"):
                    await client.bootstrap()
        except (TimeoutError, Unavailable):
            await client.close()
            raise await explain_failure(self._bootstrap, self._credentials) or no_agent(self._bootstrap) from None
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
        response = await self.send(TopicMetadata([], create=False), subject="cluster")
        return Cluster(agents={node: f"{host}:{port}" for node, host, port, _ in response.brokers})

    async def topics(self) -> list[Topic]:
        """All topics by name."""
        response = await self.send(TopicMetadata(None, create=False), subject="topics")
        return sorted((_topic(entry) for entry in response.topics if not entry[0]), key=lambda topic: topic.name)

    async def topic(self, name: str, *, create: bool = False) -> Topic:
        """One topic; `create` lets the agent make it where its settings allow. Raises `UnknownTopic`."""
        for _ in range(_LEADER_TRIES):
            response = await self.send(TopicMetadata([name], create=create), subject=name)
            entry = next(iter(response.topics), None)
            if entry is None:
                break
            if entry[0] in _NO_LEADER_CODES:  # being created: a leader is on its way
                await self._clock.sleep(_LEADER_WAIT_S)
                continue
            if entry[0]:
                raise from_code(entry[0], subject=name)
            return _topic(entry)
        raise UnknownTopic(name)

    async def new_topic(self, name: str) -> Topic:
        """Describe a topic that was just created; retries, since other agents learn of it a moment later."""
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
        response = await self.send(request, subject=name)
        for topic, code, text in response.topic_errors:
            if code:
                raise from_code(code, subject=topic, text=text)

    async def alter_topic(self, name: str, configs: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        """Change settings of a topic; None resets one to its default. Other settings stay."""
        response = await self.send(AlterTopicConfigs(name, dict(configs), dry_run=dry_run), subject=name)
        for code, text, _, topic in response.responses:
            if code:
                raise from_code(code, subject=topic, text=text)

    async def grow_topic(self, name: str, partitions: int, *, dry_run: bool = False) -> None:
        """Increase the number of partitions; it can't shrink."""
        request = CreatePartitionsRequest([(name, (partitions, None))], int(self._timeout_s * 1000), dry_run)
        response = await self.send(request, subject=name)
        for topic, code, text in response.topic_errors:
            if code:
                raise from_code(code, subject=topic, text=text)

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest([name], int(self._timeout_s * 1000))
        response = await self.send(request, subject=name)
        for topic, code in response.topic_error_codes:
            if code:
                raise from_code(code, subject=topic)

    async def configs(self, topic: str) -> list[Config] | None:
        """The topic's settings by name, or None if the agent does not support the request."""
        response = await self._send_if_supported(
            DescribeConfigsRequest([(_TOPIC_RESOURCE, topic, None)]), subject=topic
        )
        if response is None:
            return None
        code, text, _, _, entries = response.resources[0]
        if code:
            raise from_code(code, subject=topic, text=text)
        # v0 says whether the value is the default, v1 and later where it comes from.
        by_flag = response.API_VERSION == 0
        own = [not e[3] if by_flag else e[3] != _DEFAULT_SOURCE for e in entries]
        configs = [Config(name=e[0], value=e[1], own=o) for e, o in zip(entries, own, strict=True)]
        return sorted(configs, key=lambda config: config.name)

    async def offsets(
        self, topic: Topic, at: int, partitions: Iterable[int] | None = None, *, committed: bool = False
    ) -> dict[int, int]:
        """Per partition the offset at `EARLIEST`, `LATEST` or a time in milliseconds; -1 if no record is that late.
        With `committed`, `LATEST` is the last stable offset."""
        selected = set(range(len(topic.partitions)) if partitions is None else partitions)
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            try:
                return await self._offsets(topic, at, selected, isolation_level=int(committed))
            except Unavailable:  # the leader died or handed over: retry until there is a new one
                if self._clock.monotonic() > deadline:
                    raise
            await self._clock.sleep(_LEADER_WAIT_S)
            topic = await self.topic(topic.name)

    async def _offsets(self, topic: Topic, at: int, partitions: set[int], *, isolation_level: int) -> dict[int, int]:
        offsets: dict[int, int] = {}
        for leader, numbers in _by_leader(topic, partitions).items():
            request = OffsetRequest(-1, isolation_level, [(topic.name, [(number, at) for number in numbers])])
            response = await self.send(request, subject=topic.name, node=leader)
            for number, code, _, offset in response.topics[0][1]:
                if code:
                    raise from_code(code, subject=f"{topic.name}-{number}")
                offsets[number] = offset
        return dict(sorted(offsets.items()))

    async def sizes(self, topic: Topic) -> dict[int, int] | None:
        """Bytes of each partition, or None if the agent does not support the request."""
        sizes: dict[int, int] = {}
        for leader, numbers in _by_leader(topic).items():
            response = await self._send_if_supported(
                PartitionSizes(topic.name, numbers), subject=topic.name, node=leader
            )
            if response is None:
                return None
            for code, directory, topics in response.results:
                if code:
                    raise from_code(code, subject=directory)
                sizes |= {number: size for _, partitions in topics for number, size, _, _ in partitions}
        return dict(sorted(sizes.items()))

    async def times(self, topic: Topic) -> dict[int, TimeRange] | None:
        """The time range of each partition's records; empty partitions are left out.

        None if the agent does not support the request.
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
        times: dict[int, int] = {}
        for leader, numbers in _by_leader(topic).items():
            response = await self._send_if_supported(
                OffsetsAtTime(topic.name, numbers, at=at), subject=topic.name, node=leader
            )
            if response is None:
                return None
            for number, code, timestamp_ms, *_ in response.topics[0][1]:
                if code:
                    raise from_code(code, subject=f"{topic.name}-{number}")
                times[number] = timestamp_ms
        return times

    async def _send_if_supported(self, request: Any, *, subject: str, node: int | None = None) -> Any | None:
        """The response, or None from an agent that does not support the request."""
        with translate_errors(bootstrap=self._bootstrap, subject=subject):
            try:
                return await self._send(request, node)
            except (IncompatibleBrokerVersion, NotImplementedError):
                return None

    async def coordinator(self, group_id: str) -> int:
        """The agent that coordinates a group."""
        response = await self.send(FindCoordinatorRequest(group_id, _GROUP), subject=group_id)
        if response.error_code:
            raise from_code(response.error_code, subject=group_id, text=getattr(response, "error_message", None))
        return int(response.coordinator_id)

    async def send(self, request: Any, *, subject: str, node: int | None = None) -> Any:
        """Send a request of `groups` or `producer` on the same connections."""
        with translate_errors(bootstrap=self._bootstrap, subject=subject):
            return await self._send(request, node)

    async def _send(self, request: Any, node: int | None) -> Any:
        """Send to this agent, or to any. A dead agent may still be listed: then the request goes to another."""
        if node is not None:
            if node not in {broker.nodeId for broker in self._client.cluster.brokers()}:  # a new agent
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


def _by_leader(topic: Topic, selected: set[int] | None = None) -> dict[int, list[int]]:
    partitions: dict[int, list[int]] = defaultdict(list)
    for partition in topic.partitions:
        if selected is None or partition.partition in selected:
            partitions[partition.leader].append(partition.partition)
    return partitions


def _topic(entry: Any) -> Topic:
    _, name, internal, listed = entry
    partitions = [Partition(partition=p[1], leader=p[2], epoch=p[3]) for p in listed]
    return Topic(name=name, internal=internal, partitions=tuple(sorted(partitions, key=lambda p: p.partition)))
