"""Transactions of librdkafka in a compacted topic: whoever compacts it, nobody who reads it sees what was aborted."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from streamhouse.cli.main import app
from streamhouse.spark.agents.run_replacements import MaintenancePlan
from streamhouse.spark.maintenance.compaction_job import compact
from tests.spark.maintenance.compacting import (
    DAY_MS,
    STILL,
    HereExecutors,
    cleaned,
    compact_later,
    create,
    final,
    put,
    read_all,
)
from tests.spark.maintenance.support import QUICK, ask, plan
from tests.spark.maintenance.transactions import ABORTED, FINAL, transaction, transactional, wait_until, write_history
from tests.support.agent import LiveAgent

BUSY = (*QUICK, "--set", "compaction.interval_s=0.1")
"""The agent compacts by itself, all the time."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("by-jobs") / "data", *STILL) as running:
        yield running


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAgent]:
    with LiveAgent(tmp_path_factory.mktemp("by-itself") / "data", *BUSY) as running:
        yield running


def by_http(agent: LiveAgent, topic: str) -> dict[bytes, bytes]:
    results: dict[bytes, bytes | None] = {}
    offset = 0
    while True:
        page = ask(agent, f"/v1/topics/{topic}/partitions/0/records?offset={offset}", method="GET")
        for record in page["records"]:
            results[record["key"].encode()] = None if record["value"] is None else str(record["value"]).encode()
        if page["next_offset"] == offset:
            return {key: value for key, value in results.items() if value is not None}
        offset = page["next_offset"]


def by_command(agent: LiveAgent, topic: str) -> dict[bytes, bytes]:
    result = CliRunner().invoke(app, ["consume", topic, "--from-beginning", "--json", "--bootstrap", agent.bootstrap])
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in result.stdout.splitlines()]
    results = {each["key"].encode(): each["value"] for each in records}
    return {key: str(value).encode() for key, value in results.items() if value is not None}


READERS = {"http": by_http, "command": by_command}


def check_readers(agent: LiveAgent, topic: str, expected: dict[bytes, bytes]) -> None:
    assert final(read_all(agent, topic)) == expected
    for name, read in READERS.items():
        assert read(agent, topic) == expected, name


def check_nothing_aborted(agent: LiveAgent, topic: str, *, below: int) -> None:
    """Those who read what isn't committed see nothing of it either, where the topic was compacted."""
    seen = [each for each in read_all(agent, topic, isolation="read_uncommitted") if each.offset < below]
    assert seen
    assert not {each.value for each in seen} & set(ABORTED)


def test_jobs_leave_what_was_committed_and_open_transactions_alone(agent: LiveAgent) -> None:
    create(agent, "jobs", cleanup_policy="compact")
    bob = write_history(agent, "jobs", name="jobs")
    check_readers(agent, "jobs", FINAL)
    (open_from,) = [each.stable_end for each in flushed_plan(agent, "jobs").partitions]
    done = compact("jobs", agents=agent.http, executors=HereExecutors())
    assert done.up_to[0] <= open_from
    check_readers(agent, "jobs", FINAL)
    check_nothing_aborted(agent, "jobs", below=done.up_to[0])
    assert b"open" in {each.value for each in read_all(agent, "jobs", isolation="read_uncommitted")}
    bob.abort_transaction(30)
    compact("jobs", agents=agent.http, executors=HereExecutors())
    check_readers(agent, "jobs", FINAL | {b"c": b"behind"})
    seen = read_all(agent, "jobs", isolation="read_uncommitted")
    assert seen == read_all(agent, "jobs")
    assert len({each.key for each in seen}) == len(seen)


def flushed_plan(agent: LiveAgent, topic: str) -> MaintenancePlan:
    ask(agent, f"/v1/topics/{topic}/flush")
    return plan(agent, topic)


def test_markers_and_what_is_told_of_aborted_transactions_go_in_their_time(agent: LiveAgent) -> None:
    create(agent, "markers", cleanup_policy="compact", delete_retention_ms=str(DAY_MS))
    alice = transactional(agent, "markers-alice")
    transaction(alice, "markers", ("a", "aborted"), ends=False)
    transaction(alice, "markers", ("a", "1"))
    for days, rows in ((0, 1), (0, 0), (2, 0)):
        put(agent, "markers", ("b", "x"))
        compact_later(agent, "markers", days * DAY_MS)
        (result,) = flushed_plan(agent, "markers").partitions
        assert len(result.aborted) == rows
        assert final(read_all(agent, "markers")) == {b"a": b"1", b"b": b"x"}
    (result,) = plan(agent, "markers").partitions
    # Of the first transaction nothing is left, of the second its record and its marker; and the last of the others.
    assert sum(run.records for run in result.runs) == 3


def test_an_agent_compacts_as_jobs_do(busy: LiveAgent) -> None:
    create(busy, "itself", cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    bob = write_history(busy, "itself", name="itself")
    (open_from,) = [each.stable_end for each in flushed_plan(busy, "itself").partitions]
    wait_until(lambda: 0 < cleaned(busy, "itself")[0] <= open_from, what="compacted up to the open transaction")
    check_readers(busy, "itself", FINAL)
    check_nothing_aborted(busy, "itself", below=cleaned(busy, "itself")[0])
    bob.commit_transaction(30)
    end = max(each.flushed_end for each in flushed_plan(busy, "itself").partitions)
    wait_until(lambda: cleaned(busy, "itself")[0] == end, what="compacted to the end")
    check_readers(busy, "itself", FINAL | {b"a": b"open", b"c": b"behind", b"e": b"open"})
    seen = read_all(busy, "itself", isolation="read_uncommitted")
    assert seen == read_all(busy, "itself")
