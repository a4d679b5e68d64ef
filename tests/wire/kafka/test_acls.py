"""Filters of access rules, from Kafka's messages."""

import pytest

from streamhouse.errors import InvalidAcl
from streamhouse.wire.kafka.acls import filters_of
from streamhouse.wire.kafka.messages.describe_acls import DescribeAclsRequest

TOPIC, ANY, READ, LITERAL, ALLOW = 2, 1, 3, 3, 3


def a_filter(*, principal: str | None, operation: int = ANY) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=TOPIC,
        resource_name_filter="orders",
        pattern_type_filter=LITERAL,
        principal_filter=principal,
        host_filter="*",
        operation=operation,
        permission_type=ALLOW,
    )


@pytest.mark.parametrize("principal", ["*", "", "alice", "Robot:alice"])
def test_a_principal_that_no_rule_can_have_selects_nothing(principal: str) -> None:
    assert filters_of(a_filter(principal=principal), tenant="") == []
    assert len(filters_of(a_filter(principal="User:alice"), tenant="")) == 1
    assert len(filters_of(a_filter(principal=None), tenant="")) == 1


def test_an_unknown_operation_is_refused_whatever_the_principal_is() -> None:
    for principal in ("*", None):
        with pytest.raises(InvalidAcl):
            filters_of(a_filter(principal=principal, operation=99), tenant="")
