"""An agent's place taken by memory: the deps of the command line without anybody behind them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import httpx
import msgspec
import typer

from streamhouse.agent import AgentReady
from streamhouse.cli.dependencies import Dependencies
from streamhouse.client.consumer import Consumer
from streamhouse.client.delivery import Batch, Delivery
from streamhouse.client.group_consumer import GroupConsumer
from streamhouse.client.http import Http
from streamhouse.client.kafka_admin import Admin
from streamhouse.client.kafka_errors import no_agent
from streamhouse.client.kafka_groups import Groups
from streamhouse.client.producer import Producer, ProducerSettings
from streamhouse.client.serde import SchemaReader, Write
from streamhouse.client.types import (
    EARLIEST,
    LATEST,
    Acks,
    Cluster,
    Compression,
    Config,
    Group,
    GroupMember,
    Partition,
    Record,
    Segment,
    TimeRange,
    Topic,
)
from streamhouse.config import Address, Settings
from streamhouse.dev.cluster import ClusterPlan, ClusterReady, RunningAgent
from streamhouse.dev.security import LocalSecurity
from streamhouse.errors import (
    GroupNotFound,
    InvalidConfig,
    InvalidPartitions,
    NonEmptyGroup,
    StreamhouseError,
    TopicExists,
    Unavailable,
    UnknownTopic,
)
from streamhouse.model.names import NodeId, SessionId, TopicPartition
from streamhouse.model.record import NewRecord
from streamhouse.spark.runtime.launch import Kind


class World:
    """What the agent would know."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.configs: dict[str, dict[str, str]] = {}
        self.logs: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self.starts: dict[tuple[str, int], int] = defaultdict(int)
        self.known_configs: dict[str, str] = {}
        self.alterations: list[tuple[str, bool]] = []
        self.sizes: dict[int, int] = {}
        self.groups: dict[str, Group] = {}
        self.committed: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        self.left: list[str] = []
        self.tells_configs = True
        self.auto_create = True
        self.late_news = 0  # how often a topic that is there is not known yet
        self.reported_late = False  # whether the agent that is asked after a change has not heard of it yet
        self.away = False
        self.refuses: Callable[[NewRecord], StreamhouseError | None] = lambda record: None
        self.producers: list[tuple[Acks, Compression]] = []
        self.segments: list[Segment] = []
        self.http: dict[str, Callable[[httpx.Request], httpx.Response]] = {}  # by path
        self.settings: Settings | None = None
        self.cluster: ClusterPlan | None = None
        self.spark: tuple[str, list[str], str] | None = None  # what was started, its arguments, the agents
        self.wont_start: StreamhouseError | None = None
        self.recovered_records = 0

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int = 0,
        timestamp_ms: int = 1_700_000_000_000,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        self.topics.setdefault(topic, 1)
        log = self.logs[topic, partition]
        offset = self.starts[topic, partition] + len(log)
        log.append(
            Record(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp_ms=timestamp_ms,
                key=key,
                value=value,
                headers=headers,
            )
        )

    def end(self, topic: str, partition: int) -> int:
        return self.starts[topic, partition] + len(self.logs[topic, partition])


