"""An agent that is killed with SIGKILL under load, again and again, loses nothing that it acknowledged.

`make crash` sets CRASH_KILLS=50; the test run takes a few rounds.
"""

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.crash.load import PARTITIONS, TOPIC, Ledger, LoadProducer, check, read_everything
from tests.support.agent import LiveAgent
from tests.support.depth import scaled

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1200)]

ROUNDS = int(os.environ.get("CRASH_KILLS", "0")) or scaled(quick=2, nightly=20)
SEED = int(os.environ.get("CRASH_SEED", "20261115"))
# Small segments and files, so that flushes, truncations and registrations happen while the agent dies.
BUSY = ("--set", "flush.segment_bytes=262144", "--set", "flush.age_s=0.3", "--set", "wal.file_bytes=1048576")


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (created,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values()
    created.result(30)


def run_rounds(agent: LiveAgent, *, rounds: int, damage: bool) -> None:
    chance = random.Random(SEED)
    ledger = Ledger()
    create_topic(agent.bootstrap)
    producers = [
        LoadProducer("plain", agent.bootstrap, ledger, idempotent=False),
        LoadProducer("idempotent-a", agent.bootstrap, ledger, idempotent=True),
        LoadProducer("idempotent-b", agent.bootstrap, ledger, idempotent=True),
    ]
    for producer in producers:
        producer.start()
    for _ in range(rounds):
        before = len(ledger.acked)
        while len(ledger.acked) < before + 500:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.5))
        agent.kill()
        if damage:
            tear_tails(agent.data, chance)
        agent.start()
    for producer in producers:
        producer.stop()
    assert not ledger.refused, ledger.refused[:5]
    hot = read_everything(agent.bootstrap)
    check(ledger, hot, idempotent={"idempotent-a", "idempotent-b"})
    assert agent.stop() == 0
    agent.start()
    assert read_everything(agent.bootstrap) == hot, "what was read from segments differs from what was read before"


def tear_tails(data: Path, chance: random.Random) -> None:
    """Leave half an entry at the end of every WAL file, as a crash of the system in the middle of a write does."""
    for path in data.glob("wal/*/*.wal"):
        content = path.read_bytes()
        start = chance.randrange(len(content)) if content else 0
        with path.open("ab") as file:
            file.write(content[start : start + chance.randrange(1, 400)])


@pytest.mark.parametrize("fsync", ["interval", "always"])
def test_nothing_acknowledged_is_lost(tmp_path: Path, fsync: str) -> None:
    with LiveAgent(tmp_path / "data", "--fsync", fsync, *BUSY) as agent:
        run_rounds(agent, rounds=ROUNDS, damage=False)


def test_a_torn_tail_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with LiveAgent(tmp_path / "data", *BUSY) as agent:
        run_rounds(agent, rounds=max(2, ROUNDS // 4), damage=True)
