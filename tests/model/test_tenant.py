"""Names of tenants: whatever clients call things, two tenants never have one of the same name."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.errors import InvalidCredentials, InvalidTopicName
from streamhouse.model.access import (
    Acl,
    Operation,
    PatternType,
    Principal,
    ResourceType,
    acl_in_tenant,
    acl_of_tenant,
    is_anonymous,
)
from streamhouse.model.credentials import check_user_name
from streamhouse.model.names import check_topic_name
from streamhouse.model.tenant import (
    NOWHERE,
    bare,
    cluster_id_of,
    is_tenant,
    qualified,
    tenant_of,
    topic_of_member,
    unqualified,
    without_tenant,
)

TENANTS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,4}[a-z0-9])?", fullmatch=True)
NAMES = st.text(st.sampled_from("ab~-*.:9"), max_size=8)


@given(TENANTS, NAMES, TENANTS, NAMES)
def test_names_of_two_tenants_never_meet(one: str, name: str, other: str, another: str) -> None:
    assert is_tenant(one)
    inside = qualified(one, name)
    assert tenant_of(inside) == one
    assert bare(inside) == name
    assert unqualified(one, inside) == name
    if one != other:
        assert inside != qualified(other, another)
        assert unqualified(other, inside) is None


@given(TENANTS, NAMES.filter(bool), NAMES.filter(bool), st.sampled_from(ResourceType), st.sampled_from(PatternType))
def test_a_rule_comes_back_as_it_was_written(
    tenant: str, name: str, user: str, kind: ResourceType, pattern: PatternType
) -> None:
    if kind is ResourceType.USER:
        name = f"User:{name}"
    principal = Principal("User", user)
    rule = Acl(resource_type=kind, name=name, pattern=pattern, principal=principal, operation=Operation.ALL)
    assert acl_in_tenant(tenant, acl_of_tenant(tenant, rule)) == rule
    assert acl_in_tenant(f"{tenant}0", acl_of_tenant(tenant, rule)) is None


@pytest.mark.parametrize("name", ["orders", "~orders", "Acme~orders", "a.b~orders", "-a~orders", "", f"{'a' * 64}~x"])
def test_who_has_no_tenant(name: str) -> None:
    assert tenant_of(name) == ""
    assert bare(name) == name


def test_nobody_can_be_nowhere() -> None:
    assert not is_tenant(NOWHERE)


@pytest.mark.parametrize("name", ["acme~", "acme~a~b", "~orders", "A~orders", f"acme~{'a' * 250}"])
def test_a_tenants_topic_has_a_name_that_kafka_allows(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_topic_name(name)


def test_a_text_for_a_tenant_has_its_own_names() -> None:
    text = "unknown topic; name=acme~orders not=xacme~orders principal=User:acme~alice"
    assert without_tenant("acme", text) == "unknown topic; name=orders not=xacme~orders principal=User:alice"


@pytest.mark.parametrize("name", ["acme~", "acme~*", "acme~ANONYMOUS", "*", "ANONYMOUS", ""])
def test_nobody_in_a_tenant_is_called_like_everybody_or_nobody(name: str) -> None:
    with pytest.raises(InvalidCredentials):
        check_user_name(name)


def test_who_has_not_logged_in_is_anonymous_in_a_tenant_too() -> None:
    assert is_anonymous(Principal("User", "acme~ANONYMOUS"))
    assert is_anonymous(Principal("User", "ANONYMOUS"))
    assert not is_anonymous(Principal("User", "acme~alice"))
    assert not is_anonymous(Principal("Group", "ANONYMOUS"))


def test_members_mean_topics_of_their_tenant() -> None:
    assert topic_of_member("acme~g", "orders") == "acme~orders"
    assert topic_of_member("acme~g", "acme~orders") == "acme~orders"
    assert topic_of_member("g", "orders") == "orders"


def test_each_tenant_has_a_cluster_id_of_kafkas_form() -> None:
    ids = {cluster_id_of(tenant, "one") for tenant in ("acme", "beta")} | {cluster_id_of("acme", "two")}
    assert len(ids) == 3
    assert {len(each) for each in ids} == {22}


def test_names_of_strangers_are_not_kept() -> None:
    tenant_of("warm~up")
    tracemalloc.start()
    try:
        for number in range(1000):
            tenant_of(f"{number:0>5000}~")
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
