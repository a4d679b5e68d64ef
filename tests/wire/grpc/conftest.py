"""Agents with everything that `streamhouse up` gives them, in this process, and clients that come over sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest

from streamhouse.agent import Agent, build_agent
from streamhouse.config import load_settings
from tests.wire.grpc.talk import Client

StartAgent = Callable[..., Awaitable[Agent]]
Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def start_agent(tmp_path: Path) -> AsyncIterator[StartAgent]:
    """Starts an agent with these settings, by name with `__` for the dot; all are stopped at the end."""
    async with AsyncExitStack() as stack:

        async def start(**settings: str) -> Agent:
            given = {name.replace("__", "."): value for name, value in settings.items()}
            listen = {f"{section}.listen": "127.0.0.1:0" for section in ("kafka", "http", "grpc")}
            data = {"agent.data": str(tmp_path / "data"), "wal.fsync": "never"}
            agent = await stack.enter_async_context(build_agent(load_settings({**listen, **data, **given}, {})))
            serving = asyncio.create_task(agent.serve())

            async def stop() -> None:
                agent.stop()
                await serving

            stack.push_async_callback(stop)
            return agent

        yield start


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def to(agent: Agent, *options: tuple[str, int]) -> Client:
            assert agent.ready.grpc is not None
            channel = grpc.aio.insecure_channel(str(agent.ready.grpc), options=list(options))
            return Client(await stack.enter_async_context(channel))

        yield to


@pytest.fixture
async def agent(start_agent: StartAgent) -> Agent:
    return await start_agent()


@pytest.fixture
async def client(agent: Agent, connect: Connect) -> Client:
    return await connect(agent)
