"""What the benchmarks of a cluster make of what they saw: waits, silences, leaders and the page."""

import struct

from benchmarks import readme
from benchmarks.cluster.plan import spread
from benchmarks.cluster.probes import Ack, History
from benchmarks.cluster.routes import Routes, routes_in
from benchmarks.measure import Curve, Reading
from benchmarks.raw_client import NO_TAGS, array, text, uvarint
from tests.benchmarks.test_numbers import a_run


def acks_at(*moments: float, partition: int = 0) -> list[Ack]:
    return [Ack(partition, moment - 0.05, moment) for moment in moments]


def test_a_failover_ends_with_the_silence_and_not_with_acks_that_were_under_way() -> None:
    history = History(acks=acks_at(9.9, 10.0, 10.01, 12.5, 12.6))
    assert history.first_ack_s(0, 10.0) == 2.5


def test_a_pause_is_the_longest_wait_of_a_record_that_waited_then() -> None:
    history = History(acks=[Ack(0, 0.0, 5.0), Ack(0, 9.5, 10.5), Ack(0, 11.0, 11.2), Ack(1, 10.0, 20.0)])
    assert history.pause_s(0, 10.0, 12.0) == 1.0


def test_a_partition_has_resumed_when_a_record_of_later_is_acknowledged() -> None:
    history = History(acks=[Ack(0, 1.0, 9.0), Ack(1, 6.0, 7.0)])
    assert not history.acked_after(5.0, [0, 1])
    history.acks.append(Ack(0, 6.0, 9.0))
    assert history.acked_after(5.0, [0, 1])


def test_refusals_and_failures_belong_to_the_time_in_which_they_came() -> None:
    history = History(refusals=[(1.0, "code 6"), (2.0, "code 6"), (9.0, "code 6")], failures=[(2.0, "timed out")])
    assert history.refused(1.0, 3.0) == {"code 6": 2}
    assert (history.failed(1.0, 3.0), history.failed(3.0, 9.0)) == (1, 0)


def test_few_values_are_reported_by_their_extremes_and_kept_one_by_one() -> None:
    *readings, curve = spread("kill", [3.0, 1.0, 2.0])
    assert [(r.metric, r.value) for r in readings if isinstance(r, Reading)] == [
        ("least", 1000.0),
        ("median", 2000.0),
        ("longest", 3000.0),
        ("samples", 3),
    ]
    assert isinstance(curve, Curve)
    assert curve.quantiles_ms == [1000.0, 2000.0, 3000.0]
    assert list(spread("nobody was asked", [])) == []


def test_leaders_are_read_from_a_metadata_answer_and_nobody_is_not_a_leader() -> None:
    brokers = [
        struct.pack(">i", node) + text("127.0.0.1") + struct.pack(">i", 9000 + node) + b"\0" + NO_TAGS
        for node in (1, 2)
    ]
    nodes = uvarint(2) + struct.pack(">i", 1)
    partitions = [
        struct.pack(">hiii", 0, number, leader, 7) + nodes + nodes + uvarint(1) + NO_TAGS
        for number, leader in ((0, 2), (1, 1), (2, -1))
    ]
    topic = struct.pack(">h", 0) + text("orders") + b"\0" + array(partitions) + struct.pack(">i", 0) + NO_TAGS
    head = struct.pack(">i", 0) + NO_TAGS + struct.pack(">i", 0)
    response = head + array(brokers) + text("cluster") + struct.pack(">i", 1) + array([topic]) + NO_TAGS
    result = routes_in(memoryview(response))
    assert result == Routes(agents={1: "127.0.0.1:9001", 2: "127.0.0.1:9002"}, leaders={0: 2, 1: 1})
    assert result.by_address() == {"127.0.0.1:9002": [0], "127.0.0.1:9001": [1]}
    assert result.address(2) is None


def test_the_numbers_of_a_cluster_have_their_own_place_on_the_page() -> None:
    brokers, cluster = readme.BROKERS, readme.CLUSTER
    page = f"{brokers.begin}\nkept\n{brokers.end}\n{cluster.begin}\nstale\n{cluster.end}\n"
    written = readme.with_numbers(page, a_run({"streamhouse": [2000.0]}), cluster)
    assert "kept" in written
    assert "stale" not in written
    assert "| produce x | 2,000 |" in written
