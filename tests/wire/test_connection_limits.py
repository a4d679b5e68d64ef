"""Who may connect: counts and rates by address, and that nobody's surplus is somebody else's loss."""

import logging

import msgspec
import pytest

from streamhouse.config import KafkaSettings, is_loopback
from streamhouse.errors import Misconfigured
from streamhouse.wire.client_limits import MAX_WAIT_S, ConnectionLimits, Rejection, parse_overrides

LIMITS = KafkaSettings(
    max_connections=10, max_connections_per_ip=3, connections_per_s=4, connections_per_s_per_ip=2, rate_clients=5
)
NEAR, FAR, OTHER = "127.0.0.1", "10.0.0.7", "10.0.0.8"


def why(decided: float | Rejection) -> str | None:
    return decided.why if isinstance(decided, Rejection) else None


def admission(limits: KafkaSettings = LIMITS) -> ConnectionLimits:
    return ConnectionLimits(limits, section="kafka")


def test_one_address_has_its_share_of_connections_and_others_have_theirs() -> None:
    door = admission()
    assert [why(door.admit(FAR, LIMITS, now)) for now in range(0, 40, 10)] == [None] * 3 + ["connections_per_ip"]
    assert door.admit(OTHER, LIMITS, 40) == 0.0
    door.leave(FAR)
    assert door.admit(FAR, LIMITS, 50) == 0.0


def test_all_of_them_together_have_a_limit_that_holds_for_this_machine_too() -> None:
    door = admission()
    assert [why(door.admit(NEAR, LIMITS, 0)) for _ in range(11)] == [None] * 10 + ["connections"]
    assert why(door.admit(FAR, LIMITS, 0)) == "connections"


def test_clients_on_this_machine_have_no_rate_and_no_share_unless_they_are_named() -> None:
    limits = msgspec.structs.replace(LIMITS, max_connections=1000)
    door = admission(limits)
    assert [door.admit("::1", limits, 0) for _ in range(200)] == [0.0] * 200
    named = msgspec.structs.replace(limits, max_connections_per_ip_overrides=f"{NEAR}:1, ::1:2")
    strict = admission(named)
    assert [why(strict.admit(NEAR, named, 0)) for _ in range(2)] == [None, "connections_per_ip"]
    assert [why(strict.admit("::1", named, 0)) for _ in range(3)] == [None, None, "connections_per_ip"]


def test_an_override_may_also_allow_more() -> None:
    limits = msgspec.structs.replace(LIMITS, max_connections_per_ip_overrides=f"{FAR}:5")
    door = admission(limits)
    assert [why(door.admit(FAR, limits, now)) for now in range(0, 60, 10)] == [None] * 5 + ["connections_per_ip"]


def test_a_client_that_connects_too_often_waits_longer_each_time_and_is_refused_in_the_end() -> None:
    limits = msgspec.structs.replace(LIMITS, max_connections=100, max_connections_per_ip=100, connections_per_s=100)
    door = admission(limits)
    waits = [door.admit(FAR, limits, 0.0) for _ in range(12)]
    assert waits == [0.0, 0.0, *(n / 2 for n in range(1, 11))]
    assert waits[-1] == MAX_WAIT_S
    assert why(door.admit(FAR, limits, 0.0)) == "connection_rate"
    assert door.admit(OTHER, limits, 0.0) == 0.0
    assert door.admit(FAR, limits, 0.5) == MAX_WAIT_S


def test_those_of_one_address_that_come_too_often_take_no_turns_of_all() -> None:
    limits = msgspec.structs.replace(LIMITS, max_connections=1000, max_connections_per_ip=1000, connections_per_s=20)
    door = admission(limits)
    for _ in range(500):
        door.admit(FAR, limits, 0.0)
    assert door.admit(OTHER, limits, 0.0) == 0.0


def test_all_together_wait_for_the_rate_of_all() -> None:
    door = admission()
    assert [door.admit(f"10.0.0.{n}", LIMITS, 0.0) for n in range(6)] == [0.0] * 4 + [0.25, 0.5]


def test_limits_may_change_while_connections_are_open() -> None:
    door = admission()
    assert [why(door.admit(FAR, LIMITS, now)) for now in (0, 10)] == [None, None]
    tight = msgspec.structs.replace(LIMITS, max_connections_per_ip=2)
    assert why(door.admit(FAR, tight, 20)) == "connections_per_ip"
    assert why(door.admit(FAR, LIMITS, 20)) is None


def test_addresses_without_a_connection_are_forgotten() -> None:
    door = admission()
    for n in range(100):
        door.admit(f"10.0.0.{n}", LIMITS, n)
        door.leave(f"10.0.0.{n}")
    assert repr(door) == "<ConnectionLimits kafka open=0 addresses=0>"


def test_refusals_are_logged_with_their_setting_and_not_without_end(caplog: pytest.LogCaptureFixture) -> None:
    door = admission()
    with caplog.at_level(logging.WARNING):
        for now in range(0, 40, 10):
            door.admit(FAR, LIMITS, now)
        for _ in range(1000):
            door.admit(FAR, LIMITS, 31)
        door.admit(FAR, LIMITS, 50)
    assert [record.getMessage() for record in caplog.records] == ["connections rejected"] * 2
    assert "kafka.max_connections_per_ip" in vars(caplog.records[0])["why"]
    assert [vars(record)["unwritten"] for record in caplog.records] == [0, 1000]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False),
     ("::ffff:10.0.0.1", False), ("2001:db8::1", False), ("?", False)],
)  # fmt: skip
def test_loopback_is_known_in_each_of_its_forms(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_overrides_are_addresses_and_numbers() -> None:
    assert parse_overrides(" 10.0.0.7:5 ,[2001:db8::1]:6,::1:7", section="kafka") == {
        "10.0.0.7": 5,
        "2001:db8::1": 6,
        "::1": 7,
    }


@pytest.mark.parametrize("text", ["localhost:5", "10.0.0.7", "10.0.0.7:x", "10.0.0.7:0"])
def test_an_override_that_is_none_is_reported_with_its_setting(text: str) -> None:
    with pytest.raises(Misconfigured, match=r"^http\.max_connections_per_ip_overrides must be ADDRESS:LIMIT"):
        parse_overrides(text, section="http")
