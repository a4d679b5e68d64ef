"""No call blocks the event loop while an agent serves: a disk that is slow must not stop heartbeats and readers."""

import asyncio
import os
import shutil
import urllib.request
from pathlib import Path

import pytest

from tests.spark.maintenance.support import ask, consumed, create, trickle
from tests.support import agent as live
from tests.support import blocking_watch
from tests.support.agent import LiveAgent

BUSY = (
    *("--set", "flush.age_s=0.05", "--set", "flush.check_s=0.02", "--set", "retention.check_s=0.1"),
    *("--set", "retention.sweep_s=0.1", "--set", "retention.grace_s=0.1", "--set", "compaction.merge_runs=4"),
)
PAGES = ("/metrics", "/health/ready", "/openapi.json", "/v1/cluster", "/v1/topics", "/v1/segments?topic=orders")


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveAgent:
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(blocking_watch.__file__, site / "blocking_watch.py")
    call = f"blocking_watch.watch({str(tmp_path / 'armed')!r}, {str(tmp_path / 'found')!r})"
    (site / "sitecustomize.py").write_text(f"import blocking_watch\n{call}\n")
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = live._clean_environment() | {"PYTHONPATH": os.pathsep.join(paths)}
    monkeypatch.setattr(live, "_clean_environment", lambda: environment)
    cache = ("--set", f"fetch.disk_cache_path={tmp_path / 'cache'}")
    return LiveAgent(tmp_path / "data", *BUSY, *cache)


def test_an_agent_at_work_never_blocks_its_loop(watched: LiveAgent, tmp_path: Path) -> None:
    with watched as agent:
        (tmp_path / "armed").touch()
        create(agent, "orders", partitions=3)
        ask(agent, "/v1/topics", {"name": "keyed", "partitions": 1, "settings": {"cleanup.policy": "compact"}})
        for topic, partitions in (("orders", 3), ("keyed", 1)):
            trickle(agent, topic, 10, partitions=partitions)
        assert len(asyncio.run(consumed(agent, "orders", 30))) == 30
        for path in PAGES:
            with urllib.request.urlopen(f"http://{agent.http}{path}", timeout=10) as answer:
                assert answer.status == 200
        ask(agent, "/v1/topics/orders", method="DELETE")
        agent.stop()
    found = tmp_path / "found"
    assert not found.exists() or found.read_text().splitlines() == []
