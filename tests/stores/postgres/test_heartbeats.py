"""Heartbeats of an agent on PostgreSQL: neither a crowd of metadata calls nor a busy event loop costs the session."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from streamhouse.agent import Agent, build_agent
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.config import load_settings

pytestmark = pytest.mark.postgres

LEASE = {"lease.ttl_s": 6, "lease.takeover_s": 2.4, "lease.margin_s": 0.6, "lease.renew_s": 0.6, "lease.stall_s": 30}
USABLE_S = 3.0


def settings_of(dsn: str, folder: Path) -> dict[str, object]:
    return {
        "agent.data": str(folder / "data"),
        "metadata.url": dsn,
        "metadata.max_connections": 1,
        "metadata.timeout_s": 20,
        "kafka.listen": "127.0.0.1:0",
        "http.listen": "127.0.0.1:0",
        "grpc.listen": "",
        **LEASE,
    }


def tenure_of(agent: Agent) -> AgentSession:
    assert agent.broker.agent_session is not None
    return agent.broker.agent_session


def stand_still(seconds: float) -> None:
    """Nothing else runs in this thread."""
    time.sleep(seconds)


async def slowly(tx: Any) -> None:
    await tx.rows("SELECT pg_sleep(1)")


async def test_a_session_outlives_a_crowd_of_slow_calls_and_a_loop_that_stands_still(
    empty_database: str, tmp_path: Path
) -> None:
    async with build_agent(load_settings(settings_of(empty_database, tmp_path), {})) as agent:
        serving = asyncio.ensure_future(agent.serve())
        tenure = tenure_of(agent)
        await asyncio.sleep(0.1)
        # The only connection for everything else is taken for longer than the session could do without a heartbeat.
        engine: Any = agent.broker._dependencies.metadata
        crowd = [asyncio.ensure_future(engine._engine.write(slowly)) for _ in range(round(USABLE_S) + 2)]
        while not all(call.done() for call in crowd):
            assert tenure.is_valid
            await asyncio.sleep(0.05)
        stand_still(USABLE_S + 0.5)
        assert tenure.is_valid
        assert tenure_of(agent) is tenure
        await asyncio.gather(*crowd)
        agent.stop()
        await serving
