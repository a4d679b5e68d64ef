"""Verdicts: where fine ends, and where a warning becomes a failure."""

import uuid
from typing import Any, Literal

import msgspec
import pytest

from streamhouse.broker.admin.health_rules import (
    CheckStatus,
    check_disks,
    check_exposure,
    check_leases,
    check_metadata,
    check_objects,
    check_orphans,
    check_pending_deletion,
    check_sessions,
    check_super_users,
)
from streamhouse.config import (
    GrpcSettings,
    HttpSettings,
    KafkaSettings,
    LeaseSettings,
    RetentionSettings,
    SecuritySettings,
    Settings,
)
from streamhouse.config import check_exposure as check_exposure_at_start
from streamhouse.config.fields import Address
from streamhouse.errors import Misconfigured
from streamhouse.model.cluster import Membership, PartitionState, Session, SessionState
from streamhouse.model.names import Epoch, NodeId, PartitionId, SessionId, TopicId

NOW_MS = 1_000_000
TOPIC = TopicId(uuid.UUID(int=1))


def a_session(name: str, *, left_ms: int, state: SessionState = SessionState.LIVE) -> Session:
    return Session(
        session_id=SessionId(name),
        node_id=NodeId(ord(name[-1])),
        kafka=Address("127.0.0.1", 1),
        http=Address("127.0.0.1", 2),
        state=state,
        started_at_ms=0,
        expires_at_ms=NOW_MS + left_ms,
    )


def held_by(*names: str | None) -> list[PartitionState]:
    return [
        PartitionState(
            partition=PartitionId(TOPIC, number),
            epoch=Epoch(1),
            holder=None if name is None else SessionId(name),
            log_start=0,
            flushed_end=0,
        )
        for number, name in enumerate(names)
    ]


def a_roll(*sessions: Session) -> Membership:
    return Membership(now_ms=NOW_MS, sessions=sessions)


ALICE, DEAD = a_session("a", left_ms=1), a_session("b", left_ms=0)


@pytest.mark.parametrize(
    ("holders", "verdict"),
    [
        (["a", None], CheckStatus.OK),
        (["a", "b"], CheckStatus.WARNING),
        (["a", "nobody"], CheckStatus.FAILURE),
        (["b", "nobody"], CheckStatus.FAILURE),
    ],
)
def test_a_lease_that_nobody_will_free_is_a_failure(holders: list[str | None], verdict: CheckStatus) -> None:
    assert check_leases(held_by(*holders), a_roll(ALICE, DEAD)).verdict is verdict


@pytest.mark.parametrize(
    ("session", "verdict"),
    [
        (ALICE, CheckStatus.OK),
        (DEAD, CheckStatus.WARNING),
        (a_session("b", left_ms=9000, state=SessionState.RECOVERING), CheckStatus.WARNING),
        (a_session("b", left_ms=-90_000), CheckStatus.WARNING),
        (a_session("b", left_ms=-90_001), CheckStatus.FAILURE),
    ],
)
def test_a_session_that_stays_dead_is_a_failure(session: Session, verdict: CheckStatus) -> None:
    assert check_sessions(a_roll(session), LeaseSettings(ttl_s=30.0)).verdict is verdict


def test_a_disk_that_was_left_behind_is_named_until_it_comes_back() -> None:
    assert check_disks({}).verdict is CheckStatus.OK
    reported = check_disks({SessionId("s-1"): 3, SessionId("s-2"): 1})
    assert reported.verdict is CheckStatus.WARNING
    assert "4 partitions" in reported.text
    assert "s-1, s-2" in reported.text


def test_a_metadata_store_can_be_deaf_or_slow() -> None:
    fine = check_metadata(latency_ms=1000, schema=4, failures_in_a_row=0, is_listening=True)
    slow = check_metadata(latency_ms=1001, schema=4, failures_in_a_row=0, is_listening=True)
    deaf = check_metadata(latency_ms=1, schema=4, failures_in_a_row=0, is_listening=False)
    assert [check.verdict for check in (fine, slow, deaf)] == [CheckStatus.OK, CheckStatus.WARNING, CheckStatus.WARNING]
    assert "slowly" in slow.text
    assert "change notifications is down" in deaf.text


def test_an_object_store_that_returns_other_bytes_is_a_failure() -> None:
    assert check_objects(latency_ms=1, is_same=False).verdict is CheckStatus.FAILURE
    assert check_objects(latency_ms=1001, is_same=True).verdict is CheckStatus.WARNING


