"""One live agent for all compatibility tests, as a user starts it."""

import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

START_S = 30.0
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
            [COMMAND, "up", "--data", folder / "data", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"],
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
        if found := re.search(r"Kafka\s+(127\.0\.0\.1:\d+)", line):
            return found[1]
    raise AssertionError(f"the agent did not start: {log.read_text()}")


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"compat-{uuid.uuid4().hex}"