class _Closing:
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class FakeAdmin(_Closing, Admin):
    def __init__(self, world: World, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._world = world

    async def __aenter__(self) -> Self:
        if self._world.away:
            raise no_agent(self._bootstrap)
        return self

    async def cluster(self) -> Cluster:
        return Cluster(agents={1: "127.0.0.1:9092"})

    async def topics(self) -> list[Topic]:
        return [await self.topic(name) for name in sorted(self._world.topics)]

    async def topic(self, name: str, *, create: bool = False) -> Topic:
        if self._world.late_news:
            self._world.late_news -= 1
            raise UnknownTopic(name)
        if name not in self._world.topics:
            if not (create and self._world.auto_create):
                raise UnknownTopic(name)
            self._world.topics[name] = 1
        partitions = range(self._world.topics[name])
        return Topic(
            name=name,
            internal=False,
            partitions=tuple(Partition(partition=number, leader=1, epoch=7) for number in partitions),
        )

    async def create_topic(self, name: str, *, partitions: int | None = None, configs: Mapping[str, str]) -> None:
        if name in self._world.topics:
            raise TopicExists(name)
        if "bad" in configs:
            raise InvalidConfig("unknown topic setting; name='bad'")
        self._world.topics[name] = partitions or 1
        self._world.configs[name] = dict(configs)

    async def alter_topic(self, name: str, configs: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        if "bad" in configs.values():
            raise InvalidConfig("topic setting has a bad value; value='bad'")
        self._world.alterations.append(("configs", dry_run))
        if not dry_run and not self._world.reported_late:
            merged: dict[str, str | None] = {**self._world.configs.get(name, {}), **configs}
            self._world.configs[name] = {key: value for key, value in merged.items() if value is not None}

    async def grow_topic(self, name: str, partitions: int, *, dry_run: bool = False) -> None:
        if partitions <= self._world.topics[name]:
            raise InvalidPartitions("a topic can only get more partitions")
        self._world.alterations.append(("partitions", dry_run))
        if not dry_run and not self._world.reported_late:
            self._world.topics[name] = partitions

    async def delete_topic(self, name: str) -> None:
        if self._world.topics.pop(name, None) is None:
            raise UnknownTopic(name)

    async def configs(self, topic: str) -> list[Config] | None:
        if not self._world.tells_configs:
            return None
        await self.topic(topic)
        result = {"cleanup.policy": "delete", **self._world.known_configs}
        own = self._world.configs.get(topic, {})
        return [
            Config(name=name, value=own.get(name, result.get(name)), own=name in own)
            for name in sorted({*result, *own})
        ]

    async def sizes(self, topic: Topic) -> dict[int, int] | None:
        return self._world.sizes if self._world.tells_configs else None

    async def times(self, topic: Topic) -> dict[int, TimeRange] | None:
        logs = {p.partition: self._world.logs[topic.name, p.partition] for p in topic.partitions}
        times = {number: [record.timestamp_ms for record in log] for number, log in logs.items() if log}
        if not self._world.tells_configs:
            return None
        return {number: TimeRange(first_ms=entry[0], last_ms=max(entry)) for number, entry in times.items()}

    async def offsets(
        self, topic: Topic, at: int, partitions: Iterable[int] | None = None, *, committed: bool = False
    ) -> dict[int, int]:
        numbers = range(len(topic.partitions)) if partitions is None else sorted(partitions)
        return {number: self._offset(topic.name, number, at) for number in numbers}

    def _offset(self, topic: str, number: int, at: int) -> int:
        if at == EARLIEST:
            return self._world.starts[topic, number]
        if at == LATEST:
            return self._world.end(topic, number)
        log = self._world.logs[topic, number]
        return next((record.offset for record in log if record.timestamp_ms >= at), -1)


class FakeProducer(_Closing, Producer):
    def __init__(self, world: World, bootstrap: str, topic: str, write_value: Write | None) -> None:
        super().__init__(bootstrap, topic, write_value=write_value)
        self._world = world

    async def __aenter__(self) -> Self:
        await self._write_value.open()
        return self

    async def put(self, record: NewRecord) -> Delivery:
        batch = Batch(partition=record.partition or 0, opened_at=0.0, expires_at=0.0)
        delivery = batch.add(record, 0)
        refusal = self._world.refuses(record)
        if refusal is None:
            number = record.partition or 0
            self._world.append(self.topic, record.value, key=record.key, partition=number, headers=record.headers)
            batch.succeed(0, None)
        else:
            batch.fail(refusal)
        return delivery


class FakeConsumer(_Closing, Consumer):
    def __init__(self, world: World, bootstrap: str, topic: str, starts: Mapping[int, int]) -> None:
        super().__init__(bootstrap, topic, starts=starts)
        self._world = world
        self._at = dict(starts)
        self.polls = 0

    async def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        results = [
            record
            for number in self._at
            for record in self._world.logs[self._topic, number]
            if record.offset >= self._at[number]
        ][:max_records]
        for record in results:
            self._at[record.partition] = record.offset + 1
        self.polls += 1
        if not results:
            # Nothing more will come: a follower would wait until somebody presses Ctrl-C.
            raise KeyboardInterrupt
        # Records that arrive while somebody reads.
        if self.polls == 1 and "late" in self._world.configs.get(self._topic, {}):
            self._world.append(self._topic, b"late")
        return results

    async def positions(self) -> dict[int, int]:
        return dict(self._at)


class FakeGroups(Groups):
    def __init__(self, world: World, admin: Admin) -> None:
        super().__init__(admin)
        self._world = world

    async def all(self) -> list[Group]:
        return [self._world.groups[name] for name in sorted(self._world.groups)]

    async def describe(self, name: str) -> Group:
        if name not in self._world.groups:
            raise GroupNotFound(name)
        return self._world.groups[name]

    async def committed(self, name: str) -> dict[TopicPartition, int]:
        return dict(sorted(self._world.committed[name].items()))

    async def commit(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._world.committed[name].update(offsets)

    async def delete(self, name: str) -> None:
        if (await self.describe(name)).is_active:
            raise NonEmptyGroup(name)
        del self._world.groups[name], self._world.committed[name]


class FakeGroupConsumer(GroupConsumer):
    """The only member of its group."""

    def __init__(self, world: World, bootstrap: str, topic: str, group: str, from_beginning: bool) -> None:
        super().__init__(bootstrap, topic, group=group, from_beginning=from_beginning)
        self._world = world
        self._topic = topic
        self._at: dict[int, int] = {}
        self._joined = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._world.left.append(self._group)

    async def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        if not self._joined:
            self._joined = True
            for number in range(self._world.topics[self._topic]):
                first = self._world.starts[self._topic, number]
                start = first if self._from_beginning else self._world.end(self._topic, number)
                self._at[number] = self._world.committed[self._group].get(TopicPartition(self._topic, number), start)
            return []
        logs = [self._world.logs[self._topic, number] for number in self._at]
        results = [record for log in logs for record in log if record.offset >= self._at[record.partition]][
            :max_records
        ]
        if not results:
            raise KeyboardInterrupt  # nothing more will come: a follower would wait until somebody presses Ctrl-C
        for record in results:
            self._at[record.partition] = record.offset + 1
        return results

    async def done(self, records: Iterable[Record]) -> None:
        for record in records:
            self._world.committed[self._group][TopicPartition(self._topic, record.partition)] = record.offset + 1

    async def positions(self) -> dict[TopicPartition, int] | None:
        return {TopicPartition(self._topic, number): at for number, at in self._at.items()} if self._joined else None


class FakeDependencies(Dependencies):
    def __init__(self, world: World) -> None:
        self.world = world

    def admin(self, bootstrap: str, *, timeout_s: float = 10.0) -> AbstractAsyncContextManager[Admin]:
        return FakeAdmin(self.world, bootstrap)

    def producer(
        self, bootstrap: str, topic: str, *, settings: ProducerSettings, write_value: Write | None = None
    ) -> AbstractAsyncContextManager[Producer]:
        self.world.producers.append((settings.acks, settings.compression))
        return FakeProducer(self.world, bootstrap, topic, write_value)

    def consumer(
        self, bootstrap: str, topic: str, *, starts: Mapping[int, int]
    ) -> AbstractAsyncContextManager[Consumer]:
        return FakeConsumer(self.world, bootstrap, topic, starts)

    def groups(self, admin: Admin) -> Groups:
        return FakeGroups(self.world, admin)

    def group_consumer(
        self, bootstrap: str, topic: str, *, group: str, from_beginning: bool, reader: SchemaReader | None = None
    ) -> AbstractAsyncContextManager[GroupConsumer]:
        return FakeGroupConsumer(self.world, bootstrap, topic, group, from_beginning)

    def http(self, address: str) -> AbstractAsyncContextManager[Http]:
        return Http(address, transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.world.away:
            raise httpx.ConnectError("refused", request=request)
        if request.url.path in self.world.http:
            return self.world.http[request.url.path](request)
        assert request.url.path == "/v1/segments"
        topic = request.url.params.get("topic")
        if topic is not None and topic not in self.world.topics:
            problem = {
                "type": "about:blank",
                "title": "UnknownTopic",
                "status": 404,
                "detail": f"unknown; name={topic}",
            }
            return httpx.Response(404, json=problem)
        results = [s for s in self.world.segments if topic in (None, s.topic)]
        return httpx.Response(200, content=msgspec.json.encode({"segments": results}))

    def run_agent(self, settings: Settings, *, on_ready: Callable[[AgentReady], None]) -> None:
        self.world.settings = settings
        if self.world.wont_start is not None:
            raise self.world.wont_start
        on_ready(
            AgentReady(
                kafka=Address("127.0.0.1", 19_092),
                http=Address("127.0.0.1", 18_080),
                node_id=NodeId(1),
                session_id=SessionId("s-0123"),
                data=Path("/srv/data"),
                metadata_url="postgresql://ann:secret@db/facts",
                store_url="file:///srv/data/objects",
                wal="object" if settings.wal.kind == "object" else "disk",
                recovered_records=self.world.recovered_records,
            )
        )

    def start_spark(self, kind: Kind, arguments: Sequence[str], *, agents: str) -> NoReturn:
        self.world.spark = (kind, list(arguments), agents)
        raise typer.Exit

    def run_cluster(
        self,
        *,
        agents: int,
        folder: Path,
        settings: Mapping[str, str],
        kafka_port: int,
        http_port: int,
        restart: bool,
        secure: bool,
        on_ready: Callable[[ClusterReady], None],
        on_event: Callable[[str], None],
    ) -> None:
        self.world.cluster = ClusterPlan(
            agents=agents,
            folder=folder,
            settings=settings,
            kafka_port=kafka_port,
            http_port=http_port,
            restart=restart,
            secure=secure,
        )
        if self.world.wont_start is not None:
            raise self.world.wont_start
        on_ready(
            ClusterReady(
                agents=tuple(
                    RunningAgent(
                        node=3 + n,
                        pid=100 + n,
                        kafka=Address("127.0.0.1", 19_092 + n),
                        http=Address("127.0.0.1", 80 + n),
                        grpc=Address("127.0.0.1", 19_190 + n),
                    )
                    for n in range(agents)
                ),
                postgres="postgresql://ann:secret@127.0.0.1:15432/postgres",
                s3="http://127.0.0.1:18333",
                folder=Path("/srv/cluster"),
                environment_file=Path("/srv/cluster/env"),
                security=LocalSecurity(folder=Path("/x/security"), password="hunter22") if secure else None,
            )
        )
        on_event("agent 1, pid 100, ended (killed by SIGKILL)")


def a_member(name: str, *assigned: tuple[str, int]) -> GroupMember:
    places = tuple(TopicPartition(*each) for each in assigned)
    return GroupMember(member_id=f"{name}-1", client_id=name, host="127.0.0.1", assigned=places)


def refuse_all(error: StreamhouseError) -> Callable[[NewRecord], StreamhouseError | None]:
    return lambda record: error


def gone() -> Unavailable:
    return no_agent("127.0.0.1:9092")


Json = Any
