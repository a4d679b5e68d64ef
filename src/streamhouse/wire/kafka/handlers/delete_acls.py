"""DeleteAcls, API key 31, versions 1-3: somebody may do something no longer.

Behaviour   SECURITY_DISABLED for each filter, as Kafka answers where no authorizer is configured
Left out    access control
Versions    v2 flexible · v3 user resources
"""

from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


@handles(DeleteAclsRequest, (1, 3))
async def handle(context: Context, request: DeleteAclsRequest) -> HandlerResult:
    code = context.count_error(ErrorCode.SECURITY_DISABLED)
    refused = DeleteAclsFilterResult(error_code=code, error_message="this agent has no access control")
    return DeleteAclsResponse(filter_results=[refused for _ in request.filters])
