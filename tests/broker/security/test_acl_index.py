"""Decisions by access rules, compared with the rules read one by one as Kafka's documentation says."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from streamhouse.broker.security.acl_index import AclIndex, AclPolicy
from streamhouse.model.access import (
    EVERYBODY,
    IMPLYING,
    USER,
    Acl,
    Operation,
    PatternType,
    Permission,
    Principal,
    Resource,
    ResourceType,
)

ALICE, BOB, ADMIN = Principal(USER, "alice"), Principal(USER, "bob"), Principal(USER, "admin")
NAMES = ["a", "ab", "abc", "b"]
OPERATIONS = [Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS]

acls = st.builds(
    Acl,
    resource_type=st.just(ResourceType.TOPIC),
    name=st.sampled_from([*NAMES, "*"]),
    pattern=st.sampled_from(PatternType),
    principal=st.sampled_from([ALICE, BOB, EVERYBODY]),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.0/24", "10.1.0.0/16"]),
    operation=st.sampled_from([*OPERATIONS, Operation.ALL]),
    permission=st.sampled_from(Permission),
)


def allowed(rules: Sequence[Acl], who: Principal, host: str, operation: Operation, name: str, *, if_none: bool) -> bool:
    named = [
        rule
        for rule in rules
        if (name.startswith(rule.name) if rule.pattern is PatternType.PREFIXED else rule.name in ("*", name))
    ]
    inside = {"10.0.0.1": {"*", "10.0.0.1", "10.0.0.0/24"}, "10.1.2.3": {"*", "10.1.0.0/16"}}[host]
    mine = [rule for rule in named if rule.principal in (who, EVERYBODY) and rule.host in inside]
    denials = {rule.operation for rule in mine if rule.permission is Permission.DENY}
    if denials & {operation, Operation.ALL}:
        return False
    permissions = {rule.operation for rule in mine if rule.permission is Permission.ALLOW}
    if permissions & {operation, Operation.ALL, *IMPLYING.get(operation, ())}:
        return True
    return if_none and not named


@given(
    st.lists(acls, max_size=6),
    st.sampled_from([ALICE, BOB]),
    st.sampled_from(["10.0.0.1", "10.1.2.3"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from(NAMES),
    st.booleans(),
)
def test_decides_as_the_rules_read_one_by_one(
    rules: list[Acl], who: Principal, host: str, operation: Operation, name: str, if_none: bool
) -> None:
    index = AclIndex(rules, AclPolicy(allow_everyone_if_no_acl_found=if_none))
    decided = index.allows({who}, host, operation, Resource(ResourceType.TOPIC, name))
    assert decided == allowed(rules, who, host, operation, name, if_none=if_none)


@given(st.lists(acls, max_size=6))
def test_a_super_user_may_do_what_is_denied_to_everybody(rules: list[Acl]) -> None:
    denied = Acl(
        resource_type=ResourceType.TOPIC,
        name="*",
        principal=EVERYBODY,
        operation=Operation.ALL,
        permission=Permission.DENY,
    )
    index = AclIndex([*rules, denied], AclPolicy(super_users=frozenset({ADMIN})))
    resource = Resource(ResourceType.TOPIC, "a")
    assert index.allows({ADMIN}, "10.0.0.1", Operation.WRITE, resource)
    assert not index.allows({ALICE}, "10.0.0.1", Operation.WRITE, resource)


@given(st.lists(acls, max_size=6), st.sampled_from(OPERATIONS))
def test_a_user_who_may_do_something_to_a_topic_may_do_it_to_some_topic(rules: list[Acl], operation: Operation) -> None:
    index = AclIndex(rules, AclPolicy())
    if any(index.allows({ALICE}, "10.0.0.1", operation, Resource(ResourceType.TOPIC, name)) for name in NAMES):
        assert index.allows_any({ALICE}, "10.0.0.1", operation, ResourceType.TOPIC)
