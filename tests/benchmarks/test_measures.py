"""The measures of a full run against a live agent: each gives the numbers that it promises."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks.active_connections import ActiveConnections
from benchmarks.blaster import Shot
from benchmarks.cold_reads import ColdReads
from benchmarks.fan_out import FanOut
from benchmarks.fixed_rate import FixedRate, shot
from benchmarks.measure import QUICK, Measure, Plan, Reading, topic
from benchmarks.pace import Schedule
from benchmarks.paced_load import PacedLoad
from benchmarks.partition_growth import AT_ONCE, PartitionGrowth
from benchmarks.partition_growth import shots as shots_over
from benchmarks.raw_client import fetch_frame, fetched
from benchmarks.rebalance import Rebalance
from benchmarks.streamhouse_peer import StreamHousePeer

PLAN = replace(
    QUICK,
    latency_s=0.2,
    warm_up_s=0.1,
    short_warm_up_s=0.1,
    load_max_s=0.2,
    load_bytes=5_000_000,
    cold_bytes=5_000_000,
    cost_max_s=0.5,
    idle_connections=20,
    partition_counts=(1, 20),
    group_members=5,
)


@pytest.fixture(scope="module")
def agent() -> Iterator[StreamHousePeer]:
    with StreamHousePeer() as peer:
        yield peer


def readings(measure: Measure, agent: StreamHousePeer, plan: Plan = PLAN) -> dict[tuple[str, str], float]:
    responses = measure.ask(agent, plan)
    return {
        (response.scenario, response.metric): response.value for response in responses if isinstance(response, Reading)
    }


def test_every_paced_request_is_sent_answered_and_counted(agent: StreamHousePeer) -> None:
    with topic(agent, "paced", 16) as name, agent.connect() as one, agent.connect() as other:
        shots: list[Shot] = [shot(name, partition) for partition in range(16)]
        waits = PacedLoad([one, other], [each.request for each in shots]).run(Schedule(seconds=0.32, rate_per_s=100))
        assert waits.count == 32
        fetch = fetch_frame(
            name, [(n, 0) for n in range(16)], max_bytes=1 << 24, partition_max_bytes=1 << 20, max_wait_ms=0
        )
        assert {part.records for part in fetched(one.call(fetch))} == {2 * shots[0].records}


@pytest.mark.parametrize(
    ("measure", "some"),
    [
        (FixedRate(), ("ack at 80% of the limit", "p99.9")),
        (FanOut(), ("5 readers of one topic", "cpu")),
        (PartitionGrowth(), ("10 MB/s over 20 partitions", "cpu")),
        (ColdReads(), ("ack, beside readers of old records, 1,000/s", "p99")),
        (ActiveConnections(), ("1,000 records/s over 20 connections", "cpu per request")),
        (Rebalance(), ("a group of 5, one more joins", "settled")),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_a_measure_gives_its_numbers(agent: StreamHousePeer, measure: Measure, some: tuple[str, str]) -> None:
    result = readings(measure, agent)
    assert some in result
    assert all(value >= 0 for value in result.values())


@pytest.mark.parametrize(("partitions", "requests"), [(1, 4), (288, 4), (10_000, 10)])
def test_requests_over_any_number_of_partitions_have_a_batch_for_each_of_a_thousand(
    partitions: int, requests: int
) -> None:
    prepared = shots_over("t", partitions)
    assert len(prepared) == requests
    assert {each.records % min(partitions, AT_ONCE) for each in prepared} == {0}
    assert all(each.bytes == each.records * 100 for each in prepared)
