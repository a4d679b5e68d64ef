"""SIGTERM while the bucket is away: the agent ends in time, says what it left, and the next start has it."""

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.stores.conftest import BUCKET
from tests.stores.records import RECORDS, consume, produce, values
from tests.support.agent import LiveAgent
from tests.support.proxies.tunnel import Tunnel
from tests.support.s3 import RealS3

pytestmark = pytest.mark.s3

LIMITS = ("agent.stop_timeout_s=2", "agent.close_timeout_s=1", "wal.close_s=1")
LONGEST_S = 2 * 2 + 3 * 1
SLACK_S = 20.0
"""For a machine that is busy."""


async def test_a_stop_with_the_bucket_away_and_an_append_pending_ends_in_time_and_loses_nothing_acknowledged(
    real_s3: RealS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Tunnel(real_s3.port) as tunnel:
        for name, value in real_s3.environment.items():
            monkeypatch.setenv(name, value.replace(f":{real_s3.port}", f":{tunnel.port}"))
        flags = ["--store", f"s3://{BUCKET}/stop-{tmp_path.name}", "--wal", "object"]
        for limit in LIMITS:
            flags += ["--set", limit]
        agent = LiveAgent(tmp_path / "data", *flags)
        await asyncio.to_thread(agent.start)
        await asyncio.to_thread(produce, agent.bootstrap, 0)
        tunnel.swallow()
        producer = Producer({"bootstrap.servers": agent.bootstrap, "message.timeout.ms": 60_000})
        producer.produce("orders", b"pending")
        await asyncio.to_thread(producer.poll, 1.0)  # it is on its way, and can't become durable
        began = asyncio.get_running_loop().time()
        code = await asyncio.to_thread(agent.stop)
        assert asyncio.get_running_loop().time() - began < LONGEST_S + SLACK_S
        assert code == 1
        assert "stopped before all was stored" in agent.output
        tunnel.heal()
        await asyncio.to_thread(agent.start)
        try:
            result = await asyncio.to_thread(consume, agent.bootstrap, RECORDS)
        finally:
            producer.purge()
            await asyncio.to_thread(agent.stop)
    assert result[:RECORDS] == values(1)
