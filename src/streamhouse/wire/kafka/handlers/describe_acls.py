"""DescribeAcls, API key 29, versions 1-3: who may do what.

Behaviour   SECURITY_DISABLED, as Kafka answers where no authorizer is configured
Left out    access control
Versions    v2 flexible · v3 user resources
"""

from streamhouse.wire.kafka.api_registry import serves
from streamhouse.wire.kafka.context import Answer, Context
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@serves(DescribeAclsRequest, (1, 3))
async def handle(context: Context, request: DescribeAclsRequest) -> Answer:
    return DescribeAclsResponse(
        error_code=context.refused(ErrorCode.SECURITY_DISABLED), error_message="this agent has no access control"
    )
