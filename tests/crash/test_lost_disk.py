"""Agents with a disk each, on a real PostgreSQL and a real S3 server: one dies, one is paused, others go on without
their disks, and what these held comes back."""

import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.crash.load import PARTITIONS, TOPIC, Ledger, LoadProducer, read_everything
from tests.support.agent import LiveAgent
from tests.support.depth import scaled
from tests.support.postgres import RealPostgres, find_binaries
from tests.support.s3 import RealS3

pytestmark = [pytest.mark.crash, pytest.mark.postgres, pytest.mark.s3, pytest.mark.timeout(300)]

TIMEOUT_S = 90.0
RESERVED = 5000
RATE_PER_S = scaled(quick=500, nightly=0)
"""Most of the time is spent waiting for leases to end, under load."""
SETTINGS = {
    "wal.kind": "disk",
    "wal.file_bytes": 65_536,
    "flush.age_s": 2,
    "lease.ttl_s": 4,
    "lease.takeover_s": 0.5,
    "lease.renew_s": 0.5,
    "lease.margin_s": 0.5,
    "cluster.disk_wait_s": 1,
    "cluster.reserve_offsets": RESERVED,
}


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[LiveAgent]]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL here")
    with RealPostgres(binaries) as postgres, RealS3(tmp_path / "s3") as s3:
        s3.create_bucket("records")
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        flags = ["--metadata", postgres.dsn(), "--store", "s3://records/cluster"]
        for name, setting in SETTINGS.items():
            flags += ["--set", f"{name}={setting}"]
        made = [LiveAgent(tmp_path / f"agent-{number}", *flags) for number in range(3)]
        for agent in made:
            agent.start()
        yield made
        for agent in made:
            if agent.is_running:
                agent.kill()


def metric(agent: LiveAgent, name: str) -> float:
    with urllib.request.urlopen(f"http://{agent.http}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"streamhouse_{name} "))


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


def more_acks(ledger: Ledger, count: int = 400) -> None:
    before = len(ledger.acked)
    until(lambda: len(ledger.acked) >= before + count, "acknowledgements")


def logs_of(agent: LiveAgent) -> list[str]:
    """The sessions whose logs are on its disk: its own, and those that are not done with."""
    return os.listdir(agent.data / "wal")


def given_up(agents: list[LiveAgent]) -> float:
    return sum(metric(agent, "abandoned_sessions_total") for agent in agents)


def busiest(agents: list[LiveAgent]) -> tuple[LiveAgent, list[LiveAgent]]:
    """The agent that leads most, and the others."""
    result = max(agents, key=lambda agent: metric(agent, "open_partitions"))
    return result, [agent for agent in agents if agent is not result]


def test_what_was_acknowledged_on_disks_that_went_away_is_there_at_least_once(agents: list[LiveAgent]) -> None:
    bootstrap = ",".join(agent.bootstrap for agent in agents)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (created,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values()
    created.result(30)
    ledger = Ledger()
    producers = [
        LoadProducer(name, bootstrap, ledger, idempotent=name != "plain", rate_per_s=RATE_PER_S)
        for name in ("plain", "a", "b")
    ]
    for producer in producers:
        producer.start()
    more_acks(ledger)

    dead, others = busiest(agents)
    dead.kill()
    until(lambda: given_up(others) >= 1, "others go on without the dead one's disk")
    more_acks(ledger)
    dead.start()
    until(lambda: len(logs_of(dead)) == 1, "the dead one's disk is appended again")
    assert metric(dead, "returned_records_total") > 0

    more_acks(ledger)
    paused, others = busiest(agents)
    (old,) = logs_of(paused)
    before = given_up(others)
    os.kill(paused.pid, signal.SIGSTOP)
    until(lambda: given_up(others) > before, "others go on without the paused one's disk")
    more_acks(ledger)
    os.kill(paused.pid, signal.SIGCONT)
    until(lambda: old not in logs_of(paused), "the paused one's disk is appended again")
    assert metric(paused, "returned_records_total") > 0

    more_acks(ledger)
    for producer in producers:
        producer.stop()
    assert not ledger.refused, ledger.refused[:5]
    until(lambda: all(len(logs_of(agent)) == 1 for agent in agents), "nothing is left behind")
    check(ledger, read_everything(bootstrap))


def check(ledger: Ledger, found: dict[int, list[tuple[int, bytes]]]) -> None:
    assert not ledger.clashes, ledger.clashes[:5]
    stored = {(partition, offset): value for partition, records in found.items() for offset, value in records}
    values = set(stored.values())
    lost = [f"{place}: {value!r}" for place, value in ledger.acked.items() if value not in values]
    assert not lost, f"{len(lost)} of {len(ledger.acked)} acknowledged records are gone: {lost[:5]}"
    moved = [place for place, value in ledger.acked.items() if stored.get(place, value) != value]
    assert not moved, f"offsets name other records than they did: {moved[:5]}"
    for partition, records in found.items():
        offsets = [offset for offset, _ in records]
        assert offsets == sorted(set(offsets)), f"partition {partition} is out of order or repeats an offset"
