"""The lines that `dev cluster --secure` prints connect the clients that they are for."""

import asyncio
import os
import shlex
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import aiokafka
import confluent_kafka.admin
import pytest

from benchmarks.kafka_jars import PeerUnavailable, java, kafka_tool_jars
from streamhouse.cli.commands.dev import connection_hints
from streamhouse.clock import SystemClock
from streamhouse.config.fields import parse_address
from streamhouse.dev.cluster import ClusterReady, RunningAgent
from streamhouse.dev.security import prepare_security
from tests.support.agent import LiveAgent

TOPIC: Final = "orders"


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    folder = tmp_path_factory.mktemp("cluster")
    security = prepare_security(folder / "security", clock=SystemClock())
    set_all = (part for name, value in security.settings.items() for part in ("--set", f"{name}={value}"))
    environment = folder / "env"
    environment.write_text("".join(f"export {name}={value}\n" for name, value in security.client_environment.items()))
    live = LiveAgent(folder / "data", *set_all, ca=security.ca)
    with live:
        kafka, http = parse_address(live.bootstrap), parse_address(live.http)
        ready = ClusterReady(
            agents=(RunningAgent(node=1, pid=live.pid, kafka=kafka, http=http),),
            postgres="",
            s3="",
            folder=folder,
            environment_file=environment,
            security=security,
        )
        printed = dict(connection_hints(ready, security))
        assert security.password not in str(printed)
        os.environ["STREAMHOUSE_AGENTS"] = f"https://{http}"
        shell(f"{printed['shell'].partition('#')[0]}; streamhouse topics create {TOPIC}")
        yield printed
        del os.environ["STREAMHOUSE_AGENTS"]


def shell(line: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PATH": path}
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_command_line(lines: Mapping[str, str]) -> None:
    assert "User:admin" in shell(f"{lines['shell'].partition('#')[0]}; streamhouse whoami")


def test_curl(lines: Mapping[str, str]) -> None:
    assert TOPIC in shell(f"{lines['curl']} --silent --show-error --fail")


def test_kcat_or_what_it_is_made_of(lines: Mapping[str, str]) -> None:
    if shutil.which("kcat"):
        assert TOPIC in shell(lines["kcat"])
        return
    _, _, file, _, bootstrap, _ = shlex.split(lines["kcat"])
    settings = dict(line.split("=", 1) for line in Path(file).read_text().splitlines())
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, **settings})
    assert TOPIC in admin.list_topics(timeout=20).topics


@pytest.mark.java
def test_java(lines: Mapping[str, str]) -> None:
    try:
        jars = kafka_tool_jars()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    command = [java(), "-cp", f"{jars}/*", "org.apache.kafka.tools.TopicCommand", *shlex.split(lines["Java"])[1:]]
    assert TOPIC in shell(shlex.join(command))


def test_aiokafka(lines: Mapping[str, str]) -> None:
    bootstrap = shlex.split(lines["kcat"])[4]
    settings = eval(f"dict({lines['aiokafka']})", {"ssl": ssl, "Path": Path})

    async def run() -> set[str]:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, **settings) as consumer:
            return await consumer.topics()  # type: ignore[no-any-return]

    assert TOPIC in asyncio.run(run())
