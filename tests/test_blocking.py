"""No call blocks the event loop while an agent serves: a disk that is slow must not stop heartbeats and readers."""

import asyncio
import os
import shutil
import subprocess
import sys
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


BLOCKS = """
import asyncio, os, sqlite3, sys, time
from pathlib import Path

folder = Path(sys.argv[1])
file = open(folder / "file", "w+b", buffering=0)
buffered = open(folder / "buffered", "wb")
text = open(folder / "text", "w")
database = sqlite3.connect(":memory:", check_same_thread=False)

def opens(): open(folder / "another").close()
def sleeps(): time.sleep(0.001)
def writes(): os.write(file.fileno(), b"x")
def writes_to_a_file(): file.write(b"x")
def flushes_a_buffer():
    buffered.write(b"x")
    buffered.flush()
def reads():
    file.seek(0)
    file.read()
def syncs(): os.fsync(file.fileno())
def syncs_data(): os.fdatasync(file.fileno())
def looks(): os.stat(folder)
def looks_by_path(): folder.exists()
def executes(): database.execute("SELECT 1").fetchall()
def executes_by_a_cursor(): database.cursor().execute("SELECT 1")
def commits(): database.commit()

ALL = (
    opens, sleeps, writes, writes_to_a_file, flushes_a_buffer, reads, syncs, syncs_data, looks, looks_by_path,
    executes, executes_by_a_cursor, commits,
)
(folder / "another").touch()
for call in ALL:  # where no loop runs, nothing is noted
    call()

async def main():
    for call in ALL:
        await asyncio.to_thread(call)  # nor in another thread

async def block():
    for call in ALL:
        call()

(asyncio.run(main()) if sys.argv[2] == "well" else asyncio.run(block()))
print(*(call.__name__ for call in ALL))
"""


@pytest.mark.parametrize("how", ["well", "badly"])
def test_the_watch_sees_every_kind_of_blocking_call_and_no_other(tmp_path: Path, how: str) -> None:
    script, armed, result = tmp_path / "blocks.py", tmp_path / "armed", tmp_path / "found"
    armed.touch()
    call = f"blocking_watch.watch({str(armed)!r}, {str(result)!r}, ours={str(script)!r})"
    script.write_text(f"import blocking_watch\n{call}\n{BLOCKS}")
    paths = str(Path(blocking_watch.__file__).parent)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), how],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    seen = {line.rsplit(" ", 1)[1] for line in result.read_text().splitlines()} if result.exists() else set()
    assert seen == (set(done.stdout.split()) if how == "badly" else set())


def test_an_agent_at_work_never_blocks_its_loop(watched: LiveAgent, tmp_path: Path) -> None:
    with watched as agent:
        (tmp_path / "armed").touch()
        create(agent, "orders", partitions=3)
        ask(agent, "/v1/topics", {"name": "keyed", "partitions": 1, "settings": {"cleanup.policy": "compact"}})
        for topic, partitions in (("orders", 3), ("keyed", 1)):
            trickle(agent, topic, 10, partitions=partitions)
        assert len(asyncio.run(consumed(agent, "orders", 30))) == 30
        for path in PAGES:
            with urllib.request.urlopen(f"http://{agent.http}{path}", timeout=10) as response:
                assert response.status == 200
        ask(agent, "/v1/topics/orders", method="DELETE")
        agent.stop()
    result = tmp_path / "found"
    assert not result.exists() or result.read_text().splitlines() == []
