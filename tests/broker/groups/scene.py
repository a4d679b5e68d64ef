"""Groups on a real metadata store, with the time, the session and the store's weather in the test's hands."""

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from streamhouse.broker.catalog.topic_catalog import TopicCatalog
from streamhouse.broker.cluster.cluster import Leader
from streamhouse.broker.dependencies import Dependencies, WalFactory
from streamhouse.broker.groups import (
    Groups,
    JoinRequest,
    JoinResult,
    MemberRef,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from streamhouse.config import GroupSettings, Settings
from streamhouse.config.fields import Address
from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.model.cluster import Session
from streamhouse.model.group import OfferedProtocol
from streamhouse.model.names import PartitionId, SessionId, TopicPartition
from streamhouse.stores.metadata.base import MetadataStore, NewSession
from streamhouse.stores.metadata.sqlite import SqliteMetadataStore
from streamhouse.stores.objects.base import ObjectStore
from tests.contracts.clocks import seeded_ids

T = TypeVar("T")

ADDRESS = Address(host="127.0.0.1", port=1)
ORDERS = [TopicPartition("orders", number) for number in range(4)]
SESSION_S = 10.0


class StandingClock:
    """A clock that the test advances; sleepers wake at their deadlines."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def monotonic(self) -> float:
        return self._now

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self._now * 1000)

    async def sleep(self, seconds: float) -> None:
        self._count += 1
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, woken))
        await woken

    async def advance(self, seconds: float) -> None:
        end = self._now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self._now = max(self._now, at)
                woken.set_result(None)
                await settle()
        self._now = end
        await settle()


async def settle() -> None:
    """Let everything run that can: nothing here waits for real time."""
    for _ in range(60):
        await asyncio.sleep(0)


class Inline(Executor):
    """Runs at once, in the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 (it is the result)
            done.set_exception(error)
        return done


class Weather:
    """A metadata store with faults: calls may be refused, lose their response, or be delayed."""

    def __init__(self, inner: MetadataStore) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()
        self.refused: set[str] = set()
        self.unanswered: set[str] = set()
        self.gates: dict[str, asyncio.Event] = {}

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._inner, name)

        async def call(*args: Any, **named: Any) -> Any:
            self.calls[name] += 1
            if name in self.gates:
                await self.gates[name].wait()
            if name in self.refused:
                raise Unavailable(f"refused; call={name}")
            response = await method(*args, **named)
            if name in self.unanswered:
                raise Unavailable(f"answer lost; call={name}")
            return response

        return call


@dataclass
class FakeTenancy:
    session: Session
    is_valid: bool = True
    end_reason: StreamhouseError | None = None


