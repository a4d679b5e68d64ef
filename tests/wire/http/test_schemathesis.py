"""Requests made from the OpenAPI document, good and bad ones: the agent answers all of them as the document says."""

import asyncio
import os
import sys
from pathlib import Path

from streamhouse.config import (
    AgentSettings,
    FetchSettings,
    FlushSettings,
    GrpcSettings,
    HttpSettings,
    KafkaSettings,
    Settings,
    SqlSettings,
)
from tests.support.depth import scaled

from .conftest import Site, running
from .fake_worker import FakeWorker, fake_worker

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
EXAMPLES = scaled(quick=1, nightly=20)
"""Requests for each operation and phase: with quick depth enough to find what is commonly wrong."""


async def prepare_pipelines(site: Site, worker: FakeWorker) -> None:
    """Something to look at, and somebody who answers SQL."""
    beat = {"address": worker.address, "token": "t", "busy": 0}
    assert (await site.http.post("/v1/sql/workers/w/heartbeat", json=beat)).is_success
    view = {"kind": "view", "text": "CREATE MATERIALIZED VIEW totals AS SELECT 1", "key": ["id"]}
    assert (await site.http.put("/v1/pipelines/totals", json=view)).is_success
    assert (await site.http.put("/v1/pipelines/revenue", json={"kind": "sql", "text": "SELECT 1"})).is_success


def findings(output: str) -> str:
    """What was found; long bodies are cut off."""
    return "\n".join(line[:300] for line in output.partition("= FAILURES =")[2].splitlines())


async def test_nothing_is_found_in_requests_made_from_the_document(tmp_path: Path) -> None:
    settings = Settings(
        agent=AgentSettings(data=str(tmp_path / "data")),
        kafka=KafkaSettings(listen="127.0.0.1:0"),
        http=HttpSettings(listen="127.0.0.1:0", max_failure_delay_s=0),  # it asks for what is wrong, without end
        grpc=GrpcSettings(listen=""),
        fetch=FetchSettings(max_wait_s=0.05),
        flush=FlushSettings(age_s=0.05, check_s=0.02),  # for those who wait until records are stored
        sql=SqlSettings(worker_ttl_s=3600),
    )
    async with fake_worker() as worker, running(settings) as site:
        await prepare_pipelines(site, worker)
        made = await site.http.post("/v1/topics", json={"name": "orders", "partitions": 3})
        assert made.status_code == 201
        records = {"records": [{"key": str(number), "value": number} for number in range(100)]}
        assert (await site.http.post("/v1/topics/orders/records", json=records)).is_success
        reset = {"to": "earliest", "topics": [{"topic": "orders"}]}
        assert (await site.http.post("/v1/groups/billing/reset", json=reset)).is_success
        result = await asyncio.create_subprocess_exec(
            str(Path(sys.executable).parent / "st"),
            "--config-file",
            str(HERE / "schemathesis.toml"),
            "run",
            f"http://127.0.0.1:{site.port}/openapi.json",
            # This agent asks nobody to log in: test_access_matrix.py has the logins.
            *(
                "--checks",
                "all",
                "--exclude-checks",
                "ignored_auth",
                "--max-examples",
                str(EXAMPLES),
                "--generation-database",
                "none",
                "--warnings",
                "off",
            ),
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await result.communicate()
        assert result.returncode == 0, findings(output.decode())
        assert await site.metric('streamhouse_http_requests_total{method="POST",route="/v1/topics",status="500"}') == 0
