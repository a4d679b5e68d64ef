"""A disk that runs full under load costs nothing that was acknowledged, and the agent goes on once there is room."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.load import Ledger, LoadProducer, check, read_everything
from tests.crash.test_kill import BUSY, create_topic
from tests.support.agent import LiveAgent

pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]


def mount(path: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or not mount(disk, "size=8m"):
        pytest.skip("a small disk of its own needs the right to mount a tmpfs")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize("killed", [False, True])
def test_a_full_disk_loses_nothing(small_disk: Path, killed: bool) -> None:
    with LiveAgent(small_disk / "data", *BUSY, "--set", "buffer.max_throttle_s=1") as agent:
        create_topic(agent.bootstrap)
        ledger = Ledger()
        producer = LoadProducer("idempotent", agent.bootstrap, ledger, idempotent=True, padding=500)
        producer.start()
        wait_until_stuck(ledger)
        if killed:
            agent.kill()
        assert mount(small_disk, "remount,size=512m")
        if killed:
            agent.start()
        before = len(ledger.acked)
        deadline = time.monotonic() + 60
        while len(ledger.acked) < before + 1000:
            assert time.monotonic() < deadline, f"the agent did not go on:\n{agent.output[-3000:]}"
            time.sleep(0.05)
        producer.stop()
        assert not ledger.refused, ledger.refused[:5]
        result = read_everything(agent.bootstrap)
        check(ledger, result, idempotent={"idempotent"})


def wait_until_stuck(ledger: Ledger) -> None:
    """Until the disk is full: acknowledgements have stopped coming."""
    deadline = time.monotonic() + 120
    quiet_since, count = time.monotonic(), 0
    while time.monotonic() - quiet_since < 3:
        assert time.monotonic() < deadline, "the disk never ran full"
        if len(ledger.acked) != count:
            quiet_since, count = time.monotonic(), len(ledger.acked)
        time.sleep(0.05)
    assert count > 0
