"""DeleteAcls, API key 31, versions 1-3: delete access rules.

Behaviour   each filter on its own, with the rules that it deleted; a filter that selects nothing is no error
            the rules are without effect on this agent when the response is sent, on the others within a second
            a filter with an unknown type, operation, pattern or permission is INVALID_REQUEST; one with a principal
            that no rule can have selects nothing
            rules that Kafka's protocol can't name (subjects, pipelines, views, tables, running code) are never selected
            SECURITY_DISABLED for each filter while there is no access control
Left out    nothing
Versions    v2 flexible · v3 user resources
"""

from collections.abc import Sequence

from streamhouse.errors import SecurityDisabled, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Acl, AclFilter, Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.access import OPERATION_CODES, PATTERN_CODES, PERMISSION_CODES, TYPE_CODES
from streamhouse.wire.kafka.acls import filters_of, shown_acls
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

Parsed = Sequence[AclFilter] | StreamhouseError


@handles(DeleteAclsRequest, (1, 3), needs=needs(Operation.ALTER, ResourceType.CLUSTER))
async def handle(context: Context, request: DeleteAclsRequest) -> HandlerResult:
    access = context.broker.security.access
    try:
        context.check_cluster(Operation.ALTER)
        if not access.is_enabled:
            raise SecurityDisabled("there is no access control here; turn it on with security.authorization=acls")
        parsed = [_parsed(context, each) async for each in iterate_fairly(request.filters)]
        filters = [one for each in parsed if not isinstance(each, StreamhouseError) for one in each]
        deleted = iter(await access.delete_acls(filters) if filters else ())
    except StreamhouseError as error:
        return DeleteAclsResponse(filter_results=[_rejection(context, error) for _ in request.filters])
    return DeleteAclsResponse(
        filter_results=[
            _rejection(context, each)
            if isinstance(each, StreamhouseError)
            else _result(shown_acls({acl for _ in each for acl in next(deleted)}, context.tenant))
            for each in parsed
        ]
    )


def _parsed(context: Context, requested: DeleteAclsFilter) -> Parsed:
    try:
        return filters_of(requested, context.tenant)
    except StreamhouseError as error:
        return error


def _result(deleted: Sequence[Acl]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_message=None, matching_acls=[_described(acl) for acl in deleted])


def _described(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=TYPE_CODES[acl.resource_type],
        resource_name=acl.name,
        pattern_type=PATTERN_CODES[acl.pattern],
        principal=str(acl.principal),
        host=acl.host,
        operation=OPERATION_CODES[acl.operation],
        permission_type=PERMISSION_CODES[acl.permission],
    )


def _rejection(context: Context, error: StreamhouseError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=context.count_error(error), error_message=str(error))
