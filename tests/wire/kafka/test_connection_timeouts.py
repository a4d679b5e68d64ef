"""When a connection has to go."""

import pytest

from streamhouse.config import KafkaSettings
from streamhouse.wire.kafka.connection_limits import ConnectionStats, check_interval_s, find_close_reason

SETTINGS = KafkaSettings(
    idle_timeout_s=600,
    first_request_timeout_s=10,
    partial_request_timeout_s=60,
    min_request_bytes_per_s=1000,
    slow_reader_timeout_s=30,
)


def why(stats: ConnectionStats, now: float) -> str | None:
    reason = find_close_reason(stats, SETTINGS, now=now)
    return reason.why if reason is not None else None


def test_an_idle_connection_goes_after_its_time() -> None:
    stats = ConnectionStats(active_at=100)
    stats.has_sent_request = True
    assert why(stats, 699) is None
    assert why(stats, 700) == "idle"


def test_a_connection_that_waits_for_a_response_is_not_idle() -> None:
    stats = ConnectionStats(active_at=100)
    stats.note(taken_bytes=0, is_blocked=False, is_busy=True, now=100)
    assert why(stats, 10_000) is None


def test_a_connection_that_never_asks_goes_sooner() -> None:
    stats = ConnectionStats(active_at=100)
    assert why(stats, 109) is None
    assert why(stats, 110) == "silent"


def test_a_connection_that_waits_for_its_turn_to_ask_is_not_silent() -> None:
    stats = ConnectionStats(active_at=100)
    stats.note(taken_bytes=0, is_blocked=False, is_busy=True, now=100)
    assert why(stats, 120) is None


def test_a_request_must_keep_its_pace_after_its_first_moments() -> None:
    stats = ConnectionStats(active_at=100)
    stats.partial_since = 100
    assert why(stats, 109) is None
    assert why(stats, 110) == "slow_sender"
    stats.note(taken_bytes=0, is_blocked=False, is_busy=False, now=110, partial_bytes=20_000)
    assert why(stats, 120) is None
    assert why(stats, 121) == "slow_sender"


def test_a_request_must_arrive_whole_in_time_whatever_its_pace() -> None:
    stats = ConnectionStats(active_at=100)
    stats.partial_since = 100
    stats.note(taken_bytes=0, is_blocked=False, is_busy=False, now=100, partial_bytes=50_000_000)
    assert why(stats, 159) is None
    assert why(stats, 160) == "slow_sender"


def test_a_client_that_takes_nothing_goes_and_one_that_takes_a_little_stays() -> None:
    stats = ConnectionStats(active_at=100)
    stats.note(taken_bytes=5, is_blocked=True, is_busy=True, now=100)
    stats.note(taken_bytes=6, is_blocked=True, is_busy=True, now=125)
    assert why(stats, 154) is None
    stats.note(taken_bytes=6, is_blocked=True, is_busy=True, now=155)
    assert why(stats, 155) == "slow_reader"


def test_a_client_that_took_everything_owes_nothing() -> None:
    stats = ConnectionStats(active_at=100)
    stats.note(taken_bytes=5, is_blocked=True, is_busy=False, now=100)
    stats.note(taken_bytes=9, is_blocked=False, is_busy=False, now=125)
    stats.has_sent_request = True
    assert why(stats, 500) is None


@pytest.mark.parametrize(("shortest", "interval"), [(600.0, 5.0), (2.0, 0.5), (0.01, 0.05)])
def test_the_watch_looks_often_enough_and_not_too_often(shortest: float, interval: float) -> None:
    settings = KafkaSettings(
        idle_timeout_s=shortest,
        first_request_timeout_s=shortest,
        partial_request_timeout_s=shortest,
        slow_reader_timeout_s=shortest,
    )
    assert check_interval_s(settings) == interval