def test_a_listing_that_was_cut_is_reported_as_such() -> None:
    assert "(there are more)" in check_orphans(looked_at=10, more=True, orphans=[], overdue=0).text
    assert "10 or more" in check_pending_deletion(RetentionSettings(), overdue=10, more=True).text


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.1.2.3", "streamhouse.example", "[fe80::1]"])
@pytest.mark.parametrize("name", ["Kafka", "HTTP", "gRPC"])
def test_a_listener_that_others_reach_is_worth_a_warning_that_says_who_may_do_what(name: str, host: str) -> None:
    address = f"{host}:9999"
    settings = {
        "Kafka": Settings(kafka=KafkaSettings(listen=address)),
        "HTTP": Settings(http=HttpSettings(listen=address)),
        "gRPC": Settings(grpc=GrpcSettings(listen=address)),
    }[name]
    check = check_exposure(settings)
    assert check.verdict is CheckStatus.WARNING
    assert f"everybody on the network of {name} {address} is an administrator" in check.text
    with pytest.raises(Misconfigured, match=r"with security\.allow_anonymous_network_access=true"):
        check_exposure_at_start(settings)
    check_exposure_at_start(
        msgspec.structs.replace(settings, security=SecuritySettings(allow_anonymous_network_access=True))
    )


@pytest.mark.parametrize(
    ("protocol", "client_auth", "is_fine"),
    [
        ("PLAINTEXT", "none", False),
        ("SSL", "none", False),
        ("SSL", "requested", False),
        ("SSL", "required", True),
        ("SASL_PLAINTEXT", "none", True),
        ("SASL_SSL", "none", True),
    ],
)
def test_a_listener_that_others_reach_needs_a_login_or_certificates(
    protocol: str, client_auth: Literal["none", "requested", "required"], is_fine: bool
) -> None:
    settings = Settings(
        kafka=KafkaSettings(listen="0.0.0.0:1", protocol=protocol),
        security=SecuritySettings(tls_client_auth=client_auth),
    )
    assert (check_exposure(settings).verdict is CheckStatus.OK) is is_fine
    if is_fine:
        check_exposure_at_start(settings)
    else:
        with pytest.raises(Misconfigured, match=r"other machines reach Kafka 0\.0\.0\.0:1"):
            check_exposure_at_start(settings)


def test_one_of_several_listeners_is_enough_to_refuse() -> None:
    kafka = KafkaSettings(
        listen="IN://127.0.0.1:1,OUT://0.0.0.0:2,MORE://0.0.0.0:3", protocol="IN:PLAINTEXT,OUT:SASL_SSL"
    )
    with pytest.raises(Misconfigured, match=r"reach Kafka 0\.0\.0\.0:3, and"):
        check_exposure_at_start(Settings(kafka=kafka))


def test_with_access_rules_the_warning_says_who_may_do_what() -> None:
    security = SecuritySettings(authorization="acls")
    check = check_exposure(Settings(kafka=KafkaSettings(listen="0.0.0.0:1"), security=security))
    assert "may do what access rules allow User:ANONYMOUS" in check.text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]", "[::ffff:127.0.0.1]"])
def test_listeners_on_loopback_are_fine_and_one_that_is_off_is_none(host: str) -> None:
    settings = Settings(
        kafka=KafkaSettings(listen=f"{host}:1"), http=HttpSettings(listen=f"{host}:2"), grpc=GrpcSettings(listen="")
    )
    assert check_exposure(settings).verdict is CheckStatus.OK


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"bootstrap_user": "admin"}, "User:admin"),
        ({"super_users": "User:root,Group:ops", "bootstrap_user": "admin"}, "User:admin, User:root"),
        ({"super_users": "Group:ops"}, ""),
        ({"bootstrap_user": "admin", "oauth_issuer": ""}, ""),
        ({"bootstrap_user": "admin", "authorization": "none"}, ""),
    ],
)
def test_super_users_whom_a_token_can_name_are_a_warning(changes: dict[str, Any], named: str) -> None:
    settings = SecuritySettings(authorization="acls", oauth_issuer="https://login.example")
    check = check_super_users(msgspec.structs.replace(settings, **changes))
    assert check.verdict is (CheckStatus.WARNING if named else CheckStatus.OK)
    assert not named or f"whose claim sub is the name of a super user ({named})" in check.text
