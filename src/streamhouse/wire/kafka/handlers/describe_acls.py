"""DescribeAcls, API key 29, versions 1-3: who may do what.

Behaviour   SECURITY_DISABLED, as Kafka answers where no authorizer is configured
Left out    access control
Versions    v2 flexible · v3 user resources
"""

from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@handles(DescribeAclsRequest, (1, 3))
async def handle(context: Context, request: DescribeAclsRequest) -> HandlerResult:
    return DescribeAclsResponse(
        error_code=context.count_error(ErrorCode.SECURITY_DISABLED), error_message="this agent has no access control"
    )
