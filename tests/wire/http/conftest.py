"""The HTTP wire is tested on the broker's worlds, and where sockets matter, on a real agent in this process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.agent import Agent, build_agent
from streamhouse.broker.broker import Broker
from streamhouse.config import AgentSettings, GroupSettings, GrpcSettings, HttpSettings, KafkaSettings, Settings
from streamhouse.wire.http.app import make_app
from tests.broker.conftest import make_world, world
from tests.broker.support import World

__all__ = ["make_world", "world"]


@pytest.fixture
async def broker(world: World) -> Broker:
    """With a topic of three partitions."""
    broker = await world.start()
    await broker.create_topic("orders", partitions=3, overrides={})
    return broker


@pytest.fixture
async def http(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(broker) as client:
        yield client


@asynccontextmanager
async def serving(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    """A client of this broker's routes, without a socket."""
    transport = httpx.ASGITransport(make_app(broker, CollectorRegistry(), cluster_id="cluster-1"))
    async with httpx.AsyncClient(transport=transport, base_url="http://agent") as client:
        yield client


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """An agent in this process, and a client that talks to its port."""

    agent: Agent
    http: httpx.AsyncClient
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.agent.ready.http.port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of its own, which ends with the agent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    async def metric(self, line: str) -> float:
        """The value of a metric; 0 while it was never counted."""
        for each in (await self.http.get("/metrics")).text.splitlines():
            name, _, value = each.rpartition(" ")
            if name == line:
                return float(value)
        return 0.0

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait for what happens on the other side of the socket."""
        for _ in range(1000):
            if await condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never happened")


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Site]:
    async with build_agent(settings) as agent:
        serving = asyncio.create_task(agent.serve())
        address = f"http://127.0.0.1:{agent.ready.http.port}"
        try:
            async with httpx.AsyncClient(base_url=address, trust_env=False, verify=False, timeout=20) as http:
                site = Site(agent=agent, http=http)
                yield site
                for writer in site.writers:
                    writer.transport.abort()
        finally:
            agent.stop()
            await serving


StartSite = Callable[..., Any]


@pytest.fixture
async def start_site(tmp_path: Path) -> AsyncIterator[StartSite]:
    """Starts an agent with these settings of the HTTP port; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def start(**http: Any) -> Site:
            settings = Settings(
                agent=AgentSettings(data=str(tmp_path / "data")),
                kafka=KafkaSettings(listen="127.0.0.1:0"),
                http=HttpSettings(listen="127.0.0.1:0", **http),
                grpc=GrpcSettings(listen=""),
                groups=GroupSettings(initial_rebalance_delay_s=0),
            )
            return await stack.enter_async_context(running(settings))

        yield start
