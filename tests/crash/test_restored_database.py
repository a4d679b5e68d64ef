"""A PostgreSQL database restored from a dump beside a bucket that went on: agents refuse it, and nothing is lost."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamhouse.dev.postgres import USER
from tests.crash.pair import SETTINGS
from tests.support.agent import LiveAgent, _clean_environment
from tests.support.postgres import RealPostgres, find_binaries

pytestmark = [pytest.mark.crash, pytest.mark.postgres, pytest.mark.timeout(300)]

PARTITIONS = 4
LIMIT_S = 60
Records = dict[tuple[int | None, int | None], bytes | None]
"""What was acknowledged, or read, by partition and offset."""


@pytest.fixture
def postgres() -> Iterator[RealPostgres]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL here")
    with RealPostgres(binaries) as server:
        yield server


class Site:
    """Two agents on one database and one bucket."""

    def __init__(self, folder: Path, postgres: RealPostgres) -> None:
        self._folder = folder
        self._postgres = postgres
        self._dump = postgres.data / "dump.sql"  # where the user may write whom the tools run as
        postgres.run_tool("createdb", *self._server(), "streamhouse")
        self.stores = ["--metadata", postgres.dsn("streamhouse"), "--store", f"file://{folder}/bucket"]
        flags = list(self.stores)
        for setting in ("wal.kind=object", *SETTINGS):
            flags += ["--set", setting]
        self.agents = [LiveAgent(folder / name, *flags) for name in ("first", "second")]
        self.bootstrap = ",".join(agent.bootstrap for agent in self.agents)

    def _server(self) -> list[str]:
        return ["-h", "127.0.0.1", "-p", str(self._postgres.port), "-U", USER]

    def dump(self) -> None:
        self._postgres.run_tool("pg_dump", *self._server(), "-f", str(self._dump), "streamhouse")

    def restore(self) -> None:
        self._postgres.run_tool("dropdb", *self._server(), "--force", "streamhouse")
        self._postgres.run_tool("createdb", *self._server(), "streamhouse")
        self._postgres.run_tool(
            "psql", *self._server(), "-q", "-v", "ON_ERROR_STOP=1", "-d", "streamhouse", "-f", str(self._dump)
        )

    def run(self, *args: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "streamhouse", *args, "--data", str(self._folder / "third"), *self.stores]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=_clean_environment())


def produce(bootstrap: str, count: int) -> Records:
    acked: Records = {}

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        acked[message.partition(), message.offset()] = message.value()

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce("orders", b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered)
    assert producer.flush(LIMIT_S) == 0
    assert len(acked) == count
    return acked


def consumed(bootstrap: str, count: int) -> Records:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "oracle", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", number, 0) for number in range(PARTITIONS)])
    result: Records = {}
    while len(result) < count and (message := consumer.poll(LIMIT_S / 2)) is not None:
        assert message.error() is None, message.error()
        result[message.partition(), message.offset()] = message.value()
    consumer.close()
    return result


def test_a_database_restored_from_a_dump_is_refused_and_every_acknowledged_record_recovered(
    tmp_path: Path, postgres: RealPostgres
) -> None:
    site = Site(tmp_path, postgres)
    with ExitStack() as running:
        for agent in site.agents:
            running.enter_context(agent)
        admin = AdminClient({"bootstrap.servers": site.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result(LIMIT_S)
        acked = produce(site.bootstrap, 100)
        site.dump()
        site.agents[0].stop()
        site.agents[0].start()  # a session begins a generation, which the dump does not have
        acked |= produce(site.bootstrap, 200)
        for agent in site.agents:
            agent.kill()
    site.restore()
    refused = site.run("up", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "")
    assert refused.returncode == 2, refused.stderr
    assert "is older than the object store" in refused.stderr
    assert "streamhouse recover" in refused.stderr
    applied = site.run("recover", "--apply")
    assert applied.returncode == 0, applied.stderr
    with ExitStack() as running:
        for agent in site.agents:
            running.enter_context(agent)
        assert consumed(site.bootstrap, len(acked)) == acked
        more = produce(site.bootstrap, 40)
        assert not more.keys() & acked.keys(), "offsets were given again"
