"""A process that appends is killed with SIGKILL at any moment: all that it had acknowledged is there."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamhouse.broker.wal.disk_recovery import DiskWalRecovery
from streamhouse.model.names import SessionId
from streamhouse.stores.local_files import LocalFiles
from tests.broker.wal.support import OTHER, read_all

APPENDER = """
import asyncio, os, sys
from pathlib import Path
from streamhouse.stores.local_files import LocalFiles
from streamhouse.clock import SystemClock
from tests.broker.wal.support import ORDERS, SessionId, entry, open_wal

async def append(wal, number):
    partition = ORDERS._replace(partition=number)
    offset = 0
    while True:
        await wal.append([entry(offset, b"%d:%d" % (number, offset), partition)])
        os.write(1, b"%d %d\\n" % (number, offset))
        offset += 1

async def main(root, session, fsync):
    wal = await open_wal(LocalFiles(), root=Path(root), session=SessionId(session), fsync=fsync,
                         file_bytes=60_000, clock=SystemClock())
    await asyncio.gather(*(append(wal, number) for number in range(8)))

asyncio.run(main(*sys.argv[1:]))
"""


def run_until_killed(root: Path, session: str, fsync: str, acks: int) -> dict[int, int]:
    """Kill the appender after so many acknowledgements; how many each partition had got."""
    command = [sys.executable, "-c", APPENDER, str(root), session, fsync]
    acked: dict[int, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE) as appender:
        assert appender.stdout is not None
        for count, line in enumerate(appender.stdout):
            if count == acks:
                appender.send_signal(signal.SIGKILL)
            if not line.endswith(b"\n"):
                break
            number, offset = map(int, line.split())
            assert acked.get(number, 0) == offset
            acked[number] = offset + 1
    assert appender.returncode == -signal.SIGKILL
    assert sum(acked.values()) >= acks
    return acked


@pytest.mark.crash
async def test_what_was_acked_survives_twenty_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    chance = random.Random(20)
    acked = {
        SessionId(f"life-{life}"): run_until_killed(
            tmp_path, f"life-{life}", chance.choice(["always", "interval", "never"]), chance.randrange(1500)
        )
        for life in range(20)
    }
    files = LocalFiles()
    wals = DiskWalRecovery(tmp_path, files)
    assert await wals.dead_sessions(OTHER) == sorted(acked)
    for session, counts in acked.items():
        results: dict[int, list[int]] = {number: [] for number in range(8)}
        for entry in await read_all(files, session, tmp_path):
            number = entry.partition.partition
            assert entry.batch == b"%d:%d" % (number, entry.base)
            results[number].append(entry.base)
        for number, offsets in results.items():
            assert offsets == list(range(len(offsets)))
            assert len(offsets) >= counts.get(number, 0)
        await wals.remove(session)
    assert files.list(tmp_path) == []
