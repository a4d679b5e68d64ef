"""Audit events: what is written, how much of it, and what isn't."""

import json
from collections.abc import Sequence
from contextlib import suppress

import pytest

from streamhouse.broker.security.audit import AuditLog, describe_acts
from streamhouse.config import SecuritySettings
from streamhouse.errors import Unavailable
from streamhouse.model.access import USER, Caller, Principal
from tests.contracts.clocks import ManualClock

ALICE = Caller(principal=Principal(USER, "alice"), host="10.0.0.1", listener="PUBLIC")
ON = SecuritySettings(
    authorization="acls", audit="topic", audit_events_per_s=3, audit_refusals_per_s=3, audit_buffer_events=4
)


class Topic:
    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.is_away = False

    async def publish(self, records: Sequence[bytes]) -> None:
        if self.is_away:
            raise Unavailable("away")
        self.events += map(json.loads, records)


@pytest.fixture
def topic() -> Topic:
    return Topic()


async def test_equal_events_of_a_second_are_one_line_with_a_count(topic: Topic) -> None:
    audit = AuditLog(ON, clock=ManualClock(5000))
    for _ in range(1000):
        audit.refused(ALICE, "write", "topic orders")
    audit.administered(ALICE, "create-topic", "topic clicks")
    await audit.flush(topic.publish, agent="a:9092")
    assert topic.events == [
        {
            "at_ms": 5000,
            "kind": "refusal",
            "outcome": "denied",
            "principal": "User:alice",
            "host": "10.0.0.1",
            "listener": "PUBLIC",
            "operation": "write",
            "resource": "topic orders",
            "count": 1000,
            "agent": "a:9092",
        },
        {
            "at_ms": 5000,
            "kind": "administration",
            "outcome": "allowed",
            "principal": "User:alice",
            "host": "10.0.0.1",
            "listener": "PUBLIC",
            "operation": "create-topic",
            "resource": "topic clicks",
            "count": 1,
            "agent": "a:9092",
        },
    ]


async def test_more_different_events_than_allowed_are_counted(topic: Topic) -> None:
    audit = AuditLog(ON, clock=ManualClock())
    for number in range(10_000):
        audit.failed_login(f"user-{number}", "PLAIN", host="10.0.0.1", listener="PUBLIC")
    await audit.flush(topic.publish, agent="a")
    assert [(event["kind"], event["count"]) for event in topic.events] == [("login", 1)] * 3 + [("suppressed", 9997)]


async def test_who_fails_much_hides_no_act_behind_it(topic: Topic) -> None:
    settings = SecuritySettings(authorization="acls", audit="topic", audit_events_per_s=2, audit_refusals_per_s=3)
    audit = AuditLog(settings, clock=ManualClock())
    for number in range(1000):
        audit.refused(ALICE, "write", f"topic t{number}")
    for number in range(3):
        audit.administered(ALICE, f"act-{number}")
    audit.refused(ALICE, "write", "topic t0")
    await audit.flush(topic.publish, agent="a")
    written = [(event["kind"], event.get("operation"), event["count"]) for event in topic.events]
    refused = [("refusal", "write", count) for count in (2, 1, 1)]
    acts = [("administration", "act-0", 1), ("administration", "act-1", 1)]
    assert written == [*refused, ("suppressed", None, 998), *acts]


async def test_names_that_clients_choose_are_cut(topic: Topic) -> None:
    audit = AuditLog(ON, clock=ManualClock())
    audit.refused(ALICE, "read", f"group {'g' * 32_000}")
    audit.failed_login("u" * 32_000, "PLAIN", host="10.0.0.1", listener="PUBLIC")
    await audit.flush(topic.publish, agent="a")
    assert len(topic.events) == 2
    assert len(json.dumps(topic.events)) < 1000


async def test_events_wait_for_the_topic_within_a_limit(topic: Topic) -> None:
    audit = AuditLog(ON, clock=ManualClock())
    topic.is_away = True
    for number in range(6):
        audit.administered(ALICE, f"act-{number}")
        await audit.flush(topic.publish, agent="a")
    topic.is_away = False
    await audit.flush(topic.publish, agent="a")
    assert [event["operation"] for event in topic.events] == ["act-2", "act-3", "act-4", "act-5"]


@pytest.mark.parametrize(
    "settings", [SecuritySettings(authorization="acls", audit="off"), SecuritySettings(audit="topic")]
)
async def test_nothing_is_recorded_without_access_control_or_where_it_is_off(
    settings: SecuritySettings, topic: Topic
) -> None:
    audit = AuditLog(settings, clock=ManualClock())
    audit.refused(ALICE, "write", "topic orders")
    await audit.flush(topic.publish, agent="a")
    assert topic.events == []


async def test_the_log_alone_is_enough(topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "streamhouse.audit")
    audit = AuditLog(SecuritySettings(authorization="acls"), clock=ManualClock())
    audit.login(ALICE, "SCRAM-SHA-512")
    await audit.flush(topic.publish, agent="a")
    assert topic.events == []
    [record] = caplog.records
    assert (record.message, record.__dict__["principal"], record.__dict__["operation"]) == (
        "audit",
        "User:alice",
        "SCRAM-SHA-512",
    )


async def test_acts_of_a_request_are_recorded_with_what_became_of_them(topic: Topic) -> None:
    audit = AuditLog(ON, clock=ManualClock(5000))
    with audit.acts("CreateTopics") as acts:
        audit.administered(ALICE, "create", "topic orders", name="orders")
        audit.administered(ALICE, "create", "topic clicks", name="clicks")
        acts.end(lambda name: name == "clicks")
    with suppress(Unavailable), audit.acts("DeleteTopics"):
        audit.administered(ALICE, "delete", "topic orders", name="orders")
        raise Unavailable("away")
    await audit.flush(topic.publish, agent="a:9092")
    assert [(each["request"], each["operation"], each["resource"], each["outcome"]) for each in topic.events] == [
        ("CreateTopics", "create", "topic orders", "succeeded"),
        ("CreateTopics", "create", "topic clicks", "failed"),
        ("DeleteTopics", "delete", "topic orders", "failed"),
    ]


async def test_details_are_those_of_the_request_and_bounded(topic: Topic) -> None:
    audit = AuditLog(ON, clock=ManualClock(5000))
    with audit.acts("x" * 1000) as acts:
        audit.administered(ALICE, "alter", "cluster kafka-cluster", name="kafka-cluster")
        describe_acts("user bob", *(f"rule {number}" for number in range(100_000)))
        acts.end()
    describe_acts("nobody's")
    await audit.flush(topic.publish, agent="a:9092")
    [event] = topic.events
    assert len(str(event["request"])) == 200
    assert str(event["details"]).startswith("user bob; rule 0; rule 1; ")
    assert len(str(event["details"])) == 1001
