"""DeleteGroups, API key 42, versions 0-3: delete groups without members, with their committed offsets.

Behaviour   each group on its own: one with members is NON_EMPTY_GROUP, an unknown one GROUP_ID_NOT_FOUND
            one that another agent coordinates is NOT_COORDINATOR
Left out    nothing
Versions    v2 flexible · v3 error text
"""

from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from streamhouse.wire.kafka.resources import split_groups


@handles(DeleteGroupsRequest, (0, 3), needs=needs(Operation.DELETE, ResourceType.GROUP))
async def handle(context: Context, request: DeleteGroupsRequest) -> HandlerResult:
    allowed, denied = split_groups(context, Operation.DELETE, request.groups_names)
    outcomes = {**await context.broker.groups.delete(allowed), **denied}
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(
                group_id=group_id,
                error_code=ErrorCode.NONE if outcome is None else context.count_error(outcome),
                error_message=None if outcome is None else str(outcome),
            )
            async for group_id, outcome in iterate_fairly(outcomes.items())
        ]
    )
