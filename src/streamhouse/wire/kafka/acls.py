"""ACLs: access rules and filters, between the model and the messages of DescribeAcls, CreateAcls and DeleteAcls.

Rules for subjects, pipelines, views, tables and for running code have no number in Kafka's protocol. No filter selects
them, so Kafka's tools can neither see nor delete what they can't name.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol, TypeVar

from streamhouse.errors import InvalidAcl
from streamhouse.model.access import (
    Acl,
    AclFilter,
    Principal,
    ResourceType,
    acl_in_tenant,
    acl_of_tenant,
    check_acl,
)
from streamhouse.wire.kafka.access import (
    ANY,
    MATCH,
    OPERATION_CODES,
    PATTERN_CODES,
    PERMISSION_CODES,
    TYPE_CODES,
)

E = TypeVar("E", bound=Enum)


class RequestedAcl(Protocol):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class RequestedFilter(Protocol):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def acl_of(requested: RequestedAcl, tenant: str) -> Acl:
    """The rule in a request, to be stored; raise `InvalidAcl` for what is none."""
    acl = Acl(
        resource_type=_named(TYPE_CODES, requested.resource_type, "resource type"),
        name=requested.resource_name,
        pattern=_named(PATTERN_CODES, requested.resource_pattern_type, "pattern type"),
        principal=Principal.parse(requested.principal),
        host=requested.host,
        operation=_named(OPERATION_CODES, requested.operation, "operation"),
        permission=_named(PERMISSION_CODES, requested.permission_type, "permission type"),
    )
    check_acl(acl)
    return acl_of_tenant(tenant, acl) if tenant else acl


def shown_acls(acls: Iterable[Acl], tenant: str) -> list[Acl]:
    """Stored rules as the caller knows them, in order."""
    shown = (acl_in_tenant(tenant, acl) for acl in acls) if tenant else acls
    return sorted(acl for acl in shown if acl is not None)


def filters_of(requested: RequestedFilter, tenant: str) -> Sequence[AclFilter]:
    """Filters that together select what a request asks for, among the rules that the protocol can name. None of them
    for a principal that no rule can have: as in Kafka, it selects nothing and is no error."""
    kind = _filtered(TYPE_CODES, requested.resource_type_filter, "resource type")
    operation = _filtered(OPERATION_CODES, requested.operation, "operation")
    is_matching = requested.pattern_type_filter == MATCH
    pattern = None
    if not is_matching:
        pattern = _filtered(PATTERN_CODES, requested.pattern_type_filter, "pattern type")
    permission = _filtered(PERMISSION_CODES, requested.permission_type, "permission type")
    try:
        principal = None if requested.principal_filter is None else Principal.parse(requested.principal_filter)
    except InvalidAcl:
        return []
    return [
        AclFilter(
            resource_type=each,
            name=requested.resource_name_filter,
            pattern=pattern,
            matching=is_matching,
            principal=principal,
            host=requested.host_filter,
            operation=one,
            permission=permission,
            tenant=tenant,
        )
        for each in ([kind] if kind is not None else TYPE_CODES)
        for one in ([operation] if operation is not None or each is not ResourceType.CLUSTER else OPERATION_CODES)
    ]


def _named(codes: Mapping[E, int], code: int, what: str) -> E:
    for member, number in codes.items():
        if number == code:
            return member
    raise InvalidAcl(f"unknown {what}; code={code} allowed={', '.join(f'{n}={m.value}' for m, n in codes.items())}")


def _filtered(codes: Mapping[E, int], code: int, what: str) -> E | None:
    return None if code == ANY else _named(codes, code, what)
