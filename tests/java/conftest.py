"""The Java client and Kafka's own tools, from Maven Central, against a live agent."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.kafka_jars import PeerUnavailable, java, kafka_tool_jars
from tests.support.agent import LiveAgent

HERE = Path(__file__).parent
TIMEOUT_S = 180.0

# Started often and for a moment: what takes long to warm up is left out.
JVM_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.java)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """Runs main classes and single-file programs with Kafka's jars on the class path."""

    command: tuple[str, ...]
    bootstrap: str

    def tool(self, name: str, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """What one of Kafka's tools prints; `name` is its class below `org.apache.kafka.tools`, or a full one."""
        main = name if name.startswith("kafka.") else f"org.apache.kafka.tools.{name}"
        return self._run([main, "--bootstrap-server", self.bootstrap, *arguments], stdin=stdin, fails=fails)

    def program(self, name: str, *arguments: str) -> list[str]:
        """The lines that one of the programs beside this file prints."""
        return self._run([str(HERE / name), self.bootstrap, *arguments]).splitlines()

    def _run(self, arguments: list[str], *, stdin: str = "", fails: bool = False) -> str:
        command = [*self.command, *arguments]
        ran = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert (ran.returncode != 0) is fails, f"{arguments}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout + ran.stderr if fails else ran.stdout


@pytest.fixture(scope="session")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("java") / "data", "--set", "groups.initial_rebalance_delay_s=0.5") as agent:
        yield agent
        assert "Traceback" not in agent.output


@pytest.fixture(scope="session")
def jars() -> str:
    """The class path; skips the tests where Java or Maven is missing."""
    try:
        java()
        return f"{kafka_tool_jars()}/*"
    except PeerUnavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def kafka(jars: str, agent: LiveAgent, tmp_path_factory: pytest.TempPathFactory) -> Java:
    logging = tmp_path_factory.mktemp("logging") / "log4j2.properties"
    logging.write_text(LOGGING)
    command = (java(), *JVM_FLAGS, f"-Dlog4j2.configurationFile={logging}", "-cp", jars)
    return Java(command=command, bootstrap=agent.bootstrap)
