"""CreateAcls, API key 30, versions 1-3: add access rules.

Behaviour   each rule on its own: an invalid one is INVALID_REQUEST, an existing one is no error
            rules hold on this agent when the response is sent, and on the others within a second
            principals are of the kinds User, Group and Role; hosts are addresses, networks (CIDR) or *
            SECURITY_DISABLED for each of them while there is no access control
Left out    operations that their resource type does not have: INVALID_REQUEST, where Kafka stores them
Versions    v2 flexible · v3 user resources
"""

from streamhouse.errors import SecurityDisabled, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Acl, Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.acls import acl_of
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


@handles(CreateAclsRequest, (1, 3), needs=needs(Operation.ALTER, ResourceType.CLUSTER))
async def handle(context: Context, request: CreateAclsRequest) -> HandlerResult:
    access = context.broker.security.access
    try:
        context.check_cluster(Operation.ALTER)
        if not access.is_enabled:
            raise SecurityDisabled("there is no access control here; turn it on with security.authorization=acls")
        parsed = [_parsed(context, each) async for each in iterate_fairly(request.creations)]
        if acls := [each for each in parsed if isinstance(each, Acl)]:
            await access.add_acls(acls)
    except StreamhouseError as error:
        return CreateAclsResponse(results=[_result(context, error) for _ in request.creations])
    return CreateAclsResponse(
        results=[_result(context, each if isinstance(each, StreamhouseError) else None) for each in parsed]
    )


def _parsed(context: Context, requested: AclCreation) -> Acl | StreamhouseError:
    try:
        return acl_of(requested, context.tenant)
    except StreamhouseError as error:
        return error


def _result(context: Context, error: StreamhouseError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=context.count_error(error), error_message=str(error))
