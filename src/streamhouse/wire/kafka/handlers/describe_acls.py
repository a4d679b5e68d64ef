"""DescribeAcls, API key 29, versions 1-3: list access rules.

Behaviour   the rules that a filter selects, by resource; the pattern MATCH selects those that apply to a resource
            rules that Kafka's protocol can't name (subjects, pipelines, views, tables, running code) are left out
            a filter with an unknown type, operation, pattern or permission is INVALID_REQUEST; one with a principal
            that no rule can have selects nothing
            SECURITY_DISABLED while there is no access control
Left out    nothing
Versions    v2 flexible · v3 user resources
"""

from itertools import groupby

from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Acl, AclFilter, Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.access import OPERATION_CODES, PATTERN_CODES, PERMISSION_CODES, TYPE_CODES
from streamhouse.wire.kafka.acls import filters_of, shown_acls
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@handles(DescribeAclsRequest, (1, 3), needs=needs(Operation.DESCRIBE, ResourceType.CLUSTER))
async def handle(context: Context, request: DescribeAclsRequest) -> HandlerResult:
    try:
        context.check_cluster(Operation.DESCRIBE)
        acls = await context.broker.security.access.acls(AclFilter())
        filters = filters_of(request, context.tenant)
    except StreamhouseError as error:
        return DescribeAclsResponse(error_code=context.count_error(error), error_message=str(error))
    selected = shown_acls((acl for acl in acls if any(each.selects(acl) for each in filters)), context.tenant)
    by_resource = groupby(selected, key=lambda acl: (acl.resource_type, acl.name, acl.pattern))
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=TYPE_CODES[kind],
                resource_name=name,
                pattern_type=PATTERN_CODES[pattern],
                acls=[_described(acl) for acl in some],
            )
            for (kind, name, pattern), some in by_resource
        ],
    )


def _described(acl: Acl) -> AclDescription:
    return AclDescription(
        principal=str(acl.principal),
        host=acl.host,
        operation=OPERATION_CODES[acl.operation],
        permission_type=PERMISSION_CODES[acl.permission],
    )
