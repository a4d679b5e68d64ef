"""One live agent for all compatibility tests, as a user starts it."""

import fcntl
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent import LiveAgent

START_S = 30.0
CACHE = Path(__file__).parents[2] / ".cache" / "kafkajs"
COMMAND = Path(sys.executable).parent / "streamhouse"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.compat)


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an agent of its own, in a temporary folder, on a free port."""
    folder = tmp_path_factory.mktemp("agent")
    log = folder / "log"
    with log.open("w") as output:
        agent = subprocess.Popen(
            [COMMAND, "up", "--data", folder / "data", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", ""],
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
    try:
        yield _address(agent, log)
    finally:
        agent.terminate()
        agent.communicate(timeout=START_S)
    assert agent.returncode == 0, log.read_text()
    assert "Traceback" not in log.read_text()


def _address(agent: "subprocess.Popen[str]", log: Path) -> str:
    assert agent.stdout is not None
    for line in agent.stdout:
        if result := re.search(r"Kafka\s+(127\.0\.0\.1:\d+)", line):
            return result[1]
    raise AssertionError(f"the agent did not start: {log.read_text()}")


@pytest.fixture(scope="session")
def group_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an agent whose groups don't wait for more members."""
    folder = tmp_path_factory.mktemp("groups")
    with LiveAgent(folder / "data", "--set", "groups.initial_rebalance_delay_s=0") as agent:
        yield agent.bootstrap
    assert "Traceback" not in agent.output


@pytest.fixture(scope="session")
def kafkajs() -> Path:
    """node_modules with kafkajs in it, kept in a folder that git ignores; one worker installs it for all."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install_kafkajs()
    return CACHE / "node_modules"


def _install_kafkajs() -> None:
    if (CACHE / "node_modules" / "kafkajs" / "package.json").exists():
        return
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, and kafkajs is not in .cache")
    command = ["npm", "install", "--prefix", str(CACHE), "--no-audit", "--no-fund", "--silent", "kafkajs@2"]
    if subprocess.run(command, capture_output=True, timeout=120, check=False).returncode != 0:
        pytest.skip("npm could not install kafkajs")


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"compat-{uuid.uuid4().hex}"