@dataclass
class Agent:
    """One life of a coordinator."""

    groups: Groups
    current_session: FakeTenancy
    store: Weather
    catalog: TopicCatalog
    task: "asyncio.Task[None]"

    async def kill(self) -> None:
        """It is gone, and nothing was tidied up."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class Everywhere:
    """A cluster in which every agent thinks that everything should be its own; leases decide."""

    current_session: FakeTenancy

    async def owners(self, partitions: Sequence[PartitionId]) -> Mapping[PartitionId, Session | None]:
        return dict.fromkeys(partitions, self.current_session.session)

    async def leader_of(self, partition: PartitionId) -> Leader:
        return Leader(self.current_session.session, -1)


@dataclass
class Scene:
    clock: StandingClock
    database: MetadataStore
    settings: Settings
    agents: list[Agent] = field(default_factory=list)
    waiting: list["asyncio.Task[Any]"] = field(default_factory=list)

    async def agent(self) -> Agent:
        """Another agent on the same store."""
        number = len(self.agents)
        session = await self.database.open_session(
            NewSession(session_id=SessionId(f"s-{number}"), kafka=ADDRESS, http=ADDRESS, ttl_ms=10**9)
        )
        store = Weather(self.database)
        dependencies = Dependencies(
            settings=self.settings,
            objects=cast(ObjectStore, None),
            metadata=cast(MetadataStore, store),
            wal_factory=cast(WalFactory, None),
            clock=self.clock,
            ids=seeded_ids(number),
            kafka=ADDRESS,
            http=ADDRESS,
            single_agent=False,
        )
        catalog = TopicCatalog(dependencies)
        current_session = FakeTenancy(session)
        groups = Groups(
            dependencies, catalog=catalog, current_session=lambda: current_session, cluster=Everywhere(current_session)
        )
        agent = Agent(groups, current_session, store, catalog, asyncio.create_task(groups.run()))
        self.agents.append(agent)
        await settle()
        return agent

    async def successor(self, *, of: Agent) -> Agent:
        """Another agent, after the first one was found dead. The first may not know it yet."""
        agent = await self.agent()
        dead, by = of.current_session.session.session_id, agent.current_session.session.session_id
        claim = await self.database.claim_recovery(dead, by=by, proven_dead=True)
        assert claim is not None
        await self.database.finish_recovery(dead, claim, [])
        return agent

    def start(self, call: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """A call that may have to wait."""
        task = asyncio.create_task(call)
        self.waiting.append(task)
        return task

    async def group_of(self, groups: Groups, count: int, group_id: str = "g") -> list[JoinResult]:
        """A stable group; each member is assigned its own id."""
        calls = [self.start(groups.join(group_id, join())) for _ in range(count)]
        await self.clock.advance(6)
        joined = [await call for call in calls]
        await self.assign(groups, joined, group_id)
        return joined

    async def assign(self, groups: Groups, joined: list[JoinResult], group_id: str = "g") -> list[SyncResult]:
        calls = [self.start(groups.sync(group_id, sync(each))) for each in joined]
        await settle()
        return [await call for call in calls]


@asynccontextmanager
async def open_scene(**group_settings: Any) -> AsyncIterator[Scene]:
    clock = StandingClock()
    database = await SqliteMetadataStore(":memory:", clock=clock, executor=Inline()).open()
    settings = Settings(groups=GroupSettings(**group_settings))
    scene = Scene(clock, cast(MetadataStore, database), settings)
    try:
        yield scene
    finally:
        for agent in scene.agents:
            await agent.kill()
        for task in scene.waiting:
            task.cancel()
        await asyncio.gather(*scene.waiting, return_exceptions=True)
        await database.aclose()


def join(member_id: str = "", **more: Any) -> JoinRequest:
    return JoinRequest(
        member_id=member_id,
        client_id="app",
        session_timeout_ms=more.pop("session_ms", round(SESSION_S * 1000)),
        rebalance_timeout_ms=60_000,
        protocol_type=more.pop("protocol_type", "consumer"),
        protocols=(OfferedProtocol("range", more.pop("metadata", b"")),),
        learns_id=more.pop("learns_id", False),
        **more,
    )


def sync(joined: JoinResult) -> SyncRequest:
    return SyncRequest(
        member_id=joined.member_id,
        generation=joined.generation,
        assignments={each.member_id: each.member_id.encode() for each in joined.members},
    )


def caller(joined: JoinResult) -> MemberRef:
    return MemberRef(member_id=joined.member_id, generation=joined.generation)


def at(*offsets: int) -> dict[TopicPartition, OffsetToCommit]:
    """Offsets of the partitions of `orders`, from the first on."""
    return {name: OffsetToCommit(offset=offset) for name, offset in zip(ORDERS, offsets, strict=False)}


async def committed(groups: Groups, group_id: str = "g") -> list[int]:
    """What the group has committed of `orders`, by partition; -1: nothing."""
    result = (await groups.fetch({group_id: ORDERS}))[group_id]
    assert not isinstance(result, StreamhouseError), result
    offsets = [result[name].offset if name in result else -1 for name in ORDERS]
    while offsets and offsets[-1] == -1:
        offsets.pop()
    return offsets
