"""CreateAcls, API key 30, versions 1-3: somebody may do something from now on.

Behaviour   SECURITY_DISABLED for each of them, as Kafka answers where no authorizer is configured
Left out    access control
Versions    v2 flexible · v3 user resources
"""

from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@handles(CreateAclsRequest, (1, 3))
async def handle(context: Context, request: CreateAclsRequest) -> HandlerResult:
    code = context.count_error(ErrorCode.SECURITY_DISABLED)
    refused = AclCreationResult(error_code=code, error_message="this agent has no access control")
    return CreateAclsResponse(results=[refused for _ in request.creations])
