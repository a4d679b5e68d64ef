"""A SQL worker that agents reach over a network: they ask it over TLS, its own machine's shells don't."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from streamhouse.spark.worker import process
from streamhouse.spark.worker.discovery import Worker, runtime_dir
from tests.support.acl_agent import SECRET, AclAgent, wait_until


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AclAgent]:
    with AclAgent(tmp_path) as agent:
        yield agent


async def test_agents_ask_over_tls_and_shells_on_loopback(
    agent: AclAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "is_loopback", lambda host: False)
    for name, value in {
        "STREAMHOUSE_CA": str(agent.ca),
        "STREAMHOUSE_SQL_FOLDER": str(tmp_path / "homes"),
        "STREAMHOUSE_SECURITY_TLS_CERTIFICATE": str(tmp_path / "agent.pem"),
        "STREAMHOUSE_SECURITY_TLS_KEY": str(tmp_path / "agent.key"),
    }.items():
        monkeypatch.setenv(name, value)
    plan, started, no_spark = process.WorkerPlan(agents=agent.address), list[Worker](), Any
    home = runtime_dir(plan.agents)
    running = asyncio.create_task(process._WorkerProcess(plan, home, no_spark, SECRET, started.append).run())  # type: ignore[arg-type]
    try:
        announced = await asyncio.to_thread(
            wait_until, lambda: agent.send("admin", "GET", "/v1/sql/workers").json()["workers"]
        )
        assert announced[0]["address"].startswith("https://127.0.0.1:")
        assert announced[0]["address"].rpartition(":")[2] != started[0].address.rpartition(":")[2]
        response = await asyncio.to_thread(agent.send, "admin", "POST", "/v1/sql", json={"sql": "SELECT 1"})
        assert response.status_code == 500  # of the worker, which has no Spark here
        async with httpx.AsyncClient(trust_env=False) as shell:
            health = await shell.get(
                f"http://{started[0].address}/health", headers={"authorization": f"Bearer {started[0].token}"}
            )
            assert health.json()["queries"] >= 1
    finally:
        os.kill(os.getpid(), signal.SIGTERM)  # as a worker is stopped
        await running
