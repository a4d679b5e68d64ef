"""Refusals are held back from those who ask without end, and from nobody else."""

from itertools import pairwise

import pytest

from streamhouse.wire.client_limits import RejectionBackoff

RTT_S = 0.001


def ask(failures: RejectionBackoff, *, times: int, pause_s: float, now: float = 100.0) -> tuple[list[float], float]:
    """Be refused again and again, `pause_s` after each refusal."""
    delays = []
    for _ in range(times):
        delay_s = failures.delay_s("a", received_at=now, now=now + RTT_S)
        delays.append(delay_s)
        now += RTT_S + delay_s + pause_s + 1e-9
    return delays, now


def a_few(per_s: float = 10.0, max_delay_s: float = 0.5, clients: int = 3) -> RejectionBackoff:
    return RejectionBackoff(per_s, max_delay_s=max_delay_s, clients=clients)


def test_a_second_of_refusals_is_free_and_then_each_takes_longer_up_to_the_limit() -> None:
    delays, _ = ask(a_few(), times=40, pause_s=0.0)
    assert delays[:10] == [0.0] * 10
    assert all(earlier < later for earlier, later in pairwise(delays[9:15]))
    assert delays[-1] == 0.5
    assert max(delays) == 0.5


@pytest.mark.parametrize("pause_s", [0.1, 0.5, 3.0])
def test_a_caller_that_waits_between_tries_is_never_held_back(pause_s: float) -> None:
    delays, _ = ask(a_few(), times=1000, pause_s=pause_s)
    assert set(delays) == {0.0}


def test_a_client_that_stops_for_a_moment_is_a_new_client() -> None:
    failures = a_few()
    delays, now = ask(failures, times=100, pause_s=0.0)
    assert delays[-1] == 0.5
    again, _ = ask(failures, times=10, pause_s=0.0, now=now + 1.5)
    assert again == [0.0] * 10


def test_what_was_sent_before_the_client_was_refused_is_told_at_once_and_counts_little() -> None:
    failures = a_few()
    assert {failures.delay_s("a", received_at=99.0, now=100.0 + n * RTT_S) for n in range(64)} == {0.0}
    delays, _ = ask(failures, times=6, pause_s=0.0, now=100.1)
    assert delays == [0.0] * 6


def test_a_client_that_always_has_many_requests_under_way_is_held_back_as_well() -> None:
    failures = a_few()
    now, delays = 100.0, []
    for _ in range(20):
        delays.append(failures.delay_s("a", received_at=now, now=now + RTT_S))
        reported_at = now + RTT_S + delays[-1]
        assert {failures.delay_s("a", received_at=now, now=reported_at + n * 1e-6) for n in range(63)} == {0.0}
        now = reported_at + RTT_S
    assert delays[0] == 0.0
    assert delays[-1] == 0.5


def test_what_comes_while_a_refusal_is_held_back_is_no_further_try_either() -> None:
    failures = a_few()
    _, now = ask(failures, times=11, pause_s=0.0)
    held_s = failures.delay_s("a", received_at=now, now=now)
    assert held_s > 0
    assert failures.delay_s("a", received_at=now + held_s / 2, now=now + held_s) == 0.0


def test_one_client_does_not_slow_another() -> None:
    failures = a_few()
    ask(failures, times=100, pause_s=0.0)
    assert failures.delay_s("b", received_at=101.0, now=101.0) == 0.0


def test_a_limit_of_nothing_holds_nobody_back() -> None:
    delays, _ = ask(a_few(max_delay_s=0.0), times=100, pause_s=0.0)
    assert set(delays) == {0.0}


def test_so_many_clients_are_remembered_and_no_more() -> None:
    failures = a_few(clients=3)
    for n in range(10):
        failures.delay_s(str(n), received_at=100.0, now=100.0)
    assert len(failures) == 3
    failures.forget("9")
    failures.forget("never there")
    assert len(failures) == 2
